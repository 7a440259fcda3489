package memstore_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/memstore"
)

const (
	lease = 30 * time.Second
	ttl   = 24 * time.Hour
)

// bundle is a store with shorthands for calls that must not fail.
type bundle struct {
	*memstore.Store
	t *testing.T
}

func setup(t *testing.T, opts ...memstore.Option) bundle {
	t.Helper()
	return bundle{Store: memstore.New(opts...), t: t}
}

func (b bundle) claim(c idempotency.Claim) *idempotency.Record {
	b.t.Helper()
	rec, err := b.Claim(b.t.Context(), c, lease)
	require.NoError(b.t, err)
	return rec
}

func (b bundle) win(c idempotency.Claim) {
	b.t.Helper()
	require.Nil(b.t, b.claim(c))
}

func (b bundle) complete(c idempotency.Claim, resp *idempotency.Response) {
	b.t.Helper()
	require.NoError(b.t, b.Complete(b.t.Context(), c, resp, ttl))
}

func (b bundle) extend(c idempotency.Claim) error {
	return b.Extend(b.t.Context(), c, lease)
}

func (b bundle) lookup(key idempotency.Key) *idempotency.Record {
	b.t.Helper()
	rec, err := b.Lookup(b.t.Context(), key)
	require.NoError(b.t, err)
	return rec
}

func (b bundle) release(c idempotency.Claim) {
	b.t.Helper()
	require.NoError(b.t, b.Release(b.t.Context(), c))
}

func (b bundle) forget(key idempotency.Key) {
	b.t.Helper()
	require.NoError(b.t, b.Forget(b.t.Context(), key))
}

// as returns c for another token.
func as(c idempotency.Claim, token string) idempotency.Claim {
	c.Token = token
	c.Fingerprint[0] = token[0]
	return c
}

func held(c idempotency.Claim, hold time.Duration) idempotency.Claim {
	c.Hold = hold
	return c
}

func replacing(c idempotency.Claim, token string) idempotency.Claim {
	c.Replaces = token
	return c
}

var (
	a = as(claimOf(1), "a")
	b = as(claimOf(1), "b")
)

// TestEdges tells what storetest cannot ask of every store: what holds at the
// very instant at which a lease, a hold or a TTL ends, and what the contract
// leaves to a store.
func TestEdges(t *testing.T) {
	tests := []struct {
		name string
		run  func(t *testing.T, s bundle)
	}{
		{"a lease is over at its very end", func(t *testing.T, s bundle) {
			s.win(a)
			time.Sleep(lease - 1)
			require.Equal(t, time.Duration(1), s.claim(b).ExpiresIn)
			time.Sleep(time.Nanosecond)
			require.Nil(t, s.lookup(a.Key))
			s.win(b)
		}},
		{"a hold begins and ends at its very instants", func(t *testing.T, s bundle) {
			s.win(held(a, time.Minute))
			time.Sleep(lease - 1)
			require.False(t, s.claim(b).Lapsed)
			time.Sleep(time.Nanosecond)
			rec := s.claim(b)
			require.True(t, rec.Lapsed)
			require.Equal(t, time.Minute, rec.ExpiresIn)
			time.Sleep(time.Minute - 1)
			require.True(t, s.claim(b).Lapsed)
			time.Sleep(time.Nanosecond)
			s.win(b)
		}},
		{"a record expires at its very end", func(t *testing.T, s bundle) {
			s.win(a)
			time.Sleep(time.Second)
			s.complete(a, answer(1))
			time.Sleep(ttl - 1)
			require.Equal(t, time.Duration(1), s.claim(b).ExpiresIn)
			time.Sleep(time.Nanosecond)
			require.Nil(t, s.lookup(a.Key))
			s.win(b)
		}},
		{"claiming again shortens neither lease nor hold", func(t *testing.T, s bundle) {
			c := held(a, time.Hour)
			_, err := s.Claim(t.Context(), c, time.Minute)
			require.NoError(t, err)
			s.win(a)
			require.Equal(t, time.Minute, s.lookup(a.Key).ExpiresIn)
			time.Sleep(time.Minute)
			require.Equal(t, time.Hour, s.lookup(a.Key).ExpiresIn)
			s.win(a)
			require.False(t, s.lookup(a.Key).Lapsed, "its own claim makes a lapsed claim live again")
			require.Equal(t, lease, s.lookup(a.Key).ExpiresIn)
			time.Sleep(lease)
			require.Equal(t, time.Hour-lease, s.lookup(a.Key).ExpiresIn)
		}},
		{"a lapsed claim is replaced by one that names it", func(t *testing.T, s bundle) {
			s.win(held(a, time.Minute))
			time.Sleep(lease)
			require.Equal(t, "a", s.claim(b).Token)
			require.Equal(t, "a", s.claim(replacing(b, "c")).Token)
			s.win(replacing(b, "a"))
			require.Equal(t, "b", s.claim(replacing(as(a, "c"), "a")).Token)
			require.Equal(t, "b", s.lookup(a.Key).Token)
			require.Equal(t, b.Fingerprint, s.lookup(a.Key).Fingerprint)
			require.Equal(t, lease, s.lookup(a.Key).ExpiresIn)
			require.ErrorIs(t, s.extend(a), idempotency.ErrClaimLost)
			require.ErrorIs(t, s.Complete(t.Context(), a, answer(1), ttl), idempotency.ErrClaimLost)
			s.release(a)
			require.Equal(t, "b", s.lookup(a.Key).Token)
		}},
		{"an empty Replaces replaces nothing, not even an empty token", func(t *testing.T, s bundle) {
			nameless := held(a, time.Minute)
			nameless.Token = ""
			s.win(nameless)
			time.Sleep(lease)
			require.True(t, s.claim(b).Lapsed)
			require.NotNil(t, s.lookup(a.Key))
		}},
		{"Replaces does not stand in the way of an absent key", func(t *testing.T, s bundle) {
			s.win(replacing(a, "gone"))
			s.release(a)
			s.win(held(a, time.Minute))
			time.Sleep(lease + time.Minute)
			s.win(replacing(b, "a"))
		}},
		{"a claim that lapsed without a hold cannot be extended", func(t *testing.T, s bundle) {
			s.win(a)
			time.Sleep(lease)
			require.ErrorIs(t, s.extend(a), idempotency.ErrClaimLost)
			require.Nil(t, s.lookup(a.Key))
			s.win(a) // but claimed again
		}},
		{"a lapsed claim within its hold can be extended", func(t *testing.T, s bundle) {
			s.win(held(a, time.Minute))
			time.Sleep(lease + time.Minute - 1)
			require.NoError(t, s.extend(held(a, time.Minute)))
			require.False(t, s.lookup(a.Key).Lapsed)
			time.Sleep(lease)
			require.True(t, s.lookup(a.Key).Lapsed)
			require.NoError(t, s.extend(a), "and sets the hold")
			time.Sleep(lease)
			require.Nil(t, s.lookup(a.Key))
		}},
		{"extending sets a shorter lease too", func(t *testing.T, s bundle) {
			s.win(held(a, time.Hour))
			require.NoError(t, s.Extend(t.Context(), a, time.Second))
			time.Sleep(time.Second)
			s.win(b)
		}},
		{"a claim that nobody took is completed late", func(t *testing.T, s bundle) {
			s.win(a)
			time.Sleep(lease) // lapsed, perhaps not swept
			s.complete(a, answer(1))
			require.Len(t, s.claim(b).Response.Body, 1)
			s.forget(a.Key)
			s.win(a)
			time.Sleep(time.Hour) // swept
			s.complete(a, answer(2))
			require.Len(t, s.claim(b).Response.Body, 2)
			require.Equal(t, a.Fingerprint, s.claim(b).Fingerprint)
			require.Equal(t, ttl, s.claim(b).ExpiresIn)
		}},
		{"an expired record of another token does not stop a late completion", func(t *testing.T, s bundle) {
			s.complete(b, answer(1))
			require.ErrorIs(t, s.Complete(t.Context(), a, answer(2), ttl), idempotency.ErrClaimLost)
			time.Sleep(ttl)
			s.complete(a, answer(2))
			require.Equal(t, "a", s.lookup(a.Key).Token)
		}},
		{"a forgotten claim cannot be extended, but completed", func(t *testing.T, s bundle) {
			s.win(a)
			s.forget(a.Key)
			require.ErrorIs(t, s.extend(a), idempotency.ErrClaimLost)
			require.Nil(t, s.lookup(a.Key))
			s.complete(a, answer(1))
			require.NotNil(t, s.lookup(a.Key).Response)
			s.forget(a.Key)
			s.forget(a.Key)
			require.Nil(t, s.lookup(a.Key))
		}},
		{"a TTL shorter than what is left of the lease", func(t *testing.T, s bundle) {
			s.win(held(a, time.Hour))
			require.NoError(t, s.Complete(t.Context(), a, answer(1), time.Second))
			time.Sleep(time.Second)
			s.win(b)
		}},
		{"no response is an error", func(t *testing.T, s bundle) {
			s.win(a)
			require.ErrorContains(t, s.Complete(t.Context(), a, nil, ttl), "memstore: Complete needs a response")
			require.Nil(t, s.lookup(a.Key).Response)
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { tt.run(t, setup(t)) })
		})
	}
}

// TestDurations: from the shortest to those that overflow, a key is blocked for
// as long as was said and its memory is given back a moment later.
func TestDurations(t *testing.T) {
	const slack = 100 * time.Millisecond
	for _, d := range []time.Duration{time.Nanosecond, time.Millisecond, 500 * time.Millisecond, 1500 * time.Millisecond, 400 * 24 * time.Hour} {
		t.Run(d.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := setup(t)
				time.Sleep(7 * time.Second) // not at the store's zero
				for _, run := range []struct {
					name  string
					start func() error
					total time.Duration
				}{
					{"lease", func() error { _, err := s.Claim(t.Context(), a, d); return err }, d},
					{"hold", func() error { _, err := s.Claim(t.Context(), held(a, d), d); return err }, 2 * d},
					{"ttl", func() error { return s.Complete(t.Context(), a, answer(1), d) }, d},
					{"ttl within a longer lease", func() error {
						if _, err := s.Claim(t.Context(), held(a, d), 2*d); err != nil {
							return err
						}
						return s.Complete(t.Context(), a, answer(1), d)
					}, d},
				} {
					require.NoError(t, run.start())
					require.NotNil(t, s.lookup(a.Key), run.name)
					time.Sleep(run.total - 1)
					require.NotNil(t, s.lookup(a.Key), run.name)
					time.Sleep(time.Nanosecond)
					require.Nil(t, s.lookup(a.Key), run.name)
					time.Sleep(slack)
					synctest.Wait()
					require.Zero(t, s.Len(), run.name)
					require.Zero(t, s.Bytes(), run.name)
				}
			})
		})
	}
	t.Run("overflow", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			const forever = time.Duration(1<<63 - 1)
			s := setup(t)
			time.Sleep(time.Hour)
			rec, err := s.Claim(t.Context(), held(a, forever), forever)
			require.NoError(t, err)
			require.Nil(t, rec)
			time.Sleep(100 * 365 * 24 * time.Hour)
			require.Equal(t, "a", s.claim(b).Token)
			require.NoError(t, s.Extend(t.Context(), held(a, forever), time.Second))
			time.Sleep(time.Second)
			require.True(t, s.claim(b).Lapsed)
			require.NoError(t, s.Complete(t.Context(), a, answer(1), forever))
			time.Sleep(50 * 365 * 24 * time.Hour)
			require.Positive(t, s.claim(b).ExpiresIn)
			require.NotNil(t, s.claim(b).Response)
			s.forget(a.Key)
			require.Zero(t, s.Len())
		})
	})
	t.Run("none or negative", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := setup(t)
			for _, d := range []time.Duration{0, -1, -1 << 63} {
				rec, err := s.Claim(t.Context(), held(a, d), d)
				require.NoError(t, err)
				require.Nil(t, rec)
				require.Nil(t, s.lookup(a.Key))
				require.NoError(t, s.Complete(t.Context(), a, answer(1), d))
				require.Nil(t, s.lookup(a.Key))
			}
			time.Sleep(time.Second)
			synctest.Wait()
			require.Zero(t, s.Len())
		})
	})
}
