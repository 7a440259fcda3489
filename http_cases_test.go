package idempotency_test

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/memstore"
)

// blocking is a handler that says when it has begun and waits to be let go.
type blocking struct {
	ledger
	begun chan struct{}
	let   chan struct{}
	t     *testing.T
	then  http.Handler // nil: the ledger's own answer
}

func newBlocking(t *testing.T) *blocking {
	return &blocking{begun: make(chan struct{}, 1000), let: make(chan struct{}, 1000), t: t}
}

func (b *blocking) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.begun <- struct{}{}
	await(b.t, b.let)
	if b.then != nil {
		b.add()
		b.then.ServeHTTP(w, r)
		return
	}
	b.ledger.ServeHTTP(w, r)
}

// begin sends r and returns when the handler has begun; the answer comes later.
func (b *blocking) begin(t *testing.T, web *site, r *http.Request) <-chan answer {
	t.Helper()
	c := send(web, r)
	within(t, b.begun)
	return c
}

// send sends r, and gives the answer; a zero one when there was none.
func send(web *site, r *http.Request) <-chan answer {
	c := make(chan answer, 1)
	go func() {
		a, _ := web.try(r)
		c <- a
	}()
	return c
}

// Of many requests with one key that come at once, one runs the handler.
func TestHTTPTwins(t *testing.T) {
	t.Parallel()
	const twins, rounds = 50, 10
	onEachProtocol(t, func(t *testing.T, proto string) {
		b := newBlocking(t)
		web := newSite(t, proto, guard().Handler(b))
		for round := range rounds {
			key := fmt.Sprint("K", round)
			var start sync.WaitGroup
			start.Add(1)
			answers := make(chan answer, twins)
			for range twins {
				r := web.request("/", key, "b1")
				go func() {
					start.Wait()
					a, _ := web.try(r)
					answers <- a
				}()
			}
			start.Done()
			for range twins - 1 {
				a := within(t, answers) // while the handler runs
				requireProblem(t, a, 409, idempotency.CodeInProgress)
				after, err := strconv.Atoi(a.Header.Get("Retry-After"))
				require.NoError(t, err)
				require.Positive(t, after)
			}
			b.let <- struct{}{}
			first := within(t, answers)
			requireFirst(t, 201, first)
			requireReplay(t, first, web.post("/", key, "b1"))
			require.Equal(t, round+1, b.runs())
		}
	})
}

// A run whose claim was taken from it disturbs neither its successor's claim nor
// its record, and its client gets its answer.
func TestHTTPLateOwner(t *testing.T) {
	t.Parallel()
	for _, outcome := range []struct {
		name   string
		answer http.Handler
	}{
		{"that would be recorded", nil},
		{"that would be released", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) })},
		{"that is a panic", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })},
	} {
		t.Run(outcome.name, func(t *testing.T) {
			t.Parallel()
			store := memstore.New()
			seen := newEvents()
			mw := guardWith(store, seen.option())
			old, heir := newBlocking(t), newBlocking(t)
			old.then = outcome.answer
			web := newSite(t, http1, mw.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Who") == "heir" {
					heir.ServeHTTP(w, r)
					return
				}
				old.ServeHTTP(w, r)
			})))
			a := old.begin(t, web, web.request("/", "K", "b1"))
			require.NoError(t, store.Forget(t.Context(), scope("/", "K")))
			b := heir.begin(t, web, web.request("/", "K", "b1", withHeader("Who", "heir")))
			old.let <- struct{}{}
			late := within(t, a)
			event := seen.next(t)
			switch {
			case outcome.answer == nil:
				requireFirst(t, 201, late)
				require.Equal(t, idempotency.OutcomeUnstored, event.Outcome)
				require.ErrorIs(t, event.Err, idempotency.ErrClaimLost)
			default:
				require.Equal(t, idempotency.OutcomeReleased, event.Outcome)
			}
			requireProblem(t, web.post("/", "K", "b1"), 409, idempotency.CodeInProgress)
			heir.let <- struct{}{}
			first := within(t, b)
			requireFirst(t, 201, first)
			requireReplay(t, first, web.post("/", "K", "b1"))
			require.Equal(t, 2, old.runs()+heir.runs())
		})
	}
}

// Which endings are recorded and which free the key.
func TestHTTPPolicies(t *testing.T) {
	t.Parallel()
	retryable := map[int]bool{401: true, 408: true, 421: true, 425: true, 429: true, 503: true}
	policies := []struct {
		name     string
		opts     []idempotency.Option
		recorded func(status int) bool
	}{
		{"default", nil, func(status int) bool { return !retryable[status] }},
		{"RecordFinal", []idempotency.Option{idempotency.WithPolicy(idempotency.RecordFinal)}, func(status int) bool { return !retryable[status] }},
		{"RecordNon5xx", []idempotency.Option{idempotency.WithPolicy(idempotency.RecordNon5xx)}, func(status int) bool { return !retryable[status] && status < 500 }},
		{"RecordAll", []idempotency.Option{idempotency.WithPolicy(idempotency.RecordAll)}, func(int) bool { return true }},
	}
	for _, p := range policies {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			var l ledger
			web := newSite(t, http1, guard(p.opts...).Handler(l.counted(func(w http.ResponseWriter, r *http.Request) {
				status, _ := strconv.Atoi(r.Header.Get("Status"))
				w.Header().Set("Retry-After", "7")
				w.WriteHeader(status)
				_, _ = fmt.Fprintf(w, "answer %d", l.runs())
			})))
			for _, status := range []int{200, 201, 202, 204, 301, 303, 400, 401, 402, 403, 404, 408, 409, 410, 412, 413, 421, 422, 425, 429, 451, 499, 500, 501, 502, 503, 504, 599} {
				before := l.runs()
				path := fmt.Sprint("/", status)
				first := web.post(path, "K", "b1", withHeader("Status", fmt.Sprint(status)))
				requireFirst(t, status, first)
				require.Equal(t, "7", first.Header.Get("Retry-After"))
				again := web.post(path, "K", "b1", withHeader("Status", "201"))
				if p.recorded(status) {
					requireReplay(t, first, again)
					require.Equal(t, before+1, l.runs(), status)
					continue
				}
				requireFirst(t, 201, again)
				require.Equal(t, before+2, l.runs(), status)
				requireReplay(t, again, web.post(path, "K", "b1"))
			}
		})
	}
}

// A handler can decide for itself about one answer.
func TestHTTPKeepAndDiscard(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		status int
		wish   func(*idempotency.Execution)
		kept   bool
	}{
		{"keep what is released", 503, (*idempotency.Execution).Keep, true},
		{"discard what is recorded", 201, (*idempotency.Execution).Discard, false},
		{"the later one counts", 201, func(e *idempotency.Execution) { e.Discard(); e.Keep() }, true},
		{"the later one counts, the other way", 201, func(e *idempotency.Execution) { e.Keep(); e.Discard() }, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var l ledger
			store := memstore.New()
			web := newSite(t, http1, guardWith(store).Handler(l.counted(func(w http.ResponseWriter, r *http.Request) {
				e := idempotency.FromContext(r.Context())
				tt.wish(e)
				e.SetReference("charge 1")
				w.WriteHeader(tt.status)
			})))
			first := web.post("/", "K", "b1")
			requireFirst(t, tt.status, first)
			again := web.post("/", "K", "b1")
			if tt.kept {
				requireReplay(t, first, again)
				require.Equal(t, 1, l.runs())
				require.Equal(t, "charge 1", recorded(t, store, "/", "K").Reference)
				return
			}
			requireFirst(t, tt.status, again)
			require.Equal(t, 2, l.runs())
			record, err := store.Lookup(t.Context(), scope("/", "K"))
			require.NoError(t, err)
			require.Nil(t, record)
		})
	}
}

// Answers of no bytes and of any bytes are recorded as they are.
func TestHTTPBodies(t *testing.T) {
	t.Parallel()
	bodies := map[string]struct {
		status int
		body   string
	}{
		"204": {204, ""}, "202": {202, ""}, "200": {200, ""}, "null": {200, "null"},
		"byte order mark": {200, "\xef\xbb\xbf{}"}, "newline": {200, "{}\n"}, "NUL": {200, "\x00"},
		"invalid UTF-8": {200, "\xff\xfe\xc0\x80"}, "odd JSON": {200, `{"b":1,  "a":1,"a":2}`},
	}
	onEachProtocol(t, func(t *testing.T, proto string) {
		var l ledger
		web := newSite(t, proto, guard().Handler(l.counted(func(w http.ResponseWriter, r *http.Request) {
			b := bodies[r.Header.Get("Body")]
			w.WriteHeader(b.status)
			_, _ = io.WriteString(w, b.body)
		})))
		for name, b := range bodies {
			before := l.runs()
			request := func() answer {
				return web.post("/", "", "", withHeader("Body", name), withHeader("Idempotency-Key", strconv.Quote(name)))
			}
			first := request()
			requireFirst(t, b.status, first)
			require.Equal(t, b.body, first.Body)
			requireReplay(t, first, request())
			require.Equal(t, before+1, l.runs())
		}
	})
}

// A memory store that is full refuses new keys, and drops neither a running
// claim nor a record.
func TestHTTPFullStore(t *testing.T) {
	t.Parallel()
	b := newBlocking(t)
	mux := http.NewServeMux()
	mw := guardWith(memstore.New(memstore.WithMaxEntries(100)))
	mux.Handle("/slow", mw.Handler(b))
	mux.Handle("/fast", mw.Handler(&ledger{}))
	web := newSite(t, http2, mux)
	first := b.begin(t, web, web.request("/slow", "K", "b1"))
	early := web.post("/fast", "first", "b1")
	full := 0
	for i := range 200 {
		if a := web.post("/fast", fmt.Sprint(i), ""); a.Status != 201 {
			full++
			p := requireProblem(t, a, 503, idempotency.CodeStoreUnavailable)
			require.True(t, *p.Retryable)
			require.Equal(t, "1", a.Header.Get("Retry-After"))
		}
	}
	require.Equal(t, 102, full)
	requireProblem(t, web.post("/slow", "K", "b1"), 409, idempotency.CodeInProgress)
	b.let <- struct{}{}
	requireReplay(t, within(t, first), web.post("/slow", "K", "b1"))
	requireReplay(t, early, web.post("/fast", "first", "b1"))
	require.Equal(t, 1, b.runs())
}

// What counts as the same request: the bytes as sent, or what a FingerprintFunc
// says. Header fields do not.
func TestHTTPSameRequest(t *testing.T) {
	t.Parallel()
	onEachProtocol(t, func(t *testing.T, proto string) {
		var l ledger
		mw := guard()
		mux := http.NewServeMux()
		mux.Handle("/bytes", mw.Handler(&l))
		mux.Handle("/json", mw.With(idempotency.WithFingerprint(idempotency.FingerprintJSON)).Handler(&l))
		web := newSite(t, proto, mux)
		const sent, reordered, other = `{"amount":1,"to":"x"}`, "{\"to\": \"x\",\n \"amount\": 1.0}", `{"amount":2,"to":"x"}`
		for _, path := range []string{"/bytes", "/json"} {
			first := web.post(path, "K", sent, withHeader("Content-Type", "application/json"))
			requireReplay(t, first, web.post(path, "K", sent, withHeader("Content-Type", "application/json; charset=utf-8")))
			requireReplay(t, first, web.post(path, "K", "", withChunks(sent)))
			requireProblem(t, web.post(path, "K", other), 409, idempotency.CodeKeyReused)
			again := web.post(path, "K", reordered)
			if path == "/json" {
				requireReplay(t, first, again)
			} else {
				requireProblem(t, again, 409, idempotency.CodeKeyReused)
			}
		}
		require.Equal(t, 2, l.runs())
	})
}
