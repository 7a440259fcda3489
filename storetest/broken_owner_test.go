package storetest_test

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/retrysafe/idempotency"
)

type (
	extendFunc  = func(ctx context.Context, c idempotency.Claim, lease time.Duration) error
	releaseFunc = func(ctx context.Context, c idempotency.Claim) error
)

func onExtend(name string, rule int, wrap func(b *broken, next extendFunc) extendFunc) fault {
	return fault{name: name, rule: rule, make: func(b *broken) { b.extend = wrap(b, b.reference.Extend) }}
}

func onRelease(name string, rule int, wrap func(b *broken, next releaseFunc) releaseFunc) fault {
	return fault{name: name, rule: rule, make: func(b *broken) { b.release = wrap(b, b.reference.Release) }}
}

// extendEdits is a store whose Extend changes what is there in some state.
func extendEdits(name string, change func(b *broken, c idempotency.Claim, e *entry, lease time.Duration)) fault {
	return onExtend(name, 8, func(b *broken, next extendFunc) extendFunc {
		return func(ctx context.Context, c idempotency.Claim, lease time.Duration) error {
			if ctx.Err() == nil {
				b.edit(c.Key, func(e *entry) { change(b, c, e, lease) })
			}
			return next(ctx, c, lease)
		}
	})
}

// extendResults is a store whose Extend does right and returns another error.
func extendResults(name string, change func(c idempotency.Claim, rec *idempotency.Record, err error) error) fault {
	return onExtend(name, 8, func(b *broken, next extendFunc) extendFunc {
		return func(ctx context.Context, c idempotency.Claim, lease time.Duration) error {
			err := next(ctx, c, lease)
			return change(c, b.peek(c.Key), err)
		}
	})
}

func extendFaults() []fault {
	return []fault{
		extendEdits("extend by a stranger", func(b *broken, c idempotency.Claim, e *entry, lease time.Duration) {
			if e.response == nil && e.claim.Token != c.Token {
				b.put(e, lease)
			}
		}),
		extendEdits("extend by a token that begins like the holder's",
			func(b *broken, c idempotency.Claim, e *entry, lease time.Duration) {
				if e.response == nil && strings.HasPrefix(c.Token, e.claim.Token) {
					b.put(e, lease)
				}
			}),
		extendEdits("extend touches the own record", func(b *broken, c idempotency.Claim, e *entry, lease time.Duration) {
			if e.response != nil && e.claim.Token == c.Token {
				b.put(e, lease)
			}
		}),
		extendEdits("extend makes a claim of the own record", func(b *broken, c idempotency.Claim, e *entry, lease time.Duration) {
			if e.claim.Token == c.Token {
				e.response = nil
			}
		}),
	}
}

func heartbeatFaults() []fault {
	return []fault{
		onExtend("extend creates", 8, func(b *broken, next extendFunc) extendFunc {
			return func(ctx context.Context, c idempotency.Claim, lease time.Duration) error {
				if ctx.Err() == nil && b.peek(c.Key) == nil {
					_, err := b.reference.Claim(ctx, c, lease)
					return err
				}
				return next(ctx, c, lease)
			}
		}),
		onExtend("extend does not set the Hold", 8, func(b *broken, next extendFunc) extendFunc {
			return func(ctx context.Context, c idempotency.Claim, lease time.Duration) error {
				b.edit(c.Key, func(e *entry) { c.Hold = e.claim.Hold })
				return next(ctx, c, lease)
			}
		}),
		onExtend("extend only lengthens", 8, func(b *broken, next extendFunc) extendFunc {
			return func(ctx context.Context, c idempotency.Claim, lease time.Duration) error {
				if rec := b.peek(c.Key); running(rec) {
					lease = max(lease, rec.ExpiresIn)
				}
				return next(ctx, c, lease)
			}
		}),
		onExtend("extend adds to what is left", 8, func(b *broken, next extendFunc) extendFunc {
			return func(ctx context.Context, c idempotency.Claim, lease time.Duration) error {
				if rec := b.peek(c.Key); running(rec) {
					lease += rec.ExpiresIn
				}
				return next(ctx, c, lease)
			}
		}),
		onExtend("extend of the own lapsed claim is refused", 8, func(b *broken, next extendFunc) extendFunc {
			return func(ctx context.Context, c idempotency.Claim, lease time.Duration) error {
				if rec := b.peek(c.Key); rec != nil && rec.Lapsed {
					return idempotency.ErrClaimLost
				}
				return next(ctx, c, lease)
			}
		}),
		extendResults("extend does not say that the claim is lost", func(_ idempotency.Claim, _ *idempotency.Record, err error) error {
			if errors.Is(err, idempotency.ErrClaimLost) {
				return nil
			}
			return err
		}),
		extendResults("extend after the own complete is refused", func(c idempotency.Claim, rec *idempotency.Record, err error) error {
			if rec != nil && rec.Token == c.Token && rec.Response != nil {
				return idempotency.ErrClaimLost
			}
			return err
		}),
	}
}

func releaseFaults() []fault {
	// removes is a store whose Release removes too much.
	removes := func(name string, rule int, state func(c idempotency.Claim, rec *idempotency.Record) bool) fault {
		return onRelease(name, rule, func(b *broken, next releaseFunc) releaseFunc {
			return func(ctx context.Context, c idempotency.Claim) error {
				if rec := b.peek(c.Key); ctx.Err() == nil && rec != nil && state(c, rec) {
					return b.reference.Forget(ctx, c.Key)
				}
				return next(ctx, c)
			}
		})
	}
	return []fault{
		removes("release by a stranger", 9, func(c idempotency.Claim, rec *idempotency.Record) bool {
			return rec.Token != c.Token && running(rec)
		}),
		removes("release by a token that begins like the holder's", 9,
			func(c idempotency.Claim, rec *idempotency.Record) bool { return strings.HasPrefix(rec.Token, c.Token) }),
		removes("release of another's lapsed claim", 9, func(c idempotency.Claim, rec *idempotency.Record) bool {
			return rec.Token != c.Token && rec.Lapsed
		}),
		removes("release by Replaces", 9, func(c idempotency.Claim, rec *idempotency.Record) bool {
			return rec.Token == c.Replaces
		}),
		removes("release of the own record", 9, func(c idempotency.Claim, rec *idempotency.Record) bool {
			return rec.Token == c.Token && rec.Response != nil
		}),
		removes("release of another's record", 9, func(c idempotency.Claim, rec *idempotency.Record) bool {
			return rec.Token != c.Token && rec.Response != nil
		}),
		onRelease("release of nothing is an error", 9, func(b *broken, next releaseFunc) releaseFunc {
			return func(ctx context.Context, c idempotency.Claim) error {
				if rec := b.peek(c.Key); rec == nil || rec.Token != c.Token {
					return idempotency.ErrClaimLost
				}
				return next(ctx, c)
			}
		}),
		onRelease("release leaves the own lapsed claim", 9, func(b *broken, next releaseFunc) releaseFunc {
			return func(ctx context.Context, c idempotency.Claim) error {
				if rec := b.peek(c.Key); rec != nil && rec.Lapsed {
					return nil
				}
				return next(ctx, c)
			}
		}),
		onRelease("release lapses the claim into its Hold", 9, func(b *broken, next releaseFunc) releaseFunc {
			return func(ctx context.Context, c idempotency.Claim) error {
				if rec := b.peek(c.Key); running(rec) && rec.Token == c.Token {
					b.edit(c.Key, func(e *entry) { b.put(e, 0) })
					return nil
				}
				return next(ctx, c)
			}
		}),
	}
}

func takeoverFaults() []fault {
	// replaces is a store that reads something else for Replaces.
	replaces := func(name string, read func(c idempotency.Claim, rec *idempotency.Record) string) fault {
		return beforeClaim(name, 10, func(b *broken, c *idempotency.Claim, _ *time.Duration) {
			if rec := b.peek(c.Key); rec != nil {
				c.Replaces = read(*c, rec)
			}
		})
	}
	return []fault{
		replaces("takeover without Replaces", func(_ idempotency.Claim, rec *idempotency.Record) string { return rec.Token }),
		replaces("takeover by any Replaces", func(c idempotency.Claim, rec *idempotency.Record) string {
			if c.Replaces == "" {
				return ""
			}
			return rec.Token
		}),
		replaces("no takeover at all", func(idempotency.Claim, *idempotency.Record) string { return "" }),
		beforeClaim("takeover of a running claim", 10, func(b *broken, c *idempotency.Claim, _ *time.Duration) {
			b.edit(c.Key, func(e *entry) {
				if e.response == nil && e.claim.Token == c.Replaces && e.claim.Token != c.Token {
					delete(b.entries, c.Key)
				}
			})
		}),
		beforeClaim("takeover of a record", 10, func(b *broken, c *idempotency.Claim, _ *time.Duration) {
			b.edit(c.Key, func(e *entry) {
				if e.response != nil && e.claim.Token == c.Replaces && e.claim.Token != c.Token {
					delete(b.entries, c.Key)
				}
			})
		}),
		beforeClaim("takeover is not atomic", 10, func(b *broken, c *idempotency.Claim, _ *time.Duration) {
			if rec := b.peek(c.Key); rec != nil && rec.Lapsed && rec.Token == c.Replaces {
				time.Sleep(time.Microsecond) // between the look and the takeover
				_ = b.reference.Forget(context.Background(), c.Key)
			}
		}),
		beforeClaim("takeover keeps the former Hold", 10, func(b *broken, c *idempotency.Claim, _ *time.Duration) {
			b.edit(c.Key, func(e *entry) {
				if b.lapsed(e) && e.claim.Token == c.Replaces {
					c.Hold = e.claim.Hold
				}
			})
		}),
		onRecord("Lapsed is not set", 10, func(_ idempotency.Claim, rec *idempotency.Record) { rec.Lapsed = false }),
		onRecord("Lapsed is set on a running claim", 10, func(_ idempotency.Claim, rec *idempotency.Record) {
			rec.Lapsed = rec.Response == nil
		}),
	}
}
