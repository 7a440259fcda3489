package client_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency/client"
)

// behaviour is what a server does with a request it does not answer with 201.
type behaviour struct {
	name string
	do   func(w http.ResponseWriter, r *http.Request, seen *sightings)
}

func behaviours() []behaviour {
	cut := func(w http.ResponseWriter) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		_ = conn.(*net.TCPConn).SetLinger(0)
		conn.Close()
	}
	all := []behaviour{
		{"cut before it was handled", func(w http.ResponseWriter, _ *http.Request, _ *sightings) { cut(w) }},
		{"cut after it was handled", func(w http.ResponseWriter, r *http.Request, seen *sightings) {
			seen.see(r)
			cut(w)
		}},
		{"cut in the answer's header", func(w http.ResponseWriter, r *http.Request, seen *sightings) {
			seen.see(r)
			conn, buf, err := http.NewResponseController(w).Hijack()
			if err != nil {
				panic(err)
			}
			_, _ = buf.WriteString("HTTP/1.1 201 Created\r\nContent-Le")
			_ = buf.Flush()
			conn.Close()
		}},
		{"cut in the answer's body", func(w http.ResponseWriter, r *http.Request, seen *sightings) {
			seen.see(r)
			w.Header().Set("Content-Length", "1000")
			w.WriteHeader(201)
			_, _ = io.WriteString(w, "half of it")
			panic(http.ErrAbortHandler)
		}},
		{"too slow", func(_ http.ResponseWriter, r *http.Request, seen *sightings) {
			seen.see(r)
			<-r.Context().Done()
		}},
		{"busy", func(w http.ResponseWriter, r *http.Request, seen *sightings) {
			seen.see(r)
			w.Header().Set("Content-Type", "application/problem+json")
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(409)
			_, _ = io.WriteString(w, `{"error":"request_in_progress","retryable":true}`)
		}},
	}
	for _, status := range []int{408, 425, 429, 500, 502, 503, 504} {
		all = append(all, behaviour{fmt.Sprint(status), func(w http.ResponseWriter, r *http.Request, seen *sightings) {
			seen.see(r)
			w.WriteHeader(status)
			_, _ = io.WriteString(w, strings.Repeat("no ", 3000))
		}})
	}
	return all
}

// Whatever the server does and whatever the body is: the attempts are the same,
// and the third one succeeds.
func TestServerBehavioursAndBodyKinds(t *testing.T) {
	t.Parallel()
	for _, b := range behaviours() {
		for _, kind := range bodyKinds() {
			t.Run(b.name+"/"+kind.name, func(t *testing.T) {
				t.Parallel()
				var seen sightings
				var calls, keys atomic.Int32
				srv := server(t, func(w http.ResponseWriter, r *http.Request) {
					if r.Header.Get("Idempotency-Key") != "" {
						keys.Add(1)
					}
					if calls.Add(1) <= 2 {
						b.do(w, r, &seen)
						return
					}
					seen.see(r)
					w.WriteHeader(201)
					_, _ = io.WriteString(w, "paid")
				})
				srv.Config.ErrorLog = quiet()
				rt := fast(ownBase(t))
				if b.name == "too slow" {
					// On a busy machine more attempts than those two may be too slow.
					rt.AttemptTimeout, rt.MaxAttempts = 200*time.Millisecond, 100
				}
				req := post(t, t.Context(), srv.URL, kind.make(t))
				resp, body, err := roundTrip(t, rt, req)
				require.NoError(t, err)
				require.Equal(t, 201, resp.StatusCode)
				require.Equal(t, "paid", body)

				whole := 3
				switch b.name {
				case "cut before it was handled":
					whole = 1
				case "too slow":
					seen.dropTorn()
					whole = len(seen.list())
				}
				key := seen.requireSame(t, whole, kind.want)
				require.Equal(t, calls.Load(), keys.Load())
				require.Equal(t, key, client.Info(resp).Key)
				known := kind.name == "bytes" || kind.name == "buffer" || kind.name == "string"
				require.Equal(t, !known && kind.want != "", seen.list()[0].Chunked, "the framing is the caller's")
			})
		}
	}
}

// net/http sends a keyed request again by itself when it finds that a
// kept-alive connection was dead; the twin must be a true one.
func TestSilentResend(t *testing.T) {
	t.Parallel()
	for _, kind := range bodyKinds() {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			var seen sightings
			srv := server(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet {
					return
				}
				if seen.see(r) == 1 {
					conn, _, err := http.NewResponseController(w).Hijack()
					if err == nil {
						conn.Close()
					}
					return
				}
				w.WriteHeader(201)
			})
			rt := fast(ownBase(t))
			rt.MaxAttempts = 1 // so it is not the Transport that repeats
			warm, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL, nil)
			require.NoError(t, err)
			_, _, err = roundTrip(t, rt, warm)
			require.NoError(t, err)

			resp, _, err := roundTrip(t, rt, post(t, t.Context(), srv.URL, kind.make(t)))
			require.NoError(t, err)
			require.Equal(t, 201, resp.StatusCode)
			require.Equal(t, seen.requireSame(t, 2, kind.want), client.Info(resp).Key)
			require.Equal(t, 1, client.Info(resp).Attempts)
		})
	}
}

// Answers that are not returned leave no connection and no goroutine behind.
func TestNothingLeaks(t *testing.T) {
	tests := []struct {
		name   string
		answer func(w http.ResponseWriter)
		max    int32 // connections ever opened
		rounds int
	}{
		{"length known", func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "10240")
			w.WriteHeader(503)
			_, _ = io.WriteString(w, strings.Repeat("x", 10240))
		}, 1, 500},
		// On a busy machine an answer may take longer than it is worth to drain.
		{"chunked", func(w http.ResponseWriter) {
			w.WriteHeader(503)
			for range 10 {
				_, _ = io.WriteString(w, strings.Repeat("x", 1024))
				_ = http.NewResponseController(w).Flush()
			}
		}, 20, 500},
		{"endless", func(w http.ResponseWriter) {
			w.WriteHeader(503)
			for {
				if _, err := io.WriteString(w, strings.Repeat("x", 10240)); err != nil {
					return
				}
			}
		}, 1 << 30, 20},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var calls, opened, open atomic.Int32
			srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if calls.Add(1)%4 != 0 {
					tt.answer(w)
					return
				}
				w.WriteHeader(201)
			}))
			srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
				switch s {
				case http.StateNew:
					opened.Add(1)
					open.Add(1)
				case http.StateClosed:
					open.Add(-1)
				}
			}
			srv.Start()
			defer srv.Close()
			base := ownBase(t)
			base.MaxConnsPerHost = 1
			rt := fast(base)
			round := func() {
				resp, _, err := roundTrip(t, rt, post(t, t.Context(), srv.URL, stream(payment)))
				require.NoError(t, err)
				require.Equal(t, 201, resp.StatusCode)
				require.Equal(t, 4, client.Info(resp).Attempts)
			}
			round()
			goroutines := runtime.NumGoroutine()
			for range tt.rounds - 1 {
				round()
			}
			require.EqualValues(t, 4*tt.rounds, calls.Load())
			require.LessOrEqual(t, opened.Load(), tt.max)
			require.Eventually(t, func() bool { return open.Load() <= 1 && runtime.NumGoroutine() <= goroutines+3 },
				10*time.Second, 10*time.Millisecond)
		})
	}
}

// The last answer is not drained for the caller, however long it is.
func TestLastAnswerIsReadable(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("no ", 1<<20)
	srv := server(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(503)
		_, _ = io.WriteString(w, long)
	})
	rt := fast(ownBase(t))
	resp, body, err := roundTrip(t, rt, post(t, t.Context(), srv.URL, nil))
	require.NoError(t, err)
	require.Equal(t, 503, resp.StatusCode)
	require.Equal(t, 5, client.Info(resp).Attempts)
	require.Equal(t, long, body)
}
