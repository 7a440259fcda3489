package idempotency_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/memstore"
)

type valueKey struct{}

// hanging is a site whose requests tell when the server has noticed that their
// client has gone.
func hanging(t *testing.T, proto string, h http.Handler) (web *site, gone chan struct{}) {
	t.Helper()
	gone = make(chan struct{}, 10)
	return newSite(t, proto, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		stop := context.AfterFunc(r.Context(), func() { gone <- struct{}{} })
		defer stop()
		h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), valueKey{}, "a value")))
	})), gone
}

// A client that hangs up while the handler runs does not stop it, and finds the
// answer when it comes back.
func TestHTTPHangUpDuring(t *testing.T) {
	t.Parallel()
	onEachProtocol(t, func(t *testing.T, proto string) {
		for _, when := range []string{"before a byte", "after a flush"} {
			t.Run(when, func(t *testing.T) {
				t.Parallel()
				var l ledger
				seen := newEvents()
				begun, let := make(chan struct{}, 1), make(chan struct{})
				mw := guard(seen.option())
				web, gone := hanging(t, proto, mw.Handler(l.counted(func(w http.ResponseWriter, r *http.Request) {
					w.WriteHeader(201)
					if when == "after a flush" {
						_, _ = io.WriteString(w, "first half, ")
						flush(w)
					}
					begun <- struct{}{}
					await(t, let)
					if r.Context().Err() != nil || r.Context().Value(valueKey{}) != "a value" {
						panic("the handler's context has ended or lost its values")
					}
					for range 100 { // a client that has gone is no error
						if _, err := io.WriteString(w, strings.Repeat("x", 1000)); err != nil {
							panic(err)
						}
					}
				})))
				ctx, hangUp := context.WithCancel(t.Context())
				answered := send(web, web.request("/", "K", "b1").WithContext(ctx))
				within(t, begun)
				hangUp()
				within(t, answered)
				within(t, gone)
				close(let)
				event := seen.next(t)
				require.Equal(t, idempotency.OutcomeExecuted, event.Outcome)
				require.Equal(t, 201, event.Status)
				again := web.post("/", "K", "b1")
				body := strings.Repeat("x", 100_000)
				if when == "after a flush" {
					body = "first half, " + body
				}
				requireReplay(t, answer{Status: 201, Body: body}, again)
				require.Equal(t, 1, l.runs())
			})
		}
	})
}

// A handler that ends with an answer to be released has its key released though
// the client has gone: no call of the store is cancelled with the request.
func TestHTTPHangUpThenRelease(t *testing.T) {
	t.Parallel()
	onEachProtocol(t, func(t *testing.T, proto string) {
		var l ledger
		var mu sync.Mutex
		var calls []string
		store := &fakeStore{Store: memstore.New(), saw: func(ctx context.Context, call string) {
			mu.Lock()
			defer mu.Unlock()
			_, bounded := ctx.Deadline()
			if ctx.Err() == nil && bounded && ctx.Value(valueKey{}) == "a value" {
				calls = append(calls, call)
			}
		}}
		seen := newEvents()
		begun, let := make(chan struct{}, 2), make(chan struct{})
		web, gone := hanging(t, proto, guardWith(store, seen.option()).Handler(l.counted(func(w http.ResponseWriter, _ *http.Request) {
			begun <- struct{}{}
			await(t, let)
			w.WriteHeader(503)
		})))
		ctx, hangUp := context.WithCancel(t.Context())
		answered := send(web, web.request("/", "K", "b1").WithContext(ctx))
		within(t, begun)
		hangUp()
		within(t, answered)
		within(t, gone)
		close(let)
		require.Equal(t, idempotency.OutcomeReleased, seen.next(t).Outcome)
		mu.Lock()
		require.Equal(t, []string{"claim", "release"}, calls)
		mu.Unlock()
		requireFirst(t, 503, web.post("/", "K", "b1"))
		require.Equal(t, 2, l.runs())
	})
}

// A client that has gone before its key is claimed has nothing done for it.
func TestHTTPHangUpBefore(t *testing.T) {
	t.Parallel()
	onEachProtocol(t, func(t *testing.T, proto string) {
		var l ledger
		seen := newEvents()
		asked := make(chan struct{}, 1)
		store := memstore.New()
		mw := idempotency.New(store, func(r *http.Request) (string, error) {
			if r.Header.Get("Hang-Up") != "" {
				asked <- struct{}{}
				<-r.Context().Done()
			}
			return byHeader(r)
		}, seen.option())
		web := newSite(t, proto, mw.Handler(&l))
		ctx, hangUp := context.WithCancel(t.Context())
		answered := send(web, web.request("/", "K", "", withHeader("Hang-Up", "1")).WithContext(ctx))
		within(t, asked)
		hangUp()
		within(t, answered)
		event := seen.next(t)
		require.Equal(t, idempotency.OutcomeRefused, event.Outcome)
		require.Equal(t, idempotency.CodeBodyUnreadable, event.Code)
		require.ErrorIs(t, event.Err, context.Canceled)
		record, err := store.Lookup(t.Context(), scope("/", "K"))
		require.NoError(t, err)
		require.Nil(t, record)
		require.Zero(t, l.runs())
		requireFirst(t, 201, web.post("/", "K", ""))
	})
}

// A client that hangs up while the answer is being recorded finds it when it
// comes back.
func TestHTTPHangUpAfter(t *testing.T) {
	t.Parallel()
	onEachProtocol(t, func(t *testing.T, proto string) {
		var l ledger
		seen := newEvents()
		recording, record := make(chan struct{}, 1), make(chan struct{})
		store := &fakeStore{Store: memstore.New()}
		store.complete = func(next func() error) error {
			recording <- struct{}{}
			await(t, record)
			return next()
		}
		web, gone := hanging(t, proto, guardWith(store, seen.option(), idempotency.WithStoreTimeout(patience)).Handler(&l))
		ctx, hangUp := context.WithCancel(t.Context())
		answered := send(web, web.request("/", "K", "b1").WithContext(ctx))
		within(t, recording)
		hangUp()
		within(t, answered)
		within(t, gone)
		close(record)
		require.Equal(t, idempotency.OutcomeExecuted, seen.next(t).Outcome)
		again := web.post("/", "K", "b1")
		require.Equal(t, 201, again.Status)
		require.Equal(t, "true", again.Header.Get("Idempotent-Replayed"))
		require.Equal(t, 1, l.runs())
	})
}

// A deadline that an outer layer gave the request is not the handler's: work that
// has begun goes on to its end.
func TestHTTPHangUpDeadline(t *testing.T) {
	t.Parallel()
	var l ledger
	guarded := guard().Handler(l.counted(func(w http.ResponseWriter, r *http.Request) {
		outer, _ := r.Context().Value(valueKey{}).(context.CancelCauseFunc)
		outer(context.DeadlineExceeded)
		if _, ok := r.Context().Deadline(); ok || r.Context().Err() != nil {
			w.WriteHeader(503)
			return
		}
		w.WriteHeader(201)
	}))
	web := newSite(t, http1, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		guarded.ServeHTTP(w, r.WithContext(context.WithValue(ctx, valueKey{}, cancel)))
	}))
	first := web.post("/", "K", "b1")
	requireFirst(t, 201, first)
	requireReplay(t, first, web.post("/", "K", "b1"))
}
