package storetest_test

import (
	"context"
	"encoding/json"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/retrysafe/idempotency"
)

type completeFunc = func(ctx context.Context, c idempotency.Claim, r *idempotency.Response, ttl time.Duration) error

// onComplete is a fault in Complete. next is the correct one.
func onComplete(name string, rule int, wrap func(b *broken, next completeFunc) completeFunc) fault {
	return fault{name: name, rule: rule, make: func(b *broken) { b.complete = wrap(b, b.reference.Complete) }}
}

// keepsOther is a store that keeps another response than it is given.
func keepsOther(name string, change func(r *idempotency.Response)) fault {
	return onComplete(name, 5, func(_ *broken, next completeFunc) completeFunc {
		return func(ctx context.Context, c idempotency.Claim, r *idempotency.Response, ttl time.Duration) error {
			r = r.Clone()
			change(r)
			return next(ctx, c, r, ttl)
		}
	})
}

func recordFaults() []fault {
	return []fault{
		onComplete("a gap between claim and record", 5, func(b *broken, next completeFunc) completeFunc {
			return func(ctx context.Context, c idempotency.Claim, r *idempotency.Response, ttl time.Duration) error {
				if rec := b.peek(c.Key); running(rec) && rec.Token == c.Token && ctx.Err() == nil {
					_ = b.Forget(ctx, c.Key)
					time.Sleep(time.Microsecond)
				}
				return next(ctx, c, r, ttl)
			}
		}),
		onComplete("the record is written in two steps", 5, func(b *broken, next completeFunc) completeFunc {
			return func(ctx context.Context, c idempotency.Claim, r *idempotency.Response, ttl time.Duration) error {
				half := r.Clone()
				half.Body = nil
				err := next(ctx, c, half, ttl)
				runtime.Gosched()
				time.Sleep(time.Microsecond)
				b.edit(c.Key, func(e *entry) {
					if e.claim.Token == c.Token && len(e.response.Body) == 0 {
						e.response = r.Clone()
					}
				})
				return err
			}
		}),
		keepsOther("an empty body is lost", func(r *idempotency.Response) {
			if len(r.Body) == 0 {
				r.Body = []byte("null")
			}
		}),
		keepsOther("invalid UTF-8 is mended", func(r *idempotency.Response) {
			r.Body = []byte(strings.ToValidUTF8(string(r.Body), "\uFFFD"))
		}),
		keepsOther("JSON is written anew", func(r *idempotency.Response) {
			var v any
			if json.Unmarshal(r.Body, &v) == nil {
				r.Body, _ = json.Marshal(v)
			}
		}),
		keepsOther("line ends are trimmed", func(r *idempotency.Response) {
			r.Body = []byte(strings.TrimSpace(string(r.Body)))
		}),
	}
}

func fieldFaults() []fault {
	return []fault{
		keepsOther("one header value is kept", func(r *idempotency.Response) {
			for name, values := range r.Header {
				if len(values) > 1 {
					r.Header[name] = values[:1]
				}
			}
		}),
		keepsOther("header values are joined", func(r *idempotency.Response) {
			for name, values := range r.Header {
				if len(values) > 0 {
					r.Header[name] = []string{strings.Join(values, ", ")}
				}
			}
		}),
		keepsOther("header values are sorted", func(r *idempotency.Response) {
			for _, values := range r.Header {
				slices.Sort(values)
			}
		}),
		keepsOther("header names without values are dropped", func(r *idempotency.Response) {
			for name, values := range r.Header {
				if len(values) == 0 {
					delete(r.Header, name)
				}
			}
		}),
		keepsOther("header names are made canonical", func(r *idempotency.Response) {
			h := http.Header{}
			for name, values := range r.Header {
				h[http.CanonicalHeaderKey(name)] = append(h[http.CanonicalHeaderKey(name)], values...)
			}
			r.Header = h
		}),
		keepsOther("header values pass through JSON", func(r *idempotency.Response) {
			text, _ := json.Marshal(r.Header)
			r.Header = nil
			_ = json.Unmarshal(text, &r.Header)
		}),
		keepsOther("trailers are lost", func(r *idempotency.Response) { r.Trailer = nil }),
		keepsOther("odd statuses become 200", func(r *idempotency.Response) {
			if http.StatusText(r.Status) == "" {
				r.Status = http.StatusOK
			}
		}),
		keepsOther("BodyLost is lost", func(r *idempotency.Response) { r.BodyLost = false }),
		keepsOther("the reference is lost", func(r *idempotency.Response) { r.Reference = "" }),
		keepsOther("the time is in milliseconds", func(r *idempotency.Response) {
			r.Time = r.Time.Truncate(time.Millisecond)
		}),
		keepsOther("the zero time is not kept", func(r *idempotency.Response) {
			r.Time = time.Unix(0, r.Time.UnixNano())
		}),
	}
}

// overwrites is a store whose Complete writes over what is there in some state.
func overwrites(name string, rule int, state func(c idempotency.Claim, rec *idempotency.Record) bool) fault {
	return onComplete(name, rule, func(b *broken, next completeFunc) completeFunc {
		return func(ctx context.Context, c idempotency.Claim, r *idempotency.Response, ttl time.Duration) error {
			if rec := b.peek(c.Key); ctx.Err() == nil && rec != nil && state(c, rec) {
				b.mu.Lock()
				defer b.mu.Unlock()
				b.put(&entry{claim: c, response: r.Clone()}, ttl)
				return nil
			}
			return next(ctx, c, r, ttl)
		}
	})
}

// refuses is a store whose Complete returns ErrClaimLost in some state.
func refuses(name string, rule int, state func(c idempotency.Claim, rec *idempotency.Record) bool) fault {
	return onComplete(name, rule, func(b *broken, next completeFunc) completeFunc {
		return func(ctx context.Context, c idempotency.Claim, r *idempotency.Response, ttl time.Duration) error {
			if state(c, b.peek(c.Key)) {
				return idempotency.ErrClaimLost
			}
			return next(ctx, c, r, ttl)
		}
	})
}

func completeFaults() []fault {
	own := func(c idempotency.Claim, rec *idempotency.Record) bool { return rec != nil && rec.Token == c.Token }
	return []fault{
		overwrites("complete again writes again", 6, func(c idempotency.Claim, rec *idempotency.Record) bool {
			return own(c, rec) && rec.Response != nil
		}),
		refuses("complete again is refused", 6, func(c idempotency.Claim, rec *idempotency.Record) bool {
			return own(c, rec) && rec.Response != nil
		}),
		onComplete("complete again renews the TTL", 6, func(b *broken, next completeFunc) completeFunc {
			return func(ctx context.Context, c idempotency.Claim, r *idempotency.Response, ttl time.Duration) error {
				b.edit(c.Key, func(e *entry) {
					if e.claim.Token == c.Token && e.response != nil {
						b.put(e, ttl)
					}
				})
				return next(ctx, c, r, ttl)
			}
		}),
		overwrites("complete by a stranger", 7, func(c idempotency.Claim, rec *idempotency.Record) bool {
			return !own(c, rec) && running(rec)
		}),
		overwrites("complete over another's record", 7, func(c idempotency.Claim, rec *idempotency.Record) bool {
			return !own(c, rec) && rec.Response != nil
		}),
		overwrites("complete over another's lapsed claim", 7, func(c idempotency.Claim, rec *idempotency.Record) bool {
			return !own(c, rec) && rec.Lapsed
		}),
		overwrites("tokens are compared by their beginning", 7, func(c idempotency.Claim, rec *idempotency.Record) bool {
			return !own(c, rec) && strings.HasPrefix(c.Token, rec.Token)
		}),
		refuses("late complete is refused", 7, func(_ idempotency.Claim, rec *idempotency.Record) bool { return rec == nil }),
		refuses("late complete within the Hold is refused", 7, func(c idempotency.Claim, rec *idempotency.Record) bool {
			return own(c, rec) && rec.Lapsed
		}),
		onComplete("a lost complete says nothing", 7, func(_ *broken, next completeFunc) completeFunc {
			return func(ctx context.Context, c idempotency.Claim, r *idempotency.Response, ttl time.Duration) error {
				_ = next(ctx, c, r, ttl)
				return ctx.Err()
			}
		}),
	}
}
