package idempotency_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/memstore"
)

// What a handler is told when it writes what cannot be sent is what net/http
// tells it.
func TestHTTPRecorderWriteErrors(t *testing.T) {
	t.Parallel()
	type result struct {
		n   int
		err error
	}
	tests := []struct {
		name   string
		status int
		length string
		writes []string
	}{
		{name: "no body allowed", status: 204, writes: []string{"", "x", ""}},
		{name: "no body allowed with 304", status: 304, writes: []string{"x"}},
		{name: "more than announced", status: 200, length: "3", writes: []string{"ab", "cd", "e", ""}},
		{name: "as announced", status: 200, length: "3", writes: []string{"ab", "c"}},
		{name: "nothing announced", status: 200, writes: []string{"ab", "c"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			results := make(chan []result, 4)
			h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if tt.length != "" {
					w.Header().Set("Content-Length", tt.length)
				}
				w.WriteHeader(tt.status)
				var all []result
				for i, s := range tt.writes {
					var r result
					if i%2 == 0 {
						r.n, r.err = w.Write([]byte(s))
					} else {
						r.n, r.err = io.WriteString(w, s)
					}
					all = append(all, r)
				}
				results <- all
			})
			mux := http.NewServeMux()
			mux.Handle("/bare", h)
			mux.Handle("/guarded", guard().Handler(h))
			web := newSite(t, http1, mux)
			_, _ = web.try(web.request("/bare", "K", ""))
			bare := within(t, results)
			web.fresh()
			_, _ = web.try(web.request("/guarded", "K", ""))
			require.Equal(t, bare, within(t, results))
		})
	}
}

// What would go round the record is not there, and says so.
func TestHTTPRecorderOffersNoWayRound(t *testing.T) {
	t.Parallel()
	onEachProtocol(t, func(t *testing.T, proto string) {
		var l ledger
		mw := guard()
		web := newSite(t, proto, mw.Handler(l.counted(func(w http.ResponseWriter, _ *http.Request) {
			_, hijacker := w.(http.Hijacker)
			_, pusher := w.(http.Pusher)
			_, reader := w.(io.ReaderFrom)
			_, unwrapper := w.(interface{ Unwrap() http.ResponseWriter })
			_, flusher := w.(http.Flusher)
			_, stringWriter := w.(io.StringWriter)
			conn, _, err := http.NewResponseController(w).Hijack()
			w.WriteHeader(http.StatusAccepted)
			_, _ = fmt.Fprint(w, hijacker, pusher, reader, unwrapper, flusher, stringWriter, conn, errors.Is(err, http.ErrNotSupported))
		})))
		first := web.post("/", "K", "b1")
		requireFirst(t, http.StatusAccepted, first)
		require.Equal(t, "false false false false true true <nil> true", first.Body)
		requireReplay(t, first, web.post("/", "K", "b1"))
		require.Equal(t, 1, l.runs())
	})
}

// A status that is none makes WriteHeader panic as net/http's does, and the key
// is free.
func TestHTTPRecorderInvalidStatus(t *testing.T) {
	t.Parallel()
	for _, status := range []int{-1, 0, 99, 1000} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			panics := make(chan any, 2)
			h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer func() { panics <- recover() }()
				if r.Header.Get("Again") == "" {
					w.WriteHeader(status)
				}
			})
			var l ledger
			mux := http.NewServeMux()
			mux.Handle("/bare", h)
			mux.Handle("/guarded", guard().Handler(l.counted(func(w http.ResponseWriter, r *http.Request) {
				defer func() { panic(http.ErrAbortHandler) }() // recovered already
				h(w, r)
			})))
			web := newSite(t, http1, mux)
			_, _ = web.try(web.request("/bare", "K", ""))
			web.fresh()
			_, err := web.try(web.request("/guarded", "K", ""))
			require.Error(t, err)
			require.Equal(t, within(t, panics), within(t, panics))
			web.fresh()
			_, err = web.try(web.request("/guarded", "K", ""))
			require.Error(t, err, "the key is free, and the handler runs again")
			require.Equal(t, 2, l.runs())
		})
	}
}

// Once an answer is under way, a second status that is none is passed over, as
// net/http does.
func TestHTTPRecorderSecondStatusIgnored(t *testing.T) {
	t.Parallel()
	web := newSite(t, http1, guard().Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTeapot)
		w.WriteHeader(1000)
	})))
	requireFirst(t, http.StatusTeapot, web.post("/", "K", ""))
}

// A client sees what was flushed, and early hints, while the handler runs.
func TestHTTPRecorderLive(t *testing.T) {
	t.Parallel()
	ways := map[string]func(http.ResponseWriter) error{
		"Flush":      func(w http.ResponseWriter) error { w.(http.Flusher).Flush(); return nil },
		"FlushError": func(w http.ResponseWriter) error { return w.(interface{ FlushError() error }).FlushError() },
		"Controller": func(w http.ResponseWriter) error { return http.NewResponseController(w).Flush() },
	}
	onEachProtocol(t, func(t *testing.T, proto string) {
		for name, way := range ways {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				var l ledger
				seen := make(chan string)
				web := newSite(t, proto, guard().Handler(l.counted(func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Content-Type", "text/event-stream")
					for i := range 3 {
						_, _ = fmt.Fprintf(w, "event %d\n", i)
						if err := way(w); err != nil {
							panic(err)
						}
						if got := await(t, seen); got != fmt.Sprintf("event %d\n", i) {
							panic(got)
						}
					}
				})))
				resp, err := web.client.Do(web.request("/", "K", "b1"))
				require.NoError(t, err)
				defer func() { _ = resp.Body.Close() }()
				lines := bufio.NewReader(resp.Body)
				for range 3 {
					line, err := lines.ReadString('\n')
					require.NoError(t, err)
					seen <- line
				}
				_, err = lines.ReadByte()
				require.ErrorIs(t, err, io.EOF)
				again := web.post("/", "K", "b1")
				requireReplay(t, answer{Status: 200, Body: "event 0\nevent 1\nevent 2\n"}, again)
				require.Equal(t, "text/event-stream", again.Header.Get("Content-Type"))
				require.Equal(t, 1, l.runs())
			})
		}
	})
}

// An answer is not sent before it has been recorded.
func TestHTTPRecorderHoldsBack(t *testing.T) {
	t.Parallel()
	onEachProtocol(t, func(t *testing.T, proto string) {
		recording, record := make(chan struct{}), make(chan struct{})
		store := &fakeStore{Store: memstore.New()}
		store.complete = func(next func() error) error {
			close(recording)
			await(t, record)
			return next()
		}
		web := newSite(t, proto, guardWith(store, idempotency.WithStoreTimeout(patience)).Handler(&ledger{}))
		got := make(chan answer, 1)
		go func() {
			a, _ := web.try(web.request("/", "K", "b1"))
			got <- a
		}()
		within(t, recording)
		requireProblem(t, web.post("/", "K", "b1"), 409, idempotency.CodeInProgress) // a whole round trip later
		require.Empty(t, got)
		close(record)
		first := within(t, got)
		requireFirst(t, 201, first)
		requireReplay(t, first, web.post("/", "K", "b1"))
	})
}

// An answer up to the limit is replayed, a larger one sent whole to the first
// client and refused to the others, whatever method it is written with.
func TestHTTPRecorderLimit(t *testing.T) {
	t.Parallel()
	const limit = 1000
	ways := map[string]func(http.ResponseWriter, string){
		"Write":       func(w http.ResponseWriter, s string) { _, _ = w.Write([]byte(s)) },
		"WriteString": func(w http.ResponseWriter, s string) { _, _ = io.WriteString(w, s) },
		"io.Copy":     func(w http.ResponseWriter, s string) { _, _ = io.Copy(w, io.LimitReader(strings.NewReader(s), 1<<20)) },
		"in pieces": func(w http.ResponseWriter, s string) {
			for i := range s {
				_, _ = io.WriteString(w, s[i:i+1])
			}
		},
		"flushed": func(w http.ResponseWriter, s string) {
			_, _ = io.WriteString(w, s[:10])
			flush(w)
			_, _ = io.WriteString(w, s[10:])
		},
		"announced": func(w http.ResponseWriter, s string) {
			w.Header().Set("Content-Length", fmt.Sprint(len(s)))
			_, _ = io.WriteString(w, s)
		},
	}
	onEachProtocol(t, func(t *testing.T, proto string) {
		for name, way := range ways {
			for _, size := range []int{limit - 1, limit, limit + 1, 10 * limit} {
				t.Run(fmt.Sprint(name, size), func(t *testing.T) {
					t.Parallel()
					var l ledger
					seen := newEvents()
					mw := guard(idempotency.WithMaxResponseBytes(limit), seen.option())
					web := newSite(t, proto, mw.Handler(l.counted(func(w http.ResponseWriter, _ *http.Request) { way(w, fill(size)) })))
					first := web.post("/", "K", "b1")
					requireFirst(t, 200, first)
					require.Equal(t, fill(size), first.Body)
					event := seen.next(t)
					require.Equal(t, idempotency.OutcomeExecuted, event.Outcome)
					again := web.post("/", "K", "b1")
					require.Equal(t, 1, l.runs())
					if size <= limit {
						require.Empty(t, event.Code)
						requireReplay(t, first, again)
						return
					}
					require.Equal(t, idempotency.CodeNotReplayable, event.Code)
					p := requireProblem(t, again, 409, idempotency.CodeNotReplayable)
					require.Equal(t, 200, *p.OriginalStatus)
					require.False(t, *p.Retryable)
				})
			}
		}
	})
}

// An answer of any size goes through without being kept. The test has the
// process to itself: it is not parallel.
func TestHTTPRecorderLargeAnswerTakesNoMemory(t *testing.T) {
	const limit, size, piece = 64 << 10, 50 << 20, 32 << 10
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for _, proto := range []string{http1, http2, h2c} {
		t.Run(proto, func(t *testing.T) {
			var l ledger
			grown := make(chan uint64, 1)
			web := newSite(t, proto, guard(idempotency.WithMaxResponseBytes(limit)).Handler(l.counted(func(w http.ResponseWriter, _ *http.Request) {
				data, start, most := make([]byte, piece), heap(), uint64(0)
				for i := range size / piece {
					_, _ = w.Write(data)
					if i%200 == 0 {
						most = max(most, heap())
					}
				}
				grown <- most - min(start, most)
			})))
			resp, err := web.client.Do(web.request("/", "K", "b1"))
			require.NoError(t, err)
			defer func() { _ = resp.Body.Close() }()
			n, err := io.Copy(io.Discard, resp.Body)
			require.NoError(t, err)
			require.EqualValues(t, size, n)
			allowed := uint64(limit + 1<<20)
			if proto != http1 {
				allowed += 8 << 20 // of the client, whose window is 4 MiB
			}
			require.Less(t, within(t, grown), allowed)
			requireProblem(t, web.post("/", "K", "b1"), 409, idempotency.CodeNotReplayable)
			require.Equal(t, 1, l.runs())
		})
	}
}
