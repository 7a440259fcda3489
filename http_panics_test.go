package idempotency_test

import (
	"errors"
	"io"
	"net/http"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/memstore"
)

// breakdown is a way for a handler not to return.
type breakdown struct {
	name  string
	value any // nil: runtime.Goexit
}

func breakdowns() []breakdown {
	return []breakdown{
		{"text", "boom"}, {"error", errors.New("boom")}, {"http.ErrAbortHandler", http.ErrAbortHandler}, {"runtime error", runtime.Error(nil)}, {"Goexit", nil},
	}
}

func (b breakdown) happen() {
	switch b.name {
	case "Goexit":
		runtime.Goexit()
	case "runtime error":
		var m map[string]int
		//lint:ignore SA5000 the bug that the handler has
		m["x"] = 1
	default:
		panic(b.value)
	}
}

// A panic goes on with its own value, Goexit goes on, the client sees a broken
// connection, and the key is free: a retry runs the handler.
func TestHTTPPanics(t *testing.T) {
	t.Parallel()
	onEachProtocol(t, func(t *testing.T, proto string) {
		for _, b := range breakdowns() {
			for _, written := range []string{"nothing", "something", "flushed"} {
				t.Run(b.name+", "+written, func(t *testing.T) {
					t.Parallel()
					b.check(t, proto, written)
				})
			}
		}
	})
}

func (b breakdown) check(t *testing.T, proto, written string) {
	var l ledger
	seen := newEvents()
	store := memstore.New()
	caught := make(chan any, 1)
	inner := guardWith(store, seen.option()).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Break") == "" {
			l.ServeHTTP(w, r)
			return
		}
		l.add()
		if written != "nothing" {
			_, _ = io.WriteString(w, "half an answer")
		}
		if written == "flushed" {
			flush(w)
		}
		b.happen()
	}))
	web := newSite(t, proto, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		returned := false
		defer func() {
			if !returned {
				p := recover()
				caught <- p
				panic(http.ErrAbortHandler) // as if not recovered, but silently
			}
		}()
		inner.ServeHTTP(w, r)
		returned = true
	}))
	web.fresh()
	a, err := web.try(web.request("/", "K", "b1", withHeader("Break", "1")))
	if written == "flushed" && err == nil {
		require.Error(t, a.Err)
	} else {
		require.Error(t, err)
	}
	p := within(t, caught)
	if b.name == "runtime error" {
		require.Implements(t, (*runtime.Error)(nil), p)
	} else {
		require.True(t, p == b.value, "%v", p)
	}
	event := seen.next(t)
	require.Equal(t, idempotency.OutcomeReleased, event.Outcome)
	require.Equal(t, idempotency.CodePanicked, event.Code)
	require.Zero(t, event.Status)
	record, err := store.Lookup(t.Context(), scope("/", "K"))
	require.NoError(t, err)
	require.Nil(t, record)
	web.fresh()
	first := web.post("/", "K", "b1")
	requireFirst(t, 201, first)
	requireReplay(t, first, web.post("/", "K", "b1"))
	require.Equal(t, 2, l.runs())
}

// Without any recovery net/http logs the panic as it does without the middleware.
func TestHTTPPanicReachesServer(t *testing.T) {
	t.Parallel()
	web := newSite(t, http1, guard().Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("a value of its own") })))
	_, err := web.try(web.request("/", "K", "b1"))
	require.Error(t, err)
	web.server.Close() // waits for the connection's goroutine
	require.Contains(t, web.logged.String(), "a value of its own")
	require.Contains(t, web.logged.String(), "http_panics_test.go", "the stack is the handler's")
}

// Under RecordAll a panic is an answer for the retries.
func TestHTTPPanicRecorded(t *testing.T) {
	t.Parallel()
	onEachProtocol(t, func(t *testing.T, proto string) {
		for _, b := range breakdowns() {
			t.Run(b.name, func(t *testing.T) {
				t.Parallel()
				var l ledger
				seen := newEvents()
				mw := guard(idempotency.WithPolicy(idempotency.RecordAll), idempotency.WithDocs("https://a.example/errors"), seen.option())
				web := newSite(t, proto, mw.Handler(l.counted(func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("X-Never-Sent", "1")
					w.WriteHeader(201)
					b.happen()
				})))
				web.fresh()
				_, err := web.try(web.request("/", "K", "b1"))
				require.Error(t, err)
				event := seen.next(t)
				require.Equal(t, idempotency.OutcomeExecuted, event.Outcome)
				require.Equal(t, idempotency.CodePanicked, event.Code)
				web.fresh()
				again := web.post("/", "K", "b1")
				require.Equal(t, "true", again.Header.Get("Idempotent-Replayed"))
				require.NotContains(t, again.Header, "X-Never-Sent")
				again.Header.Del("Idempotent-Replayed")
				p := requireProblem(t, again, 500, idempotency.CodePanicked)
				require.False(t, *p.Retryable)
				require.Equal(t, "https://a.example/errors#handler_panicked", p.Type)
				require.Equal(t, 1, l.runs())
			})
		}
	})
}

// Keep does not record a panic; Discard frees the key of one that would be.
func TestHTTPPanicAndWishes(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		policy idempotency.Policy
		wish   func(*idempotency.Execution)
	}{
		{"Keep", idempotency.RecordFinal, (*idempotency.Execution).Keep},
		{"Discard", idempotency.RecordAll, (*idempotency.Execution).Discard},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var l ledger
			web := newSite(t, http1, guard(idempotency.WithPolicy(tt.policy)).Handler(l.counted(func(_ http.ResponseWriter, r *http.Request) {
				tt.wish(idempotency.FromContext(r.Context()))
				panic(http.ErrAbortHandler)
			})))
			for range 2 {
				web.fresh()
				_, err := web.try(web.request("/", "K", "b1"))
				require.Error(t, err)
			}
			require.Equal(t, 2, l.runs())
		})
	}
}

// Go's own transport repeats a keyed request when the kept connection breaks: a
// twin that nobody asked for. It is answered like a client's retry.
func TestHTTPTransportRepeats(t *testing.T) {
	t.Parallel()
	var l ledger
	mux := http.NewServeMux()
	mw := guard()
	mux.HandleFunc("/warm", func(http.ResponseWriter, *http.Request) {})
	mux.Handle("/panics", mw.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if l.add() == 1 {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(201)
	})))
	mux.Handle("/lost", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		again := r.Header.Get("Idempotency-Key") != "" && l.runs() == 3
		mw.Handler(&l).ServeHTTP(w, r)
		if !again && l.runs() == 3 {
			panic(http.ErrAbortHandler) // the answer never reaches the client
		}
	}))
	web := newSite(t, http1, mux)
	web.post("/warm", "", "")
	requireFirst(t, 201, web.post("/panics", "K", ""))
	require.Equal(t, 2, l.runs(), "the transport has repeated the request")
	web.post("/warm", "", "")
	a := web.post("/lost", "K", "")
	require.Equal(t, 201, a.Status)
	require.Equal(t, "true", a.Header.Get("Idempotent-Replayed"))
	require.Equal(t, 3, l.runs(), "the repeated request has not run the handler")
}
