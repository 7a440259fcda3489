package idempotency_test

import (
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
)

// gzipWriter compresses what is written to it, and knows of net/http's rules: a
// length that was announced is not that of the compressed body.
type gzipWriter struct {
	http.ResponseWriter
	z     *gzip.Writer
	plain bool // an answer without a body
	begun bool
}

func (w *gzipWriter) WriteHeader(status int) {
	if status >= 200 && !w.begun {
		w.begun = true
		h := w.Header()
		if w.plain = status == 204 || status == 304 || h.Get("Content-Encoding") != ""; !w.plain {
			h.Set("Content-Encoding", "gzip")
			h.Del("Content-Length")
			w.z = gzip.NewWriter(w.ResponseWriter)
		}
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *gzipWriter) Write(p []byte) (int, error) {
	if !w.begun {
		if w.Header().Get("Content-Type") == "" {
			w.Header().Set("Content-Type", http.DetectContentType(p))
		}
		w.WriteHeader(200)
	}
	if w.plain {
		return w.ResponseWriter.Write(p)
	}
	return w.z.Write(p)
}

func (w *gzipWriter) FlushError() error {
	if w.z != nil {
		_ = w.z.Flush()
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

func (w *gzipWriter) close() {
	if w.z != nil {
		_ = w.z.Close()
	}
}

func accepts(r *http.Request) bool { return strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") }

// compress is a well-made compressing layer.
func compress(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "Accept-Encoding")
		if !accepts(r) {
			h.ServeHTTP(w, r)
			return
		}
		z := &gzipWriter{ResponseWriter: w}
		defer z.close()
		h.ServeHTTP(z, r)
	})
}

// compressNaively is the one that is copied from blog to blog: it says beforehand
// that the answer is compressed, and compresses whatever is written.
func compressNaively(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !accepts(r) {
			h.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		defer func() { _ = z.Close() }()
		h.ServeHTTP(naiveWriter{w, z}, r)
	})
}

type naiveWriter struct {
	http.ResponseWriter
	z io.Writer
}

func (w naiveWriter) Write(p []byte) (int, error) { return w.z.Write(p) }

// recovering is the recovery layer that everybody has.
func recovering(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if p := recover(); p != nil {
				http.Error(w, "internal error", 500)
			}
		}()
		h.ServeHTTP(w, r)
	})
}

// text returns the decoded body of a.
func text(t *testing.T, a answer) string {
	t.Helper()
	require.NoError(t, a.Err)
	if a.Header.Get("Content-Encoding") != "gzip" {
		return a.Body
	}
	z, err := gzip.NewReader(strings.NewReader(a.Body))
	require.NoError(t, err, "%q", a.Body)
	plain, err := io.ReadAll(z)
	require.NoError(t, err)
	return string(plain)
}

// Outside the middleware a compressing layer fits each client.
func TestHTTPOrderCompressionOutside(t *testing.T) {
	t.Parallel()
	onEachProtocol(t, func(t *testing.T, proto string) {
		for name, layer := range map[string]func(http.Handler) http.Handler{"well made": compress, "naive": compressNaively} {
			for _, size := range []int{0, 10, 100_000} {
				for _, firstGzip := range []bool{true, false} {
					var l ledger
					web := newSite(t, proto, layer(guard().Handler(l.counted(func(w http.ResponseWriter, _ *http.Request) {
						w.Header().Set("Content-Type", "text/plain")
						w.WriteHeader(201)
						_, _ = io.WriteString(w, fill(size))
					}))))
					zipped := withHeader("Accept-Encoding", "gzip")
					plain := withHeader("Accept-Encoding", "identity")
					asks := []func(*http.Request){zipped, plain, zipped}
					if !firstGzip {
						asks = []func(*http.Request){plain, zipped, plain}
					}
					for i, ask := range asks {
						r := web.request("/", "K", "b1", ask)
						a, err := web.try(r)
						require.NoError(t, err)
						require.Equal(t, 201, a.Status)
						require.Equal(t, "text/plain", a.Header.Get("Content-Type"))
						require.Equal(t, fill(size), text(t, a), "%s, %d bytes, request %d", name, size, i)
						require.Equal(t, accepts(r), a.Header.Get("Content-Encoding") == "gzip")
						require.Equal(t, i > 0, a.Header.Get("Idempotent-Replayed") == "true")
					}
					for _, ask := range []func(*http.Request){zipped, plain} {
						a := web.post("/", "K", "another", ask)
						require.Equal(t, 409, a.Status)
						require.Contains(t, text(t, a), string(idempotency.CodeKeyReused), name)
					}
					require.Equal(t, 1, l.runs())
				}
			}
		}
	})
}

// Inside, the first client's encoding is part of the answer: body and
// Content-Encoding stay together.
func TestHTTPOrderCompressionInside(t *testing.T) {
	t.Parallel()
	onEachProtocol(t, func(t *testing.T, proto string) {
		var l ledger
		web := newSite(t, proto, guard().Handler(compress(l.counted(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "<!DOCTYPE html>"+fill(5000))
			flush(w)
			_, _ = io.WriteString(w, fill(5000))
		}))))
		first := web.post("/", "K", "b1", withHeader("Accept-Encoding", "gzip"))
		require.Equal(t, "<!DOCTYPE html>"+fill(5000)+fill(5000), text(t, first))
		again := web.post("/", "K", "b1", withHeader("Accept-Encoding", "identity"))
		requireReplay(t, first, again)
		require.Equal(t, "gzip", again.Header.Get("Content-Encoding"))
		require.Equal(t, "text/html; charset=utf-8", again.Header.Get("Content-Type"))
		require.Equal(t, []string{"Accept-Encoding"}, again.Header.Values("Vary"))
	})
}

// Outside, a time limit ends the request and not the work: retries find it
// running and then its answer.
func TestHTTPOrderTimeoutOutside(t *testing.T) {
	t.Parallel()
	onEachProtocol(t, func(t *testing.T, proto string) {
		b := newBlocking(t)
		seen := newEvents()
		guarded := guard(seen.option()).Handler(b)
		web := newSite(t, proto, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Limited") != "" {
				http.TimeoutHandler(guarded, time.Millisecond, "too late").ServeHTTP(w, r)
				return
			}
			http.TimeoutHandler(guarded, time.Hour, "too late").ServeHTTP(w, r)
		}))
		// The limit may end the request before its key is claimed; then again.
		var a answer
		for key := "K"; ; key += "K" {
			a = web.post("/"+key, "K", "", withHeader("Limited", "1"))
			require.Equal(t, 503, a.Status)
			require.Equal(t, "too late", a.Body)
			select {
			case <-b.begun:
				requireProblem(t, web.post("/"+key, "K", ""), 409, idempotency.CodeInProgress)
				require.Equal(t, idempotency.CodeInProgress, seen.next(t).Code)
				b.let <- struct{}{}
				require.Equal(t, idempotency.OutcomeExecuted, seen.next(t).Outcome)
				again := web.post("/"+key, "K", "")
				require.Equal(t, 201, again.Status)
				require.Equal(t, "true", again.Header.Get("Idempotent-Replayed"))
				require.Equal(t, 1, b.runs())
				return
			case event := <-seen.c:
				require.Equal(t, idempotency.CodeBodyUnreadable, event.Code)
			}
		}
	})
}

// Inside, its 503 is an answer to be released, and a retry runs the handler while
// the first run still works: the order that the documentation warns of. A policy
// that records 503 makes it the answer.
func TestHTTPOrderTimeoutInside(t *testing.T) {
	t.Parallel()
	for name, policy := range map[string]idempotency.Policy{"released": idempotency.RecordFinal, "recorded": idempotency.RecordAll} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var ended atomic.Int32
			let := make(chan struct{})
			slow := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				<-r.Context().Done()
				if !context.Cause(r.Context()).(interface{ Timeout() bool }).Timeout() {
					panic("not the time limit's")
				}
				await(t, let)
				_, err := io.WriteString(w, "late")
				if err != nil {
					ended.Add(1)
				}
			})
			web := newSite(t, http1, guard(idempotency.WithPolicy(policy)).Handler(http.TimeoutHandler(slow, time.Millisecond, "too late")))
			first := web.post("/", "K", "")
			requireFirst(t, 503, first)
			require.Equal(t, "too late", first.Body)
			again := web.post("/", "K", "")
			if name == "recorded" {
				requireReplay(t, first, again)
			} else {
				requireFirst(t, 503, again)
			}
			close(let)
		})
	}
}

// A limit for bodies inside is the handler's, whose answer is recorded.
func TestHTTPOrderMaxBytesInside(t *testing.T) {
	t.Parallel()
	onEachProtocol(t, func(t *testing.T, proto string) {
		var l ledger
		web := newSite(t, proto, guard().Handler(http.MaxBytesHandler(l.counted(func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.ReadAll(r.Body); err != nil {
				http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
			}
		}), 3)))
		first := web.post("/", "K", "1234")
		requireFirst(t, 413, first)
		requireReplay(t, first, web.post("/", "K", "1234"))
		requireFirst(t, 200, web.post("/", "L", "123"))
		require.Equal(t, 2, l.runs())
	})
}

// Outside, a recovery layer answers a panic whose key is free again; inside, its
// answer is the handler's.
func TestHTTPOrderRecovery(t *testing.T) {
	t.Parallel()
	onEachProtocol(t, func(t *testing.T, proto string) {
		var outside, inside ledger
		panics := func(l *ledger) http.Handler {
			return l.counted(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("X-Half-Done", "1")
				panic("boom")
			})
		}
		mux := http.NewServeMux()
		mux.Handle("/outside", recovering(guard().Handler(panics(&outside))))
		mux.Handle("/inside", guard().Handler(recovering(panics(&inside))))
		web := newSite(t, proto, mux)
		for range 2 {
			a := web.post("/outside", "K", "b1")
			requireFirst(t, 500, a)
			require.NotContains(t, a.Header, "X-Half-Done")
		}
		first := web.post("/inside", "K", "b1")
		requireFirst(t, 500, first)
		requireReplay(t, first, web.post("/inside", "K", "b1"))
		require.Equal(t, 2, outside.runs())
		require.Equal(t, 1, inside.runs())
	})
}

// Authentication outside sees every request, the ones that would be replayed too.
func TestHTTPOrderAuthentication(t *testing.T) {
	t.Parallel()
	var l ledger
	var revoked atomic.Bool
	guarded := guard().Handler(&l)
	web := newSite(t, http1, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if revoked.Load() {
			http.Error(w, "revoked", http.StatusForbidden)
			return
		}
		guarded.ServeHTTP(w, r)
	}))
	requireFirst(t, 201, web.post("/", "K", "b1"))
	revoked.Store(true)
	a := web.post("/", "K", "b1")
	require.Equal(t, 403, a.Status)
	require.NotContains(t, a.Body, "nonce")
}
