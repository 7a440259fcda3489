package redisstore_test

import (
	"bytes"
	"crypto/rand"
	"net/http"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/redisstore"
)

// fake returns a Store on a server in this process, whose clock only moves when
// it is told to.
func fake(t *testing.T) (*redisstore.Store, *miniredis.Miniredis) {
	t.Helper()
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	return redisstore.New(client), server
}

// newClaim returns an attempt at a key nobody else has.
func newClaim() idempotency.Claim {
	return idempotency.Claim{
		Key:         idempotency.NewKey("alice", "/payments", rand.Text()),
		Token:       rand.Text(),
		Fingerprint: idempotency.Fingerprint{1, 2, 3},
	}
}

// twin returns another attempt at the key of c.
func twin(c idempotency.Claim) idempotency.Claim {
	c.Token = rand.Text()
	return c
}

func response(body []byte) *idempotency.Response {
	return &idempotency.Response{
		Status: http.StatusCreated,
		Header: http.Header{"Location": {"/payments/1"}, "Link": {"<a>", "<b>"}, "Content-Type": nil},
		Body:   body,
	}
}

// mustClaim claims and requires that the claim is held.
func mustClaim(t *testing.T, s idempotency.Store, c idempotency.Claim, lease time.Duration) {
	t.Helper()
	rec, err := s.Claim(t.Context(), c, lease)
	require.NoError(t, err)
	require.Nil(t, rec)
}

// mustLose claims and returns who holds the key.
func mustLose(t *testing.T, s idempotency.Store, c idempotency.Claim, lease time.Duration) *idempotency.Record {
	t.Helper()
	rec, err := s.Claim(t.Context(), c, lease)
	require.NoError(t, err)
	require.NotNil(t, rec)
	return rec
}

func TestLifeOfAKey(t *testing.T) {
	t.Parallel()
	bodies := map[string][]byte{
		"nil":   nil,
		"empty": {},
		"small": []byte("\x00\xff\xfe\xe2\x82 \r\n"),
		"large": bytes.Repeat([]byte("\x00\xff\xfe\xe2\x82 \r\n"), 1<<17),
	}
	for name, body := range bodies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, server := fake(t)
			a := newClaim()
			b := twin(a)

			mustClaim(t, s, a, time.Minute)
			mustClaim(t, s, a, time.Minute)
			rec := mustLose(t, s, b, time.Minute)
			require.Equal(t, &idempotency.Record{Token: a.Token, Fingerprint: a.Fingerprint, ExpiresIn: time.Minute}, rec)

			require.NoError(t, s.Extend(t.Context(), a, 2*time.Minute))
			require.ErrorIs(t, s.Extend(t.Context(), b, 2*time.Minute), idempotency.ErrClaimLost)
			require.ErrorIs(t, s.Complete(t.Context(), b, response(body), time.Hour), idempotency.ErrClaimLost)
			require.NoError(t, s.Release(t.Context(), b))

			require.NoError(t, s.Complete(t.Context(), a, response(body), time.Hour))
			require.NoError(t, s.Complete(t.Context(), a, response([]byte("other")), time.Minute))
			require.NoError(t, s.Extend(t.Context(), a, time.Minute))
			require.NoError(t, s.Release(t.Context(), a))
			want := &idempotency.Record{
				Token: a.Token, Fingerprint: a.Fingerprint, Response: response(body), ExpiresIn: time.Hour,
			}
			require.Equal(t, want, mustLose(t, s, b, time.Minute))
			require.Equal(t, want, mustLose(t, s, a, time.Minute))
			require.Len(t, server.Keys(), 1)

			server.FastForward(time.Hour)
			mustClaim(t, s, b, time.Minute)
			require.NoError(t, s.Release(t.Context(), b))
			require.Empty(t, server.Keys())
		})
	}
}

func TestHold(t *testing.T) {
	t.Parallel()
	s, server := fake(t)
	a := newClaim()
	mustClaim(t, s, a, time.Minute)
	a.Hold = time.Hour
	require.NoError(t, s.Extend(t.Context(), a, time.Minute))
	require.Equal(t, time.Minute, mustLose(t, s, twin(a), time.Minute).ExpiresIn)
	mustClaim(t, s, a, time.Second)
	require.Equal(t, time.Minute, mustLose(t, s, twin(a), time.Minute).ExpiresIn, "its own claim does not shorten it")

	server.FastForward(time.Minute)
	rec := mustLose(t, s, twin(a), time.Minute)
	require.True(t, rec.Lapsed)
	require.Equal(t, time.Hour, rec.ExpiresIn)

	mustClaim(t, s, a, time.Minute)
	rec = mustLose(t, s, twin(a), time.Minute)
	require.False(t, rec.Lapsed, "its own claim makes it live again")
	require.Equal(t, time.Minute, rec.ExpiresIn)

	b := twin(a)
	b.Replaces = a.Token
	require.False(t, mustLose(t, s, b, time.Minute).Lapsed, "a live claim is not taken over")
	server.FastForward(2 * time.Minute)
	wrong := twin(a)
	wrong.Replaces = "another"
	require.Equal(t, a.Token, mustLose(t, s, wrong, time.Minute).Token)
	mustClaim(t, s, b, time.Minute)
	require.Equal(t, b.Token, mustLose(t, s, twin(a), time.Minute).Token)
	require.ErrorIs(t, s.Extend(t.Context(), a, time.Minute), idempotency.ErrClaimLost)

	server.FastForward(time.Minute + time.Hour)
	mustClaim(t, s, twin(a), time.Minute)
}
