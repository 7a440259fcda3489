package docs_test

import (
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/redisstore"
)

// TestOperationsCommands types the page's commands at a server where order-1 is
// stuck: its run died, and the hold of a day blocks it.
func TestOperationsCommands(t *testing.T) {
	t.Parallel()
	program(t, "redis-cli")
	addr := startRedis(t)
	server := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	store := redisstore.New(server)
	stuck := idempotency.Claim{
		Key: idempotency.NewKey("alice", "POST /payments", "order-1"), Token: "ABCDEFGHIJKLMNOPQRSTUVWXYZ", Hold: 24 * time.Hour,
	}
	other := idempotency.Claim{Key: idempotency.NewKey("alice", "POST /payments", "order-2"), Token: "other"}
	for _, c := range []idempotency.Claim{stuck, other} {
		rec, err := store.Claim(t.Context(), c, time.Minute)
		require.NoError(t, err)
		require.Nil(t, rec)
	}
	// Let the lease lapse without waiting for it.
	name, err := server.Keys(t.Context(), "*order-1").Result()
	require.NoError(t, err)
	require.NoError(t, server.PExpire(t.Context(), name[0], stuck.Hold-time.Second).Err())

	_, port, _ := net.SplitHostPort(addr)
	typed := 0
	for _, text := range readPage(t, "docs/operations.md").of("console") {
		for _, line := range parseConsole(text) {
			require.Regexp(t, `^redis-cli `, line.command)
			line.command = "redis-cli -p " + port + line.command[len("redis-cli"):]
			out := line.run(t)
			require.True(t, line.matches(out), "%s\n%s", line.command, out)
			typed++
		}
	}
	require.Equal(t, 6, typed)
	rec, err := store.Lookup(t.Context(), stuck.Key)
	require.NoError(t, err)
	require.Nil(t, rec, "the key is free")
	rec, err = store.Lookup(t.Context(), other.Key)
	require.NoError(t, err)
	require.NotNil(t, rec)
	require.NoError(t, store.Check(t.Context()), "the settings are right")
}

const shardsTest = `package shards

import (
	"testing"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/memstore"
	"github.com/retrysafe/idempotency/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) idempotency.Store {
		return Store{memstore.New(), memstore.New(), memstore.New()}
	}, storetest.WithSynctest())
}

func TestUsersAreSpread(t *testing.T) {
	shards := Store{memstore.New(), memstore.New(), memstore.New()}
	found := make(map[idempotency.Store]bool)
	for c := range 26 {
		found[shards.of(idempotency.NewKey(string(rune('a'+c)), "e", "k"))] = true
	}
	if len(found) != len(shards) {
		t.Fatal(len(found))
	}
}
`

// The page's store keeps the contract.
func TestShards(t *testing.T) {
	t.Parallel()
	o := newOverlay(t)
	o.add("shards", "shards.go", readPage(t, "docs/operations.md").of("go")[0])
	o.add("shards", "shards_test.go", shardsTest)
	o.test("shards")
}
