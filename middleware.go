package idempotency

import (
	"context"
	"errors"
	"net/http"
	"slices"
)

// Middleware guards handlers. It is made by [New], does not change, and may be
// used for many handlers and by many goroutines.
type Middleware struct {
	config
	store  Store
	tx     TxStore // store, if it is one
	waiter Waiter  // store, if it is one
	user   UserFunc
	behind *background
}

// UserFunc says whose key a request carries: an account, a tenant, an API key's
// owner. Keys of different users never meet. It has to come from authentication,
// not from what the client claims to be. An empty string or an error refuses the
// request with 401 user_unknown; an [*Error] is answered as it is.
type UserFunc func(r *http.Request) (string, error)

// SharedKeys is the UserFunc for services whose callers all share one key space:
// a key used by one caller is used for every other, who is then answered with
// the first one's answer. It is right where there is one caller only.
func SharedKeys(*http.Request) (string, error) { return "shared", nil }

// UserFromHeader returns a UserFunc that takes the user from the header name, for
// services behind a gateway that sets it and strips it from what clients send.
// The header must be there exactly once and not be empty.
func UserFromHeader(name string) UserFunc {
	name = headerName("UserFromHeader", name)
	return func(r *http.Request) (string, error) {
		if lines := r.Header[name]; len(lines) == 1 {
			return lines[0], nil
		}
		return "", errors.New("idempotency: the header that names the user is missing or repeated")
	}
}

// New returns a Middleware that keeps its records in store, under the user that
// user names. It panics if store or user is nil or the options make no sense.
func New(store Store, user UserFunc, opts ...Option) *Middleware {
	must(store != nil, "New: the store is nil: pass memstore.New() or another Store")
	must(user != nil, "New: the UserFunc is nil: pass one that returns the authenticated user, or SharedKeys")
	m := &Middleware{config: defaults(), store: store, user: user, behind: new(background)}
	m.tx, _ = store.(TxStore)
	m.waiter, _ = store.(Waiter)
	return m.With(opts...)
}

// With returns a Middleware with the same store, user and options, but for opts:
// for a route that needs other ones. It panics like [New].
func (m *Middleware) With(opts ...Option) *Middleware {
	c := *m
	for _, opt := range opts {
		opt(&c.config)
	}
	c.check(c.tx != nil)
	if c.policy == nil {
		c.policy = RecordFinal
		if c.tx != nil {
			c.policy = RecordNon5xx
		}
	}
	if !c.unrecorded[c.replayHeader] {
		WithUnrecordedHeaders(c.replayHeader)(&c.config)
	}
	return &c
}

// Drain waits until nothing is going on behind requests any more: recordings and
// releases that are being retried because the store failed. Call it after
// http.Server.Shutdown. It covers the Middlewares made by With, too, and returns
// an error when ctx ends first.
func (m *Middleware) Drain(ctx context.Context) error { return m.behind.drain(ctx) }

// Handler returns next guarded: for one key it runs once, and every later request
// gets the recorded answer. Requests of other methods, skipped ones and those
// without a key go to next untouched.
//
// next gets the request with its whole body in memory and a context that keeps
// the values of the request's, but does not end when the client hangs up; from it
// [FromContext] gives the [Execution]. Its ResponseWriter holds the answer back
// until it has been recorded. It supports http.ResponseController's deadlines and
// full duplex and, except with a [TxStore], flushing, which gives up the holding
// back; it does not support Hijacker and Pusher. It does not report that the
// client has gone.
//
// A handler guarded twice by the same Middleware, or by one made from it by With,
// is guarded once.
func (m *Middleware) Handler(next http.Handler) http.Handler {
	must(next != nil, "Handler(nil): pass the handler to be guarded")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !slices.Contains(m.methods, r.Method) || m.skip != nil && m.skip(r) {
			next.ServeHTTP(w, r)
			return
		}
		lines := r.Header[m.keyHeader]
		if len(lines) == 0 && !m.requireKey {
			next.ServeHTTP(w, r)
			return
		}
		q := &request{m: m, w: w, r: r, next: next}
		q.serve(lines)
	})
}
