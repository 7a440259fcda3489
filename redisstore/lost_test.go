package redisstore_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/redisstore"
)

const (
	lease = 30 * time.Second
	ttl   = time.Hour
)

// lostReply is a call whose reply gets lost after the server has carried it out.
type lostReply struct {
	name    string
	request string // what to recognise the request by
	before  func(t *testing.T, s *redisstore.Store, c idempotency.Claim)
	call    func(ctx context.Context, s *redisstore.Store, c idempotency.Claim) error
	after   func(t *testing.T, s *redisstore.Store, c idempotency.Claim)
}

func claimed(t *testing.T, s *redisstore.Store, c idempotency.Claim) { mustClaim(t, s, c, lease) }

func held(t *testing.T, s *redisstore.Store, c idempotency.Claim) {
	t.Helper()
	rec := mustLose(t, s, twin(c), lease)
	require.Equal(t, c.Token, rec.Token)
	require.Nil(t, rec.Response)
	require.False(t, rec.Lapsed)
}

func claim(ctx context.Context, s *redisstore.Store, c idempotency.Claim) error {
	rec, err := s.Claim(ctx, c, lease)
	if err == nil && rec != nil {
		return idempotency.ErrClaimLost
	}
	return err
}

func complete(body []byte) lostReply {
	return lostReply{
		request: "evalsha",
		before:  claimed,
		call: func(ctx context.Context, s *redisstore.Store, c idempotency.Claim) error {
			return s.Complete(ctx, c, response(body), ttl)
		},
		after: func(t *testing.T, s *redisstore.Store, c idempotency.Claim) {
			t.Helper()
			rec := mustLose(t, s, twin(c), lease)
			require.Equal(t, response(body), rec.Response)
			require.InDelta(t, ttl, rec.ExpiresIn, float64(time.Minute))
		},
	}
}

func lostReplies() []lostReply {
	small, large := complete([]byte("small")), complete(bytes.Repeat([]byte("large"), 20000))
	small.name, large.name = "complete", "complete large"
	return []lostReply{
		{
			name: "claim", request: "\r\nnx\r\n",
			before: func(*testing.T, *redisstore.Store, idempotency.Claim) {},
			call:   claim,
			after:  held,
		},
		{
			name: "takeover", request: "evalsha",
			before: func(t *testing.T, s *redisstore.Store, c idempotency.Claim) {
				t.Helper()
				lapse(t, s, c)
			},
			call: func(ctx context.Context, s *redisstore.Store, c idempotency.Claim) error {
				c.Replaces, c.Token = c.Token, c.Token+"-heir"
				return claim(ctx, s, c)
			},
			after: func(t *testing.T, s *redisstore.Store, c idempotency.Claim) {
				t.Helper()
				c.Token += "-heir"
				held(t, s, c)
			},
		},
		{
			name: "own claim again", request: "evalsha",
			before: lapse,
			call:   claim,
			after:  held,
		},
		{
			name: "extend", request: "evalsha",
			before: claimed,
			call: func(ctx context.Context, s *redisstore.Store, c idempotency.Claim) error {
				return s.Extend(ctx, c, ttl)
			},
			after: func(t *testing.T, s *redisstore.Store, c idempotency.Claim) {
				t.Helper()
				require.Greater(t, mustLose(t, s, twin(c), lease).ExpiresIn, lease)
			},
		},
		{
			name: "release", request: "evalsha",
			before: claimed,
			call: func(ctx context.Context, s *redisstore.Store, c idempotency.Claim) error {
				return s.Release(ctx, c)
			},
			after: func(t *testing.T, s *redisstore.Store, c idempotency.Claim) {
				t.Helper()
				mustClaim(t, s, twin(c), lease)
			},
		},
		small,
		large,
	}
}

// lapse claims with a hold and returns when the lease is over.
func lapse(t *testing.T, s *redisstore.Store, c idempotency.Claim) {
	t.Helper()
	c.Hold = ttl
	mustClaim(t, s, c, time.Millisecond)
	require.Eventually(t, func() bool {
		rec, err := s.Lookup(t.Context(), c.Key)
		return err == nil && rec != nil && rec.Lapsed
	}, startTimeout, time.Millisecond)
}

// TestLostReplies: a call whose reply was lost succeeds when it is repeated, by
// go-redis or by the caller, and then things are as if it had been made once.
func TestLostReplies(t *testing.T) {
	t.Parallel()
	srv := startServer(t)
	direct := redisstore.New(srv.client(t))
	require.NoError(t, direct.Check(t.Context())) // and every script is cached
	how := map[string]action{"closed": dropClose, "hangs": dropHang}
	retries := map[string]int{"go-redis repeats": 0, "the caller repeats": -1}
	for _, tt := range lostReplies() {
		for howName, a := range how {
			for retryName, max := range retries {
				t.Run(tt.name+"/"+howName+"/"+retryName, func(t *testing.T) {
					t.Parallel()
					p := startProxy(t, srv.addr)
					s := redisstore.New(newClient(t, p.addr, func(o *redis.Options) {
						o.MaxRetries = max
						o.ReadTimeout = 2 * time.Second // no stall of a busy machine
					}))
					c := newClaim()
					tt.before(t, direct, c)
					seen := p.when(tt.request, 1, a)
					err := tt.call(t.Context(), s, c)
					if max < 0 {
						require.Error(t, err)
						require.NotErrorIs(t, err, idempotency.ErrClaimLost)
						err = tt.call(t.Context(), s, c)
					}
					require.NoError(t, err)
					require.Greater(t, seen.Load(), int64(1), "it was sent again")
					tt.after(t, direct, c)
				})
			}
		}
	}
}

// TestLateRelease: a release that is repeated does not touch the claim that
// somebody else has made in between.
func TestLateRelease(t *testing.T) {
	t.Parallel()
	srv := startServer(t)
	direct := redisstore.New(srv.client(t))
	p := startProxy(t, srv.addr)
	s := redisstore.New(newClient(t, p.addr, noRetries))
	a := newClaim()
	b := twin(a)
	mustClaim(t, s, a, lease)
	require.NoError(t, direct.Release(t.Context(), newClaim())) // the script is cached
	p.when("evalsha", 1, dropClose)
	require.Error(t, s.Release(t.Context(), a))
	mustClaim(t, direct, b, lease)
	require.NoError(t, s.Release(t.Context(), a))
	held(t, direct, b)
}

// TestDeadline: every call returns when its context ends, though the server
// does not answer and the client would wait for ever.
func TestDeadline(t *testing.T) {
	t.Parallel()
	srv := startServer(t)
	for name, heeds := range map[string]bool{"client waits": false, "client heeds deadlines": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := startProxy(t, srv.addr)
			s := redisstore.New(newClient(t, p.addr, func(o *redis.Options) {
				o.ReadTimeout = -1 // none
				o.MaxRetries = 100
				o.ContextTimeoutEnabled = heeds
			}), quiet())
			require.NoError(t, s.Check(t.Context()))
			p.set(func([]byte) action { return dropHang })
			for name, call := range everyMethod(s) {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
					defer cancel()
					require.ErrorIs(t, call(ctx), context.DeadlineExceeded)

					ctx, cancel = context.WithCancel(t.Context())
					time.AfterFunc(50*time.Millisecond, cancel)
					require.ErrorIs(t, call(ctx), context.Canceled)
					require.ErrorIs(t, call(ctx), context.Canceled, "already before the call")
				})
			}
		})
	}
}

func everyMethod(s *redisstore.Store) map[string]func(ctx context.Context) error {
	c := newClaim()
	return map[string]func(ctx context.Context) error{
		"claim":          func(ctx context.Context) error { return claim(ctx, s, c) },
		"extend":         func(ctx context.Context) error { return s.Extend(ctx, c, lease) },
		"complete":       func(ctx context.Context) error { return s.Complete(ctx, c, response(nil), ttl) },
		"complete large": func(ctx context.Context) error { return s.Complete(ctx, c, response(make([]byte, 1<<20)), ttl) },
		"release":        func(ctx context.Context) error { return s.Release(ctx, c) },
		"lookup":         func(ctx context.Context) error { _, err := s.Lookup(ctx, c.Key); return err },
		"forget":         func(ctx context.Context) error { return s.Forget(ctx, c.Key) },
		"wait":           func(ctx context.Context) error { return s.Wait(ctx, c.Key) },
		"check":          s.Check,
	}
}
