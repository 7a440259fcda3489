package storetest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/retrysafe/idempotency"
)

func contextFaults() []fault {
	ignore := context.WithoutCancel
	return []fault{
		{name: "claim goes on with a done context", rule: 11, make: func(b *broken) {
			b.claim = func(ctx context.Context, c idempotency.Claim, lease time.Duration) (*idempotency.Record, error) {
				rec, err := b.reference.Claim(ignore(ctx), c, lease)
				return rec, errors.Join(err, ctx.Err())
			}
		}},
		{name: "claim with a done context says yes", rule: 11, make: func(b *broken) {
			b.claim = func(ctx context.Context, c idempotency.Claim, lease time.Duration) (*idempotency.Record, error) {
				if ctx.Err() != nil {
					return nil, nil
				}
				return b.reference.Claim(ctx, c, lease)
			}
		}},
		onExtend("extend goes on with a done context", 11, func(_ *broken, next extendFunc) extendFunc {
			return func(ctx context.Context, c idempotency.Claim, lease time.Duration) error {
				return errors.Join(next(ignore(ctx), c, lease), ctx.Err())
			}
		}),
		onComplete("complete goes on with a done context", 11, func(_ *broken, next completeFunc) completeFunc {
			return func(ctx context.Context, c idempotency.Claim, r *idempotency.Response, ttl time.Duration) error {
				return errors.Join(next(ignore(ctx), c, r, ttl), ctx.Err())
			}
		}),
		onRelease("release goes on with a done context", 11, func(_ *broken, next releaseFunc) releaseFunc {
			return func(ctx context.Context, c idempotency.Claim) error {
				return errors.Join(next(ignore(ctx), c), ctx.Err())
			}
		}),
		onRelease("only a cancelled context is done", 11, func(_ *broken, next releaseFunc) releaseFunc {
			return func(ctx context.Context, c idempotency.Claim) error {
				if errors.Is(ctx.Err(), context.DeadlineExceeded) {
					return errors.Join(next(ignore(ctx), c), ctx.Err())
				}
				return next(ctx, c)
			}
		}),
	}
}

// sharing is a store that keeps what it is given, or gives away what it keeps.
func sharing(name string, share func(kept, outside *idempotency.Response)) []fault {
	return []fault{
		onComplete("given "+name, 12, func(b *broken, next completeFunc) completeFunc {
			return func(ctx context.Context, c idempotency.Claim, r *idempotency.Response, ttl time.Duration) error {
				err := next(ctx, c, r, ttl)
				b.edit(c.Key, func(e *entry) {
					if e.claim.Token == c.Token && e.response != nil {
						share(e.response, r)
					}
				})
				return err
			}
		}),
		{name: "got " + name, rule: 12, make: func(b *broken) {
			b.claim = func(ctx context.Context, c idempotency.Claim, lease time.Duration) (*idempotency.Record, error) {
				rec, err := b.reference.Claim(ctx, c, lease)
				if rec != nil && rec.Response != nil {
					b.edit(c.Key, func(e *entry) { share(rec.Response, e.response) })
				}
				return rec, err
			}
		}},
	}
}

// memoryFaults leave out the case that is for the race detector, which would find
// them and fail our own test.
func memoryFaults() []fault {
	all := sharedMemoryFaults()
	for i := range all {
		all[i].without = []string{"everything at once on a few keys"}
	}
	return all
}

// scratchFaults are about calls that get in each other's way.
func scratchFaults() []fault {
	return []fault{
		onComplete("all calls use one buffer", 12, func(_ *broken, next completeFunc) completeFunc {
			var mu sync.Mutex
			var buffer *idempotency.Response
			return func(ctx context.Context, c idempotency.Claim, r *idempotency.Response, ttl time.Duration) error {
				mu.Lock()
				buffer = r.Clone()
				mu.Unlock()
				time.Sleep(time.Microsecond)
				mu.Lock()
				defer mu.Unlock()
				return next(ctx, c, buffer, ttl)
			}
		}),
	}
}

func sharedMemoryFaults() []fault {
	all := []fault{{name: "records are shared", rule: 12, make: func(b *broken) {
		var given sync.Map
		b.claim = func(ctx context.Context, c idempotency.Claim, lease time.Duration) (*idempotency.Record, error) {
			rec, err := b.reference.Claim(ctx, c, lease)
			if rec != nil {
				first, _ := given.LoadOrStore(fmt.Sprint(rec.Token, running(rec)), rec)
				rec = first.(*idempotency.Record)
			}
			return rec, err
		}
	}}}
	all = append(all, sharing("bodies are shared", func(kept, outside *idempotency.Response) {
		kept.Body = outside.Body
	})...)
	all = append(all, sharing("headers are shared", func(kept, outside *idempotency.Response) {
		kept.Header = outside.Header
	})...)
	all = append(all, sharing("header values are shared", func(kept, outside *idempotency.Response) {
		for name := range kept.Header {
			kept.Header[name] = outside.Header[name]
		}
	})...)
	return append(all, sharing("trailers are shared", func(kept, outside *idempotency.Response) {
		kept.Trailer = outside.Trailer
	})...)
}

// evicting is a store that makes room by throwing something away.
func evicting(name string, victim func(b *broken, e *entry) bool) fault {
	return beforeClaim(name, 13, func(b *broken, c *idempotency.Claim, _ *time.Duration) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if len(b.entries) < 100 {
			return
		}
		for key, e := range b.entries {
			if victim(b, e) {
				delete(b.entries, key)
			}
		}
	})
}

// mixing is a store that takes different keys for the same.
func mixing(name string, spell func(key idempotency.Key) string) fault {
	return fault{name: name, rule: 13, make: func(b *broken) {
		same := func(c idempotency.Claim) idempotency.Claim {
			c.Key = idempotency.Key{Value: spell(c.Key)}
			return c
		}
		b.claim = func(ctx context.Context, c idempotency.Claim, lease time.Duration) (*idempotency.Record, error) {
			return b.reference.Claim(ctx, same(c), lease)
		}
		b.extend = func(ctx context.Context, c idempotency.Claim, lease time.Duration) error {
			return b.reference.Extend(ctx, same(c), lease)
		}
		b.complete = func(ctx context.Context, c idempotency.Claim, r *idempotency.Response, ttl time.Duration) error {
			return b.reference.Complete(ctx, same(c), r, ttl)
		}
		b.release = func(ctx context.Context, c idempotency.Claim) error { return b.reference.Release(ctx, same(c)) }
		b.wait = func(ctx context.Context, key idempotency.Key) error {
			return b.reference.Wait(ctx, same(idempotency.Claim{Key: key}).Key)
		}
		b.lookup = func(ctx context.Context, key idempotency.Key) (*idempotency.Record, error) {
			return b.reference.Lookup(ctx, same(idempotency.Claim{Key: key}).Key)
		}
		b.forget = func(ctx context.Context, key idempotency.Key) error {
			return b.reference.Forget(ctx, same(idempotency.Claim{Key: key}).Key)
		}
	}}
}

func roomFaults() []fault {
	join := func(sep string) func(key idempotency.Key) string {
		return func(key idempotency.Key) string { return key.User + sep + key.Endpoint + sep + key.Value }
	}
	return []fault{
		evicting("a running claim is evicted", func(b *broken, e *entry) bool { return e.response == nil && !b.lapsed(e) }),
		evicting("a live record is evicted", func(_ *broken, e *entry) bool { return e.response != nil }),
		evicting("a lapsed claim is evicted", func(b *broken, e *entry) bool { return b.lapsed(e) }),
		mixing("keys are joined", join("")),
		mixing("keys are joined with a colon", join(":")),
		mixing("keys are joined with a NUL", join("\x00")),
		mixing("keys are joined with a bar", join("|")),
		mixing("case does not count", func(key idempotency.Key) string { return strings.ToLower(key.String()) }),
		mixing("keys are cut", func(key idempotency.Key) string { return key.String()[:min(255, len(key.String()))] }),
		mixing("spaces are trimmed", func(key idempotency.Key) string { return strings.TrimSpace(key.String()) }),
		mixing("the user does not count", func(key idempotency.Key) string { return key.Endpoint + "\x00" + key.Value }),
		mixing("invalid UTF-8 is mended", func(key idempotency.Key) string {
			return strings.ToValidUTF8(key.User+"\x00\x01"+key.Endpoint+"\x00\x01"+key.Value, "?")
		}),
	}
}

// fullFaults are found on the small store only.
func fullFaults() []fault {
	return []fault{
		onRecord("a full store has another error", 13, nil).with(func(b *broken) {
			b.claim = func(ctx context.Context, c idempotency.Claim, lease time.Duration) (*idempotency.Record, error) {
				rec, err := b.reference.Claim(ctx, c, lease)
				if errors.Is(err, idempotency.ErrStoreFull) {
					err = errors.New("no room")
				}
				return rec, err
			}
		}),
		beforeClaim("a full store makes room", 13, func(b *broken, c *idempotency.Claim, _ *time.Duration) {
			b.mu.Lock()
			defer b.mu.Unlock()
			for key := range b.entries {
				if len(b.entries) >= b.room && b.get(c.Key) == nil {
					delete(b.entries, key)
				}
			}
		}),
		onComplete("complete fails in a full store", 13, func(b *broken, next completeFunc) completeFunc {
			return func(ctx context.Context, c idempotency.Claim, r *idempotency.Response, ttl time.Duration) error {
				b.mu.Lock()
				full := b.isFull()
				b.mu.Unlock()
				if full {
					return idempotency.ErrStoreFull
				}
				return next(ctx, c, r, ttl)
			}
		}),
		onExtend("extend fails in a full store", 13, func(b *broken, next extendFunc) extendFunc {
			return func(ctx context.Context, c idempotency.Claim, lease time.Duration) error {
				b.mu.Lock()
				full := b.isFull()
				b.mu.Unlock()
				if full {
					return idempotency.ErrStoreFull
				}
				return next(ctx, c, lease)
			}
		}),
	}
}

// roomlessFaults are found on the small store only, too.
func roomlessFaults() []fault {
	return []fault{
		{name: "a refused claim stays", rule: 13, make: func(b *broken) {
			b.claim = func(ctx context.Context, c idempotency.Claim, lease time.Duration) (*idempotency.Record, error) {
				rec, err := b.reference.Claim(ctx, c, lease)
				if errors.Is(err, idempotency.ErrStoreFull) {
					b.mu.Lock()
					b.put(&entry{claim: idempotency.Claim{Key: c.Key, Token: "ghost"}}, lease)
					b.mu.Unlock()
				}
				return rec, err
			}
		}},
		{name: "a full store refuses its holders", rule: 13, make: func(b *broken) {
			b.claim = func(ctx context.Context, c idempotency.Claim, lease time.Duration) (*idempotency.Record, error) {
				b.mu.Lock()
				full := b.isFull()
				b.mu.Unlock()
				if full {
					return nil, idempotency.ErrStoreFull
				}
				return b.reference.Claim(ctx, c, lease)
			}
		}},
		{name: "lapsed claims take up room for ever", rule: 13, make: func(b *broken) {
			var mu sync.Mutex
			claimed := 0
			b.claim = func(ctx context.Context, c idempotency.Claim, lease time.Duration) (*idempotency.Record, error) {
				mu.Lock()
				defer mu.Unlock()
				if b.peek(c.Key) == nil && b.room > 0 && claimed >= b.room {
					return nil, idempotency.ErrStoreFull
				}
				rec, err := b.reference.Claim(ctx, c, lease)
				if rec == nil && err == nil {
					claimed++
				}
				return rec, err
			}
		}},
	}
}
