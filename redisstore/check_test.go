package redisstore_test

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency/redisstore"
)

// permitted are the commands that the package documentation names.
var permitted = []any{"acl", "setuser", "app", "on", ">secret", "~idempotency:*",
	"+set", "+get", "+getrange", "+pttl", "+pexpire", "+del", "+exists", "+rename", "+eval", "+evalsha"}

// as is a client of the user app.
func as(t *testing.T, srv *server) *redis.Client {
	t.Helper()
	return srv.client(t, func(o *redis.Options) { o.Username, o.Password = "app", "secret" })
}

func TestCheck(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		client func(t *testing.T) redis.UniversalClient
		err    []string // in the error; none: no error
		warns  []string // in the log; none: nothing
	}{
		{
			name: "as it should be",
			client: func(t *testing.T) redis.UniversalClient {
				t.Helper()
				return startServer(t, "--appendonly", "yes", "--maxmemory", "1gb").client(t)
			},
		},
		{
			name: "evicts",
			client: func(t *testing.T) redis.UniversalClient {
				t.Helper()
				return startServer(t, "--appendonly", "yes", "--maxmemory", "1gb",
					"--maxmemory-policy", "volatile-ttl").client(t)
			},
			err: []string{"maxmemory-policy is volatile-ttl", "set it to noeviction"},
		},
		{
			name: "would evict",
			client: func(t *testing.T) redis.UniversalClient {
				t.Helper()
				return startServer(t, "--appendonly", "yes", "--maxmemory-policy", "allkeys-lru").client(t)
			},
			warns: []string{"maxmemory-policy is allkeys-lru"},
		},
		{
			name: "forgets",
			client: func(t *testing.T) redis.UniversalClient {
				t.Helper()
				return startServer(t).client(t)
			},
			warns: []string{"appendonly no", "a restart forgets all claims"},
		},
		{
			name: "snapshots",
			client: func(t *testing.T) redis.UniversalClient {
				t.Helper()
				return startServer(t, "--save", "3600 1").client(t)
			},
			warns: []string{"appendonly no", "since the last snapshot"},
		},
		{
			name: "replica",
			client: func(t *testing.T) redis.UniversalClient {
				t.Helper()
				master := startServer(t)
				return startServer(t, "--replicaof", "127.0.0.1 "+master.port()).client(t)
			},
			err:   []string{"is a replica", "connect to the master"},
			warns: []string{"appendonly no"},
		},
		{
			name: "loading",
			client: func(t *testing.T) redis.UniversalClient {
				t.Helper()
				return loadingServer(t, noRetries)
			},
			err:   []string{"loading"},
			warns: []string{"appendonly no"},
		},
		{
			name: "down",
			client: func(t *testing.T) redis.UniversalClient {
				t.Helper()
				return newClient(t, freeAddr(t), noRetries)
			},
			err: []string{"does not answer"},
		},
		{
			name: "wrong password",
			client: func(t *testing.T) redis.UniversalClient {
				t.Helper()
				return startServer(t, "--requirepass", "secret").client(t)
			},
			err: []string{"does not answer", "NOAUTH"},
		},
		{
			name: "may not be asked",
			client: func(t *testing.T) redis.UniversalClient {
				t.Helper()
				srv := startServer(t, "--appendonly", "yes")
				do(t, srv.client(t), permitted...)
				return as(t, srv)
			},
			warns: []string{"cannot read INFO server", "how old", "maxmemory-policy", "append-only file"},
		},
		{
			name: "may not be asked for its configuration",
			client: func(t *testing.T) redis.UniversalClient {
				t.Helper()
				srv := startServer(t)
				do(t, srv.client(t), append(permitted, "+info")...)
				return as(t, srv)
			},
			warns: []string{"appendonly no", "unless there are snapshots"},
		},
		{
			name: "may not record",
			client: func(t *testing.T) redis.UniversalClient {
				t.Helper()
				srv := startServer(t, "--appendonly", "yes")
				do(t, srv.client(t), append(permitted, "+info", "-rename")...)
				return as(t, srv)
			},
			err: []string{"trying it out: redisstore: complete: a large record", "can't run this command"},
		},
		{
			name: "fake",
			client: func(t *testing.T) redis.UniversalClient {
				t.Helper()
				return newClient(t, miniredis.RunT(t).Addr())
			},
			warns: []string{"cannot read INFO memory"},
		},
		{
			name: "ring",
			client: func(t *testing.T) redis.UniversalClient {
				t.Helper()
				ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": miniredis.RunT(t).Addr()}})
				t.Cleanup(func() { _ = ring.Close() })
				return ring
			},
			err: []string{"redis.Ring"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			client := tt.client(t)
			var log bytes.Buffer
			s := redisstore.New(client, redisstore.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
			err := s.Check(t.Context())
			if len(tt.err) == 0 {
				require.NoError(t, err)
			}
			for _, text := range tt.err {
				require.ErrorContains(t, err, text)
			}
			for _, text := range tt.warns {
				require.Contains(t, log.String(), text)
			}
			if len(tt.warns) == 0 {
				require.Empty(t, log.String())
			}
			if len(tt.err) == 0 {
				require.Empty(t, client.Keys(t.Context(), "*").Val(), "it leaves nothing behind")
			}
		})
	}
}

// TestPermissions: the commands that the documentation names are enough for
// everything, and without the channel waiters poll.
func TestPermissions(t *testing.T) {
	t.Parallel()
	for name, more := range map[string][]any{
		"poll":      nil,
		"subscribe": {"+publish", "+subscribe", "&idempotency:hints"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := startServer(t)
			do(t, srv.client(t), append(append([]any(nil), permitted...), more...)...)
			s := redisstore.New(as(t, srv), quiet())
			require.NoError(t, s.Check(t.Context()))
			everyCall(t, s, func() {})
			c := newClaim()
			mustClaim(t, s, c, lease)
			waited := make(chan error, 1)
			go func() { waited <- s.Wait(t.Context(), c.Key) }()
			waiting(t, s, c.Key)
			require.NoError(t, s.Release(t.Context(), c))
			require.NoError(t, <-waited)
		})
	}
}
