package redisstore_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/redisstore"
)

// startSentinel starts a Sentinel that watches the master.
func startSentinel(t *testing.T, master *server) *server {
	t.Helper()
	conf := filepath.Join(t.TempDir(), "sentinel.conf")
	require.NoError(t, os.WriteFile(conf, fmt.Appendf(nil, `
sentinel monitor main 127.0.0.1 %s 2
sentinel down-after-milliseconds main 500
sentinel failover-timeout main 2000
`, master.port()), 0o600))
	s := &server{dir: filepath.Dir(conf), args: []string{conf, "--sentinel", "--bind", "127.0.0.1"}}
	t.Cleanup(s.kill)
	s.addr = freeAddr(t)
	require.NoError(t, s.start(binary(t)))
	return s
}

// TestSentinel kills a master that Sentinels watch. The same Store works again
// with the replica that takes over, which has all that was replicated.
func TestSentinel(t *testing.T) {
	t.Parallel()
	master := startServer(t)
	replica := startServer(t, "--replicaof", "127.0.0.1 "+master.port(), "--repl-diskless-sync-delay", "0")
	replicaClient := replica.client(t)
	var addrs []string
	var sentinels []*redis.SentinelClient
	for range 3 {
		s := startSentinel(t, master)
		addrs = append(addrs, s.addr)
		client := redis.NewSentinelClient(&redis.Options{Addr: s.addr})
		t.Cleanup(func() { _ = client.Close() })
		sentinels = append(sentinels, client)
	}
	require.Eventually(t, func() bool {
		for _, s := range sentinels {
			m := s.Master(context.Background(), "main").Val()
			if m["num-slaves"] != "1" || m["num-other-sentinels"] != "2" {
				return false
			}
		}
		return strings.Contains(replicaClient.Info(context.Background(), "replication").Val(), "master_link_status:up")
	}, startTimeout, 50*time.Millisecond, "the Sentinels know of each other and of the replica")

	client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "main", SentinelAddrs: addrs})
	t.Cleanup(func() { _ = client.Close() })
	s := redisstore.New(client, quiet())
	require.NoError(t, s.Check(t.Context()))
	done, open, fresh := newClaim(), newClaim(), newClaim()
	mustClaim(t, s, done, ttl)
	mustClaim(t, s, open, ttl)
	require.NoError(t, s.Complete(t.Context(), done, response(largeBody()), ttl))
	require.NoError(t, master.client(t).Wait(t.Context(), 1, startTimeout).Err())

	// A waiter of before is told, or polls, after.
	waited := make(chan error, 1)
	go func() {
		waited <- eventually(t.Context(), func() error { return s.Wait(t.Context(), open.Key) })
	}()
	master.kill()
	require.NoError(t, eventually(t.Context(), func() error { return s.Extend(t.Context(), open, ttl) }))
	require.Contains(t, replicaClient.Info(t.Context(), "replication").Val(), "role:master")
	require.Equal(t, response(largeBody()), mustLose(t, s, twin(done), lease).Response)
	held(t, s, open)
	mustClaim(t, s, fresh, lease)
	require.NoError(t, s.Complete(t.Context(), open, response(nil), ttl))
	require.NoError(t, <-waited)
	require.NoError(t, s.Check(t.Context()))
	require.NotErrorIs(t, s.Release(t.Context(), fresh), idempotency.ErrClaimLost)
}
