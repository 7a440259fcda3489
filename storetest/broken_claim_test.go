package storetest_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retrysafe/idempotency"
)

// broken is the correct store with some of its methods replaced.
type broken struct {
	*reference
	claim    func(ctx context.Context, c idempotency.Claim, lease time.Duration) (*idempotency.Record, error)
	extend   func(ctx context.Context, c idempotency.Claim, lease time.Duration) error
	complete func(ctx context.Context, c idempotency.Claim, r *idempotency.Response, ttl time.Duration) error
	release  func(ctx context.Context, c idempotency.Claim) error
	wait     func(ctx context.Context, key idempotency.Key) error
	lookup   func(ctx context.Context, key idempotency.Key) (*idempotency.Record, error)
	forget   func(ctx context.Context, key idempotency.Key) error
}

func (b *broken) Claim(ctx context.Context, c idempotency.Claim, lease time.Duration) (*idempotency.Record, error) {
	if b.claim != nil {
		return b.claim(ctx, c, lease)
	}
	return b.reference.Claim(ctx, c, lease)
}

func (b *broken) Extend(ctx context.Context, c idempotency.Claim, lease time.Duration) error {
	if b.extend != nil {
		return b.extend(ctx, c, lease)
	}
	return b.reference.Extend(ctx, c, lease)
}

func (b *broken) Complete(
	ctx context.Context, c idempotency.Claim, r *idempotency.Response, ttl time.Duration,
) error {
	if b.complete != nil {
		return b.complete(ctx, c, r, ttl)
	}
	return b.reference.Complete(ctx, c, r, ttl)
}

func (b *broken) Release(ctx context.Context, c idempotency.Claim) error {
	if b.release != nil {
		return b.release(ctx, c)
	}
	return b.reference.Release(ctx, c)
}

func (b *broken) Wait(ctx context.Context, key idempotency.Key) error {
	if b.wait != nil {
		return b.wait(ctx, key)
	}
	return b.reference.Wait(ctx, key)
}

func (b *broken) Lookup(ctx context.Context, key idempotency.Key) (*idempotency.Record, error) {
	if b.lookup != nil {
		return b.lookup(ctx, key)
	}
	return b.reference.Lookup(ctx, key)
}

func (b *broken) Forget(ctx context.Context, key idempotency.Key) error {
	if b.forget != nil {
		return b.forget(ctx, key)
	}
	return b.reference.Forget(ctx, key)
}

// peek is Lookup without a context.
func (s *reference) peek(key idempotency.Key) *idempotency.Record {
	rec, _ := s.Lookup(context.Background(), key)
	return rec
}

// edit changes what is kept for key, if anything is.
func (s *reference) edit(key idempotency.Key, change func(e *entry)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.get(key); e != nil {
		change(e)
	}
}

// fault is one way to break the contract.
type fault struct {
	name string
	rule int
	make func(b *broken)

	makeTx  func(b *brokenTx) // instead of make: breaks a TxStore
	without []string          // cases left out
}

// onRecord is a fault in what Claim returns for a key that is taken.
func onRecord(name string, rule int, change func(c idempotency.Claim, rec *idempotency.Record)) fault {
	return fault{name: name, rule: rule, make: func(b *broken) {
		b.claim = func(ctx context.Context, c idempotency.Claim, lease time.Duration) (*idempotency.Record, error) {
			rec, err := b.reference.Claim(ctx, c, lease)
			if rec != nil {
				change(c, rec)
			}
			return rec, err
		}
	}}
}

// beforeClaim is a fault in what Claim does first.
func beforeClaim(
	name string, rule int, first func(b *broken, c *idempotency.Claim, lease *time.Duration),
) fault {
	return fault{name: name, rule: rule, make: func(b *broken) {
		b.claim = func(ctx context.Context, c idempotency.Claim, lease time.Duration) (*idempotency.Record, error) {
			if ctx.Err() == nil {
				first(b, &c, &lease)
			}
			return b.reference.Claim(ctx, c, lease)
		}
	}}
}

func running(rec *idempotency.Record) bool {
	return rec != nil && rec.Response == nil && !rec.Lapsed
}

func claimFaults() []fault {
	return []fault{
		beforeClaim("claim is not atomic", 1, func(b *broken, c *idempotency.Claim, _ *time.Duration) {
			if b.peek(c.Key) == nil {
				time.Sleep(time.Microsecond) // between the look and the claim
				_ = b.reference.Forget(context.Background(), c.Key)
			}
		}),
		beforeClaim("claim of a released key is not atomic", 1, func(b *broken, c *idempotency.Claim, _ *time.Duration) {
			b.mu.Lock()
			_, free := b.entries[c.Key]
			b.mu.Unlock()
			if !free {
				time.Sleep(time.Microsecond)
				_ = b.reference.Forget(context.Background(), c.Key)
			}
		}),
		onRecord("nobody wins a second time", 1, func(idempotency.Claim, *idempotency.Record) {}).with(func(b *broken) {
			b.release = func(ctx context.Context, c idempotency.Claim) error { return ctx.Err() }
		}),
		beforeClaim("own claim is refused", 2, func(*broken, *idempotency.Claim, *time.Duration) {}).with(refuseOwn),
		beforeClaim("own claim shortens the lease", 2, func(b *broken, c *idempotency.Claim, lease *time.Duration) {
			b.edit(c.Key, func(e *entry) {
				if e.claim.Token == c.Token && e.response == nil && !b.lapsed(e) {
					b.put(e, *lease)
				}
			})
		}),
		beforeClaim("own lapsed claim is refused", 2, func(b *broken, c *idempotency.Claim, _ *time.Duration) {
			if rec := b.peek(c.Key); rec != nil && rec.Lapsed && rec.Token == c.Token {
				c.Token = "somebody else"
			}
		}),
		fault{name: "own lapsed claim is granted and left lapsed", rule: 2, make: func(b *broken) {
			b.claim = func(ctx context.Context, c idempotency.Claim, lease time.Duration) (*idempotency.Record, error) {
				if rec := b.peek(c.Key); rec != nil && rec.Lapsed && rec.Token == c.Token {
					return nil, ctx.Err()
				}
				return b.reference.Claim(ctx, c, lease)
			}
		}},
		fault{name: "claim after the own complete runs again", rule: 2, make: func(b *broken) {
			b.claim = func(ctx context.Context, c idempotency.Claim, lease time.Duration) (*idempotency.Record, error) {
				rec, err := b.reference.Claim(ctx, c, lease)
				if rec != nil && rec.Token == c.Token {
					return nil, err
				}
				return rec, err
			}
		}},
		beforeClaim("claim with Replaces of an own running claim is refused", 2,
			func(b *broken, c *idempotency.Claim, _ *time.Duration) {
				if c.Replaces != "" && c.Replaces != c.Token && running(b.peek(c.Key)) {
					c.Token = "somebody else"
				}
			}),
	}
}

// tokenFaults are about tokens that come again.
func tokenFaults() []fault {
	return []fault{
		{name: "a completed key is won again now and then", rule: 1, make: func(b *broken) {
			var asked atomic.Int32
			b.claim = func(ctx context.Context, c idempotency.Claim, lease time.Duration) (*idempotency.Record, error) {
				rec, err := b.reference.Claim(ctx, c, lease)
				if rec != nil && rec.Response != nil && asked.Add(1)%10 == 0 {
					return nil, err
				}
				return rec, err
			}
		}},
		{name: "a token is good for one claim", rule: 2, make: func(b *broken) {
			var used sync.Map
			b.claim = func(ctx context.Context, c idempotency.Claim, lease time.Duration) (*idempotency.Record, error) {
				if _, again := used.LoadOrStore(c.Token, true); again && b.peek(c.Key) == nil {
					return nil, errors.New("the token has been used")
				}
				return b.reference.Claim(ctx, c, lease)
			}
		}},
	}
}

// with breaks the store further.
func (f fault) with(further func(b *broken)) fault {
	first := f.make
	f.make = func(b *broken) { first(b); further(b) }
	return f
}

func refuseOwn(b *broken) {
	b.claim = func(ctx context.Context, c idempotency.Claim, lease time.Duration) (*idempotency.Record, error) {
		if rec := b.peek(c.Key); running(rec) {
			return rec, ctx.Err()
		}
		return b.reference.Claim(ctx, c, lease)
	}
}

func loserFaults() []fault {
	return []fault{
		onRecord("the loser's own fingerprint is returned", 3, func(c idempotency.Claim, rec *idempotency.Record) {
			rec.Fingerprint = c.Fingerprint
		}),
		onRecord("the loser's own token is returned", 3, func(c idempotency.Claim, rec *idempotency.Record) {
			rec.Token = c.Token
		}),
		onRecord("the holder's token is hidden", 3, func(_ idempotency.Claim, rec *idempotency.Record) { rec.Token = "" }),
		onRecord("the time left is zero", 3, func(_ idempotency.Claim, rec *idempotency.Record) { rec.ExpiresIn = 0 }),
		onRecord("the time left is the whole lease and more", 3, func(_ idempotency.Claim, rec *idempotency.Record) {
			rec.ExpiresIn += time.Second
		}),
		onRecord("the time left is in milliseconds taken for nanoseconds", 3,
			func(_ idempotency.Claim, rec *idempotency.Record) { rec.ExpiresIn /= 1e6 }),
		beforeClaim("a losing claim extends the lease", 3, func(b *broken, c *idempotency.Claim, lease *time.Duration) {
			b.edit(c.Key, func(e *entry) {
				if e.response == nil && !b.lapsed(e) && e.claim.Token != c.Token {
					b.put(e, max(*lease, e.live.Sub(b.now())))
				}
			})
		}),
		beforeClaim("a losing claim shortens the lease", 3, func(b *broken, c *idempotency.Claim, lease *time.Duration) {
			b.edit(c.Key, func(e *entry) {
				if e.response == nil && !b.lapsed(e) && e.claim.Token != c.Token {
					b.put(e, min(*lease, e.live.Sub(b.now())))
				}
			})
		}),
		beforeClaim("a losing claim sets the Hold", 3, func(b *broken, c *idempotency.Claim, _ *time.Duration) {
			b.edit(c.Key, func(e *entry) {
				if e.response == nil && e.claim.Token != c.Token {
					e.claim.Hold = c.Hold
					e.gone = e.live.Add(c.Hold)
				}
			})
		}),
		beforeClaim("a losing claim prolongs the record", 3, func(b *broken, c *idempotency.Claim, lease *time.Duration) {
			b.edit(c.Key, func(e *entry) {
				if e.response != nil {
					b.put(e, max(*lease, e.live.Sub(b.now())))
				}
			})
		}),
		beforeClaim("a losing claim writes its fingerprint", 3, func(b *broken, c *idempotency.Claim, _ *time.Duration) {
			b.edit(c.Key, func(e *entry) { e.claim.Fingerprint = c.Fingerprint })
		}),
	}
}

func timeFaults() []fault {
	setTimes := func(name string, rule int, lease func(c *idempotency.Claim, d time.Duration) time.Duration) fault {
		return beforeClaim(name, rule, func(_ *broken, c *idempotency.Claim, d *time.Duration) { *d = lease(c, *d) })
	}
	return []fault{
		setTimes("leases never end", 4, func(_ *idempotency.Claim, d time.Duration) time.Duration {
			return max(d, time.Minute)
		}),
		setTimes("leases are whole seconds, rounded up", 4, func(_ *idempotency.Claim, d time.Duration) time.Duration {
			return (d + time.Second - 1).Truncate(time.Second)
		}),
		setTimes("leases are whole seconds, rounded down", 4, func(_ *idempotency.Claim, d time.Duration) time.Duration {
			return max(time.Millisecond, d.Truncate(time.Second))
		}),
		setTimes("leases are 32-bit milliseconds", 4, func(_ *idempotency.Claim, d time.Duration) time.Duration {
			return time.Duration(int32(d.Milliseconds())) * time.Millisecond
		}),
		setTimes("the Hold is forgotten", 10, func(c *idempotency.Claim, d time.Duration) time.Duration {
			c.Hold = 0
			return d
		}),
		setTimes("the Hold never ends", 4, func(c *idempotency.Claim, d time.Duration) time.Duration {
			if c.Hold > 0 {
				c.Hold = 365 * 24 * time.Hour
			}
			return d
		}),
		beforeClaim("the reader's lease decides", 4, func(b *broken, c *idempotency.Claim, lease *time.Duration) {
			b.edit(c.Key, func(e *entry) {
				if e.claim.Token != c.Token && e.response == nil && *lease == time.Millisecond {
					delete(b.entries, c.Key)
				}
			})
		}),
		{name: "records never expire", rule: 4, make: func(b *broken) {
			b.complete = func(ctx context.Context, c idempotency.Claim, r *idempotency.Response, ttl time.Duration) error {
				return b.reference.Complete(ctx, c, r, max(ttl, time.Minute))
			}
		}},
		{name: "the lease goes on after complete", rule: 4, make: func(b *broken) {
			b.complete = func(ctx context.Context, c idempotency.Claim, r *idempotency.Response, ttl time.Duration) error {
				if rec := b.peek(c.Key); rec != nil {
					ttl = rec.ExpiresIn
				}
				return b.reference.Complete(ctx, c, r, ttl)
			}
		}},
	}
}
