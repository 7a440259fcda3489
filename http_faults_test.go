package idempotency_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/memstore"
)

var errStore = errors.New("READONLY You can't write against a read only replica, secret password")

// times lets the first n calls of a hook fail. With lost, they take place and
// their reply is lost.
func times(n int32, lost bool, err error) func(next func() error) error {
	var calls atomic.Int32
	return func(next func() error) error {
		if calls.Add(1) > n {
			return next()
		}
		if lost {
			_ = next()
		}
		return err
	}
}

func claimTimes(n int32, lost bool, err error) func(func() (*idempotency.Record, error)) (*idempotency.Record, error) {
	hook := times(n, lost, err)
	return func(next func() (*idempotency.Record, error)) (*idempotency.Record, error) {
		var record *idempotency.Record
		err := hook(func() (err error) { record, err = next(); return err })
		return record, err
	}
}

// Without a claim nothing runs, and the key is as good as new once the store is
// back.
func TestHTTPFaultsClaim(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		err  error
		lost bool
		code idempotency.Code
		want int
	}{
		{"fails", errStore, false, idempotency.CodeStoreUnavailable, 503},
		{"times out", context.DeadlineExceeded, false, idempotency.CodeStoreUnavailable, 503},
		{"loses its reply", errStore, true, idempotency.CodeStoreUnavailable, 503},
		{"is refused by a full store", idempotency.ErrStoreFull, false, idempotency.CodeStoreUnavailable, 503},
		{"finds a corrupt record", errors.Join(errors.New("record 7"), idempotency.ErrCorrupt), false, idempotency.CodeRecordCorrupt, 500},
	}
	onEachProtocol(t, func(t *testing.T, proto string) {
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				t.Parallel()
				var l ledger
				seen := newEvents()
				store := &fakeStore{Store: memstore.New(), claim: claimTimes(2, tt.lost, tt.err)}
				mw := guardWith(store, seen.option())
				web := newSite(t, proto, mw.Handler(&l))
				for range 2 {
					a := web.post("/", "K", "b1")
					p := requireProblem(t, a, tt.want, tt.code)
					require.Equal(t, tt.want == 503, *p.Retryable)
					if tt.want == 503 {
						require.Equal(t, "1", a.Header.Get("Retry-After"))
						require.EqualValues(t, 1, *p.RetryAfter)
					}
					require.NotContains(t, a.Body, "secret")
					event := seen.next(t)
					require.Equal(t, idempotency.OutcomeRefused, event.Outcome)
					require.Equal(t, tt.code, event.Code)
					require.ErrorIs(t, event.Err, tt.err)
					drained(t, mw) // the claim that may have been made is given back
				}
				require.Zero(t, l.runs())
				first := web.post("/", "K", "b1")
				requireFirst(t, 201, first)
				requireReplay(t, first, web.post("/", "K", "b1"))
				require.Equal(t, 1, l.runs())
			})
		}
	})
}

// A store that reports the caller's own claim, made by a call that was repeated
// below, has not refused it.
func TestHTTPFaultsOwnClaimReported(t *testing.T) {
	t.Parallel()
	var l ledger
	inner := memstore.New()
	store := ownClaimStore{inner}
	web := newSite(t, http1, guardWith(store).Handler(&l))
	first := web.post("/", "K", "b1")
	requireFirst(t, 201, first)
	requireReplay(t, first, web.post("/", "K", "b1"))
}

type ownClaimStore struct{ *memstore.Store }

func (s ownClaimStore) Claim(ctx context.Context, c idempotency.Claim, lease time.Duration) (*idempotency.Record, error) {
	held, err := s.Store.Claim(ctx, c, lease)
	if held == nil && err == nil {
		held = &idempotency.Record{Token: c.Token, Fingerprint: c.Fingerprint, ExpiresIn: lease}
	}
	return held, err
}

// With fail-open the handler runs, the answer says so, and is recorded
// afterwards if the store is back by then.
func TestHTTPFaultsFailOpen(t *testing.T) {
	t.Parallel()
	full := idempotency.ErrStoreFull
	tests := []struct {
		name     string
		claims   int32
		err      error
		complete func(next func() error) error
		status   int
		recorded bool
	}{
		{name: "back at once", claims: 1, err: errStore, status: 201, recorded: true},
		{name: "full", claims: 1, err: full, status: 201, recorded: true},
		{name: "gone for good", claims: 1, err: errStore, complete: times(10, false, errStore), status: 201},
		{name: "not to be recorded", claims: 1, err: errStore, status: 503},
	}
	onEachProtocol(t, func(t *testing.T, proto string) {
		for _, tt := range tests {
			for _, path := range []string{"/held", "/flushed"} {
				t.Run(tt.name+path, func(t *testing.T) {
					t.Parallel()
					var l ledger
					seen := newEvents()
					store := &fakeStore{Store: memstore.New(), claim: claimTimes(tt.claims, true, tt.err), complete: tt.complete}
					mw := guardWith(store, idempotency.WithFailOpen(), seen.option())
					web := newSite(t, proto, mw.Handler(l.counted(func(w http.ResponseWriter, r *http.Request) {
						w.WriteHeader(tt.status)
						if strings.HasSuffix(r.URL.Path, "flushed") {
							flush(w)
						}
					})))
					first := web.post(path, "K", "b1")
					requireFirst(t, tt.status, first)
					require.Equal(t, []string{"true"}, first.Header.Values("Idempotency-Unguarded"))
					event := seen.next(t)
					require.Equal(t, idempotency.OutcomeUnguarded, event.Outcome)
					require.Equal(t, tt.status, event.Status)
					require.ErrorIs(t, event.Err, tt.err)
					again := web.post(path, "K", "b1")
					require.Empty(t, again.Header.Values("Idempotency-Unguarded"))
					switch {
					case tt.recorded:
						requireReplay(t, first, again)
						require.Equal(t, 1, l.runs())
					case tt.complete != nil: // the claim whose reply was lost lapses in its time
						requireProblem(t, again, 409, idempotency.CodeInProgress)
					default:
						requireFirst(t, tt.status, again)
						require.Equal(t, 2, l.runs())
					}
				})
			}
		}
	})
}

// Fail-open is for a store that is out of reach. A corrupt record still refuses.
func TestHTTPFaultsFailOpenCorrupt(t *testing.T) {
	t.Parallel()
	var l ledger
	store := &fakeStore{Store: memstore.New(), claim: claimTimes(1, false, idempotency.ErrCorrupt)}
	web := newSite(t, http1, guardWith(store, idempotency.WithFailOpen()).Handler(&l))
	requireProblem(t, web.post("/", "K", "b1"), 500, idempotency.CodeRecordCorrupt)
	require.Zero(t, l.runs())
}

// When recording fails the client has its answer, the key stays claimed, and
// recording goes on behind the request.
func TestHTTPFaultsComplete(t *testing.T) {
	t.Parallel()
	onEachProtocol(t, func(t *testing.T, proto string) {
		for name, lost := range map[string]bool{"fails": false, "loses its reply": true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				var l ledger
				seen := newEvents()
				back := make(chan struct{})
				failed := times(1, lost, errStore)
				store := &fakeStore{Store: memstore.New()}
				store.complete = func(next func() error) error {
					return failed(func() error {
						if !lost {
							await(t, back)
						}
						return next()
					})
				}
				mw := guardWith(store, seen.option(), idempotency.WithStoreTimeout(patience))
				web := newSite(t, proto, mw.Handler(&l))
				first := web.post("/", "K", "b1")
				requireFirst(t, 201, first)
				if !lost {
					requireProblem(t, web.post("/", "K", "b1"), 409, idempotency.CodeInProgress)
					require.Equal(t, idempotency.CodeInProgress, seen.next(t).Code)
				}
				close(back)
				drained(t, mw)
				event := seen.next(t)
				require.Equal(t, idempotency.OutcomeExecuted, event.Outcome)
				require.Equal(t, 201, event.Status)
				require.NoError(t, event.Err)
				requireReplay(t, first, web.post("/", "K", "b1"))
				require.Equal(t, 1, l.runs())
			})
		}
	})
}

// So does releasing.
func TestHTTPFaultsRelease(t *testing.T) {
	t.Parallel()
	onEachProtocol(t, func(t *testing.T, proto string) {
		var l ledger
		seen := newEvents()
		store := &fakeStore{Store: memstore.New(), release: times(2, false, errStore)}
		mw := guardWith(store, seen.option())
		web := newSite(t, proto, mw.Handler(l.counted(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(429) })))
		requireFirst(t, 429, web.post("/", "K", "b1"))
		drained(t, mw)
		event := seen.next(t)
		require.Equal(t, idempotency.OutcomeReleased, event.Outcome)
		require.Equal(t, 429, event.Status)
		require.NoError(t, event.Err)
		requireFirst(t, 429, web.post("/", "K", "b1"))
		require.Equal(t, 2, l.runs())
	})
}

// A claim that turns out to be lost ends the recording: at once, or behind the
// request.
func TestHTTPFaultsCompleteLost(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]int32{"at once": 0, "behind": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var l ledger
			seen := newEvents()
			store := &fakeStore{Store: memstore.New()}
			failing := times(before, false, errStore)
			store.complete = func(func() error) error {
				return failing(func() error { return idempotency.ErrClaimLost })
			}
			mw := guardWith(store, seen.option())
			web := newSite(t, http1, mw.Handler(&l))
			requireFirst(t, 201, web.post("/", "K", "b1"))
			drained(t, mw)
			event := seen.next(t)
			require.Equal(t, idempotency.OutcomeUnstored, event.Outcome)
			require.ErrorIs(t, event.Err, idempotency.ErrClaimLost)
			requireProblem(t, web.post("/", "K", "b1"), 409, idempotency.CodeInProgress) // not released
		})
	}
}
