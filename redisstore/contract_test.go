package redisstore_test

import (
	"crypto/rand"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/redisstore"
	"github.com/retrysafe/idempotency/storetest"
)

// wrapped is a client of which the Store does not know how it publishes.
type wrapped struct{ redis.UniversalClient }

// stores returns Stores on one client that share nothing.
func stores(client redis.UniversalClient) func(*testing.T) idempotency.Store {
	return func(*testing.T) idempotency.Store {
		return redisstore.New(client, redisstore.WithPrefix(rand.Text()+":"))
	}
}

func TestContractInProcess(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	storetest.Run(t, stores(newClient(t, server.Addr())),
		storetest.WithSleep(server.FastForward), storetest.WithRounds(100))
}

func TestContract(t *testing.T) {
	t.Parallel()
	storetest.Run(t, stores(startServer(t).client(t)), storetest.WithRounds(100))
}

// TestContractWithoutSubscription is for the waiters, who poll then.
func TestContractWithoutSubscription(t *testing.T) {
	t.Parallel()
	client := startServer(t).client(t)
	storetest.Run(t, stores(wrapped{client}), storetest.WithRounds(20), storetest.WithTick(50*time.Millisecond))
	require.Empty(t, client.PubSubChannels(t.Context(), "*").Val())
}
