package storetest_test

import (
	"context"
	"errors"
	"time"

	"github.com/retrysafe/idempotency"
)

// waiterFaults break what Waiter says, which has no number.
func waiterFaults() []fault {
	type waitFunc = func(ctx context.Context, key idempotency.Key) error
	on := func(name string, wrap func(b *broken, next waitFunc) waitFunc) fault {
		return fault{name: name, rule: 0, make: func(b *broken) { b.wait = wrap(b, b.reference.Wait) }}
	}
	untilDone := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	return []fault{
		on("wait never ends", func(*broken, waitFunc) waitFunc {
			return func(ctx context.Context, _ idempotency.Key) error { return untilDone(ctx) }
		}),
		on("wait returns at once", func(*broken, waitFunc) waitFunc {
			return func(ctx context.Context, _ idempotency.Key) error { return ctx.Err() }
		}),
		on("wait misses the lapse", func(b *broken, _ waitFunc) waitFunc {
			return func(ctx context.Context, key idempotency.Key) error {
				for {
					b.mu.Lock()
					changed := b.changed
					e := b.get(key)
					b.mu.Unlock()
					if e == nil || e.response != nil {
						return ctx.Err()
					}
					select {
					case <-changed:
					case <-ctx.Done():
						return ctx.Err()
					}
				}
			}
		}),
		on("wait says nil when its context ends", func(_ *broken, next waitFunc) waitFunc {
			return func(ctx context.Context, key idempotency.Key) error { _ = next(ctx, key); return nil }
		}),
		on("wait looks every other second", func(_ *broken, next waitFunc) waitFunc {
			return func(ctx context.Context, key idempotency.Key) error {
				time.Sleep(2 * time.Second)
				return next(ctx, key)
			}
		}),
		on("wait waits for an absent key", func(b *broken, next waitFunc) waitFunc {
			return func(ctx context.Context, key idempotency.Key) error {
				if b.peek(key) == nil {
					return untilDone(ctx)
				}
				return next(ctx, key)
			}
		}),
	}
}

func lookupFaults() []fault {
	type lookupFunc = func(ctx context.Context, key idempotency.Key) (*idempotency.Record, error)
	on := func(name string, wrap func(b *broken, next lookupFunc) lookupFunc) fault {
		return fault{name: name, rule: 0, make: func(b *broken) { b.lookup = wrap(b, b.reference.Lookup) }}
	}
	return []fault{
		on("lookup finds nothing", func(*broken, lookupFunc) lookupFunc {
			return func(ctx context.Context, _ idempotency.Key) (*idempotency.Record, error) { return nil, ctx.Err() }
		}),
		on("lookup claims", func(b *broken, next lookupFunc) lookupFunc {
			return func(ctx context.Context, key idempotency.Key) (*idempotency.Record, error) {
				rec, err := next(ctx, key)
				if rec == nil && err == nil {
					_, err = b.reference.Claim(ctx, idempotency.Claim{Key: key, Token: "operator"}, time.Hour)
				}
				return rec, err
			}
		}),
		on("lookup finds what has run out", func(b *broken, _ lookupFunc) lookupFunc {
			return func(ctx context.Context, key idempotency.Key) (*idempotency.Record, error) {
				b.mu.Lock()
				defer b.mu.Unlock()
				if e := b.entries[key]; e != nil {
					return b.record(e), ctx.Err()
				}
				return nil, ctx.Err()
			}
		}),
		on("lookup shares memory", func(b *broken, next lookupFunc) lookupFunc {
			return func(ctx context.Context, key idempotency.Key) (*idempotency.Record, error) {
				rec, err := next(ctx, key)
				if rec != nil {
					b.edit(key, func(e *entry) { rec.Response = e.response })
				}
				return rec, err
			}
		}),
		on("lookup with a done context says nothing", func(_ *broken, next lookupFunc) lookupFunc {
			return func(ctx context.Context, key idempotency.Key) (*idempotency.Record, error) {
				if ctx.Err() != nil {
					return nil, nil
				}
				return next(ctx, key)
			}
		}),
	}
}

func forgetFaults() []fault {
	return []fault{
		{name: "forgetting an absent key is an error", rule: 0, make: func(b *broken) {
			b.forget = func(ctx context.Context, key idempotency.Key) error {
				if b.peek(key) == nil {
					return errors.New("no such key")
				}
				return b.reference.Forget(ctx, key)
			}
		}},
		{name: "forget leaves a running claim", rule: 0, make: func(b *broken) {
			b.forget = func(ctx context.Context, key idempotency.Key) error {
				if running(b.peek(key)) {
					return ctx.Err()
				}
				return b.reference.Forget(ctx, key)
			}
		}},
		{name: "forget forgets everything", rule: 0, make: func(b *broken) {
			b.forget = func(ctx context.Context, key idempotency.Key) error {
				b.mu.Lock()
				defer b.mu.Unlock()
				clear(b.entries)
				return ctx.Err()
			}
		}},
		{name: "forget goes on with a done context", rule: 0, make: func(b *broken) {
			b.forget = func(ctx context.Context, key idempotency.Key) error {
				return errors.Join(b.reference.Forget(context.WithoutCancel(ctx), key), ctx.Err())
			}
		}},
	}
}
