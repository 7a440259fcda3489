package soak_test

import (
	"context"
	"errors"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/retrysafe/idempotency"
)

// The times of a soak. Leases are so short that they lapse when an outage is
// long, and records so short-lived that the store empties in every rest.
const (
	lease        = 900 * time.Millisecond
	storeTimeout = 300 * time.Millisecond
	ttl          = 1500 * time.Millisecond
	sweepEvery   = 200 * time.Millisecond
	// life is how long a key is in the store at most, from its first request to
	// its sweeping: it may be run, lapse, be unknown, and be recorded after that.
	life = 3*ttl + 2*lease + sweepEvery

	maxBody = 256 << 10
	user    = "soaker"
)

// route is one guarded endpoint.
type route struct {
	path       string
	leased     bool // not for a store with a transaction
	atMostOnce bool
	opts       []idempotency.Option
}

// routes use every option that there is.
func (s *soak) routes() []route {
	return []route{
		{path: "/plain"},
		{path: "/wait", opts: []idempotency.Option{idempotency.WithWait(2 * lease)}},
		{path: "/once", leased: true, atMostOnce: true, opts: []idempotency.Option{
			idempotency.WithAtMostOnce(), idempotency.WithReconciler(s.reconcile),
		}},
		{path: "/once-waiting", leased: true, atMostOnce: true, opts: []idempotency.Option{
			idempotency.WithAtMostOnce(), idempotency.WithReconciler(s.reconcile), idempotency.WithWait(lease),
		}},
		{path: "/small", opts: []idempotency.Option{
			idempotency.WithMaxResponseBytes(512), idempotency.WithMaxRequestBytes(1 << 10),
			idempotency.WithDocs("https://example.com/errors"),
		}},
		{path: "/all", opts: []idempotency.Option{
			idempotency.WithPolicy(idempotency.RecordAll), idempotency.WithUnrecordedHeaders("X-Trace"),
			idempotency.WithReplayHeader("X-Replayed"),
		}},
		{path: "/good", opts: []idempotency.Option{
			idempotency.WithPolicy(idempotency.RecordNon5xx), idempotency.WithMismatchStatus(http.StatusUnprocessableEntity),
			idempotency.WithErrorHandler(func(w http.ResponseWriter, r *http.Request, err *idempotency.Error) {
				idempotency.WriteProblem(w, r, err)
			}),
		}},
		{path: "/open", leased: true, opts: []idempotency.Option{idempotency.WithFailOpen()}},
		{path: "/pattern", opts: []idempotency.Option{
			idempotency.WithEndpoint(func(r *http.Request) string { return r.Pattern }),
			idempotency.WithFingerprint(idempotency.FingerprintJSON),
			idempotency.WithMaxExecution(lease), idempotency.WithRetryAfter(0),
		}},
		{path: "/strict", opts: []idempotency.Option{
			idempotency.WithRequiredKey(), idempotency.WithMethods(http.MethodPost),
			idempotency.WithKeyCheck(func(key string) error {
				if len(key) < 20 {
					return errors.New("shorter than ours")
				}
				return nil
			}),
			idempotency.WithSkip(func(r *http.Request) bool { return r.URL.RawQuery == "skip" }),
		}},
	}
}

// process is what one process of the service has.
type process struct {
	mw     *idempotency.Middleware
	server *httptest.Server
}

// newProcess serves all routes over a store.
func (s *soak) newProcess(store idempotency.Store) *process {
	mw := idempotency.New(exposed(store, s.weather), idempotency.UserFromHeader("X-User"),
		idempotency.WithTTL(ttl), idempotency.WithLease(lease), idempotency.WithStoreTimeout(storeTimeout),
		idempotency.WithMaxExecution(3*lease), idempotency.WithMaxRequestBytes(maxBody+1<<10),
		idempotency.WithObserver(s.observe), idempotency.WithLogger(slog.New(slog.DiscardHandler)))
	_, tx := store.(idempotency.TxStore)
	mux := http.NewServeMux()
	for _, route := range s.routes() {
		if tx && route.leased {
			continue
		}
		guarded := mw.With(route.opts...).Handler(http.HandlerFunc(s.handle))
		mux.Handle(route.path, s.arriving(guarded))
	}
	server := httptest.NewUnstartedServer(mux)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Start()
	return &process{mw, server}
}

// arriving notes in the key's entry that a request has come, as observe notes
// that it has settled.
func (s *soak) arriving(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.add(requests)
		if e := s.book.find(r.Header.Get("X-Operation")); e != nil {
			e.arrive()
			r = r.WithContext(withVisit(r.Context(), e))
		}
		next.ServeHTTP(w, r)
	})
}

// observe is told of every guarded request, once.
func (s *soak) observe(ctx context.Context, e idempotency.Event) {
	s.add(string(e.Outcome))
	if e.Code != "" {
		s.add(string(e.Code))
	}
	if s.leakyObserver != nil {
		s.leakyObserver(ctx, e)
	}
	v := visitOf(ctx)
	if v.settled.Swap(true) {
		s.problem("key %s: two events of one request", v.id)
	}
	if e.Outcome == idempotency.OutcomeRefused {
		v.refused(e.Err)
	}
	v.leave()
}
