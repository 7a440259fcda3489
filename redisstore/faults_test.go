package redisstore_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/redisstore"
)

// quiet keeps Check's warnings out of the test's output.
func quiet() redisstore.Option {
	return redisstore.WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil)))
}

func largeBody() []byte { return bytes.Repeat([]byte("large"), 20000) }

// everyCall makes every call of a run, and a replay, and requires that none
// shows anything of what has been done to the server between two of them.
func everyCall(t *testing.T, s *redisstore.Store, between func()) {
	t.Helper()
	for _, body := range [][]byte{[]byte("small"), largeBody()} {
		c := newClaim()
		between()
		mustClaim(t, s, c, lease)
		between()
		require.NoError(t, s.Extend(t.Context(), c, lease))
		between()
		mustClaim(t, s, c, lease) // goes through a script
		between()
		require.NoError(t, s.Release(t.Context(), c))
		mustClaim(t, s, c, lease)
		between()
		require.NoError(t, s.Complete(t.Context(), c, response(body), ttl))
		between()
		require.Equal(t, response(body), mustLose(t, s, twin(c), lease).Response)
		between()
		require.NoError(t, s.Forget(t.Context(), c.Key))
		between()
		rec, err := s.Lookup(t.Context(), c.Key)
		require.NoError(t, err)
		require.Nil(t, rec)
	}
}

func TestScriptFlush(t *testing.T) {
	t.Parallel()
	client := startServer(t).client(t)
	everyCall(t, redisstore.New(client), func() { do(t, client, "script", "flush") })
}

// TestRestart kills the server between any two calls; its append-only file
// keeps what it has acknowledged, and the client is the same all the time.
func TestRestart(t *testing.T) {
	t.Parallel()
	srv := startServer(t, "--appendonly", "yes")
	everyCall(t, redisstore.New(srv.client(t)), func() { srv.restart(t) })
}

// TestForgetfulServer: a server that has lost the claim lets a second run in,
// and the first one learns of it.
func TestForgetfulServer(t *testing.T) {
	t.Parallel()
	srv := startServer(t)
	s := redisstore.New(srv.client(t))
	a := newClaim()
	b := twin(a)
	mustClaim(t, s, a, lease)
	srv.restart(t)
	require.ErrorIs(t, s.Extend(t.Context(), a, lease), idempotency.ErrClaimLost)
	mustClaim(t, s, b, lease)
	require.ErrorIs(t, s.Complete(t.Context(), a, response([]byte("a")), ttl), idempotency.ErrClaimLost)
	require.NoError(t, s.Release(t.Context(), a))
	require.NoError(t, s.Complete(t.Context(), b, response([]byte("b")), ttl))
	require.Equal(t, []byte("b"), mustLose(t, s, twin(a), lease).Response.Body)
}

// refusing is a server that refuses claims, and what a claim then gives.
type refusing struct {
	name string
	make func(t *testing.T, change func(*redis.Options)) *redis.Client
	text string
}

func refusals() []refusing {
	return []refusing{
		{"down", func(t *testing.T, change func(*redis.Options)) *redis.Client {
			t.Helper()
			return newClient(t, freeAddr(t), change)
		}, "refused"},
		{"loading", loadingServer, "LOADING"},
		{"replica", func(t *testing.T, change func(*redis.Options)) *redis.Client {
			t.Helper()
			client := startServer(t).client(t, change)
			// It has the records, and may be behind.
			seed(t, redisstore.New(client))
			_, port, err := net.SplitHostPort(freeAddr(t))
			require.NoError(t, err)
			do(t, client, "replicaof", "127.0.0.1", port)
			return client
		}, "READONLY"},
		{"no replicas", func(t *testing.T, change func(*redis.Options)) *redis.Client {
			t.Helper()
			client := startServer(t).client(t, change)
			seed(t, redisstore.New(client))
			do(t, client, "config", "set", "min-replicas-to-write", "1")
			return client
		}, "NOREPLICAS"},
		{"wrong password", func(t *testing.T, change func(*redis.Options)) *redis.Client {
			t.Helper()
			srv := startServer(t, "--requirepass", "secret")
			return srv.client(t, func(o *redis.Options) { o.Password = "wrong" }, change)
		}, "WRONGPASS"},
		{"pool exhausted", func(t *testing.T, change func(*redis.Options)) *redis.Client {
			t.Helper()
			client := startServer(t).client(t, func(o *redis.Options) {
				o.PoolSize, o.MaxActiveConns, o.PoolTimeout = 1, 1, time.Hour
			}, change)
			conn := client.Conn()
			require.NoError(t, conn.Ping(t.Context()).Err())
			t.Cleanup(func() { _ = conn.Close() })
			return client
		}, "context deadline exceeded"},
		{"silent", func(t *testing.T, change func(*redis.Options)) *redis.Client {
			t.Helper()
			p := startProxy(t, startServer(t).addr)
			p.set(func([]byte) action { return dropHang })
			return newClient(t, p.addr, change)
		}, "context deadline exceeded"},
	}
}

// seed leaves a claim and a record under keys that all tests know.
func seed(t *testing.T, s *redisstore.Store) {
	t.Helper()
	for _, c := range []idempotency.Claim{running(), finished()} {
		mustClaim(t, s, c, lease)
	}
	require.NoError(t, s.Complete(t.Context(), finished(), response([]byte("seed")), ttl))
}

func running() idempotency.Claim {
	return idempotency.Claim{Key: idempotency.NewKey("u", "/", "running"), Token: "running"}
}

func finished() idempotency.Claim {
	return idempotency.Claim{Key: idempotency.NewKey("u", "/", "finished"), Token: "finished"}
}

// loadingServer is one that takes a long while to read its file.
func loadingServer(t *testing.T, change func(*redis.Options)) *redis.Client {
	t.Helper()
	srv := startServer(t, "--rdbcompression", "no")
	client := srv.client(t, change)
	pipe := client.Pipeline()
	for i := range 2000 {
		pipe.Set(t.Context(), strconv.Itoa(i), make([]byte, 1000), 0)
	}
	_, err := pipe.Exec(t.Context())
	require.NoError(t, err)
	do(t, client, "save")
	srv.restart(t, "--key-load-delay", "20000", "--loading-process-events-interval-bytes", "1024")
	return client
}

// TestRefusingServer: whatever ails the server, a claim fails before its
// context's end is long past, and nobody takes it for a claim, a loss or a
// corrupt record.
func TestRefusingServer(t *testing.T) {
	t.Parallel()
	for _, tt := range refusals() {
		for name, retries := range map[string]int{"no retries": -1, "as it comes": 0, "many retries": 1000} {
			t.Run(tt.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				s := redisstore.New(tt.make(t, func(o *redis.Options) { o.MaxRetries = retries }))
				for _, c := range []idempotency.Claim{running(), finished(), newClaim()} {
					c.Token += "-twin"
					ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
					rec, err := s.Claim(ctx, c, lease)
					cancel()
					require.Error(t, err)
					require.Nil(t, rec)
					if retries < 0 {
						require.ErrorContains(t, err, tt.text)
					}
					for _, not := range []error{idempotency.ErrClaimLost, idempotency.ErrCorrupt, idempotency.ErrStoreFull} {
						require.NotErrorIs(t, err, not)
					}
				}
			})
		}
	}
}

// TestFullServer: out of memory, a server refuses what is new and goes on with
// what it has.
func TestFullServer(t *testing.T) {
	t.Parallel()
	client := startServer(t, "--maxmemory-policy", "noeviction").client(t)
	s := redisstore.New(client)
	seed(t, s)
	own, other, lapsed := newClaim(), newClaim(), newClaim()
	mustClaim(t, s, own, lease)
	mustClaim(t, s, other, lease)
	lapse(t, s, lapsed)
	do(t, client, "config", "set", "maxmemory", "1")

	_, err := s.Claim(t.Context(), newClaim(), lease)
	require.ErrorIs(t, err, idempotency.ErrStoreFull)
	require.Equal(t, response([]byte("seed")), mustLose(t, s, twin(finished()), lease).Response, "replays go on")
	held(t, s, running())
	require.True(t, mustLose(t, s, twin(lapsed), lease).Lapsed)
	require.NoError(t, s.Extend(t.Context(), own, ttl))
	mustClaim(t, s, own, lease)
	require.NoError(t, s.Release(t.Context(), other))
	require.NoError(t, s.Forget(t.Context(), running().Key))
	for _, body := range [][]byte{nil, largeBody()} {
		err = s.Complete(t.Context(), own, response(body), ttl)
		require.ErrorContains(t, err, "OOM")
		require.NotErrorIs(t, err, idempotency.ErrClaimLost)
		held(t, s, own)
	}

	do(t, client, "config", "set", "maxmemory", "0")
	require.NoError(t, s.Complete(t.Context(), own, response(largeBody()), ttl))
	require.Equal(t, response(largeBody()), mustLose(t, s, twin(own), lease).Response)
}

// TestRecovers: the client that saw the server go works again with the server.
func TestRecovers(t *testing.T) {
	t.Parallel()
	srv := startServer(t, "--appendonly", "yes")
	s := redisstore.New(srv.client(t))
	c := newClaim()
	mustClaim(t, s, c, lease)
	srv.kill()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	require.Error(t, s.Complete(ctx, c, response(nil), ttl))
	srv.restart(t)
	require.NoError(t, s.Complete(t.Context(), c, response(nil), ttl))
}
