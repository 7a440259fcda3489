package redisstore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/redisstore"
)

// TestCorruptRecord: what cannot be read is neither run, nor replayed, nor
// taken for a claim in progress, and stays as it is.
func TestCorruptRecord(t *testing.T) {
	t.Parallel()
	client := startServer(t).client(t)
	s := redisstore.New(client)

	whole := func() string {
		c := newClaim()
		require.NoError(t, s.Complete(t.Context(), c, response([]byte("body")), ttl))
		v, err := client.Get(t.Context(), s.RedisKey(c.Key)).Result()
		require.NoError(t, err)
		return v
	}()
	values := map[string]string{
		"empty":               "",
		"foreign":             `{"status":201}`,
		"unknown version":     strings.Replace(whole, " 1 ", " 2 ", 1),
		"cut off":             whole[:len(whole)-1],
		"completed, no reply": whole[:strings.Index(whole, " 1 ")+3+64+1],
	}
	for name, value := range values {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newClaim()
			key := s.RedisKey(c.Key)
			do(t, client, "set", key, value, "ex", "100")
			_, err := s.Claim(t.Context(), c, lease)
			require.ErrorIs(t, err, idempotency.ErrCorrupt)
			_, err = s.Lookup(t.Context(), c.Key)
			require.ErrorIs(t, err, idempotency.ErrCorrupt)
			require.NoError(t, s.Wait(t.Context(), c.Key), "there is no claim to wait for")
			require.NoError(t, s.Release(t.Context(), c))
			require.Equal(t, value, client.Get(t.Context(), key).Val())
			require.NoError(t, s.Forget(t.Context(), c.Key))
			mustClaim(t, s, c, lease)
		})
	}

	t.Run("another type", func(t *testing.T) {
		t.Parallel()
		c := newClaim()
		do(t, client, "hset", s.RedisKey(c.Key), "f", "v")
		_, err := s.Claim(t.Context(), c, lease)
		require.ErrorIs(t, err, idempotency.ErrCorrupt)
		_, err = s.Lookup(t.Context(), c.Key)
		require.ErrorIs(t, err, idempotency.ErrCorrupt)
		require.ErrorIs(t, s.Complete(t.Context(), c, response(nil), ttl), idempotency.ErrCorrupt)
		require.ErrorIs(t, s.Extend(t.Context(), c, lease), idempotency.ErrCorrupt)
		require.NoError(t, s.Forget(t.Context(), c.Key))
		mustClaim(t, s, c, lease)
	})

	t.Run("no expiry", func(t *testing.T) {
		t.Parallel()
		c := newClaim()
		require.NoError(t, s.Complete(t.Context(), c, response(nil), ttl))
		do(t, client, "persist", s.RedisKey(c.Key))
		rec := mustLose(t, s, twin(c), lease)
		require.Equal(t, response(nil), rec.Response)
		require.Greater(t, rec.ExpiresIn, ttl)
	})
}

// TestKeys: distinct keys and prefixes never meet, and a key can be read.
func TestKeys(t *testing.T) {
	t.Parallel()
	s, server := fake(t)
	texts := []string{"", "a", "b", "}", "{", "{x}", "{}", "a|b", "|", "a b", "é", "\x00", "%7B", "hints", "a|new|b",
		strings.Repeat("k", 256), strings.Repeat("k", 70000)}
	keys := map[string]idempotency.Key{}
	for _, u := range texts {
		for _, v := range texts {
			for _, k := range []idempotency.Key{
				idempotency.NewKey(u, "/p", v), {User: u, Endpoint: "/p", Value: v},
			} {
				name := s.RedisKey(k)
				if other, ok := keys[name]; ok {
					require.Equal(t, other, k, "two keys under %q", name)
				}
				keys[name] = k
				tag := name[strings.IndexByte(name, '{')+1 : strings.IndexByte(name, '}')]
				require.Regexp(t, "^[0-9a-f]{8}$", tag, "the tag is not the user's")
			}
		}
	}
	c := newClaim()
	c.Key = idempotency.NewKey("alice", "POST /payments", "4711")
	mustClaim(t, s, c, lease)
	require.Regexp(t, `^idempotency:\{[0-9a-f]{8}\}alice\|POST /payments\|4711$`, server.Keys()[0])

	other := redisstore.New(newClient(t, server.Addr()), redisstore.WithPrefix("other:"))
	mustClaim(t, other, c, lease)
	require.Len(t, server.Keys(), 2)
	require.NoError(t, other.Forget(t.Context(), c.Key))
	held(t, s, c)
}

// TestAnyToken: a token may hold anything, and be of any length.
func TestAnyToken(t *testing.T) {
	t.Parallel()
	s, _ := fake(t)
	tokens := []string{"a", "ab", "a 1 ", "1:a", "\x00\xff\n", "{", "|", strings.Repeat("t", 5000)}
	for _, token := range tokens {
		a := newClaim()
		a.Token, a.Hold = token, time.Hour
		mustClaim(t, s, a, lease)
		mustClaim(t, s, a, lease)
		for _, other := range tokens {
			b := a
			b.Token = other
			if other == token {
				continue
			}
			require.Equal(t, token, mustLose(t, s, b, lease).Token)
			require.ErrorIs(t, s.Extend(t.Context(), b, lease), idempotency.ErrClaimLost)
			require.NoError(t, s.Release(t.Context(), b))
			require.ErrorIs(t, s.Complete(t.Context(), b, response(nil), ttl), idempotency.ErrClaimLost)
		}
		require.NoError(t, s.Extend(t.Context(), a, lease))
		require.NoError(t, s.Complete(t.Context(), a, response(largeBody()), ttl))
		require.Equal(t, token, mustLose(t, s, twin(a), lease).Token)
	}
}

// TestDurations: no duration is too short or too long.
func TestDurations(t *testing.T) {
	t.Parallel()
	client := startServer(t).client(t)
	const longest = time.Duration(1<<63 - 1)
	for name, s := range map[string]*redisstore.Store{
		"server": redisstore.New(client),
		"fake":   func() *redisstore.Store { s, _ := fake(t); return s }(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, d := range []time.Duration{1, time.Microsecond, time.Millisecond + 1, longest} {
				for _, hold := range []time.Duration{0, 1, longest} {
					c := newClaim()
					c.Hold = hold
					mustClaim(t, s, c, d)
					err := s.Extend(t.Context(), c, d)
					if d == longest || hold == longest {
						require.NoError(t, err)
						require.Positive(t, mustLose(t, s, twin(c), d).ExpiresIn)
						mustClaim(t, s, c, longest)
						require.Greater(t, mustLose(t, s, twin(c), d).ExpiresIn, 100*365*24*time.Hour)
					}
					require.NoError(t, s.Complete(t.Context(), c, response(nil), d))
				}
			}
		})
	}
}

func TestNewPanics(t *testing.T) {
	t.Parallel()
	client := newClient(t, "127.0.0.1:1")
	require.PanicsWithValue(t, "redisstore: the client is nil: pass one made by redis.NewClient, NewFailoverClient or NewClusterClient",
		func() { redisstore.New(nil) })
	for _, prefix := range []string{"{", "}", "a{b}c:"} {
		require.Panics(t, func() { redisstore.New(client, redisstore.WithPrefix(prefix)) })
	}
	require.Panics(t, func() { redisstore.New(client, redisstore.WithLogger(nil)) })
	require.NotPanics(t, func() { redisstore.New(client, redisstore.WithPrefix("")) })
}
