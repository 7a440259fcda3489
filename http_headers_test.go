package idempotency_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/memstore"
)

// scope is where a POST of ann's to path is kept.
func scope(path, key string) idempotency.Key { return idempotency.NewKey("ann", "POST "+path, key) }

// recorded returns what the store has for a POST of ann's.
func recorded(t *testing.T, store *memstore.Store, path, key string) *idempotency.Response {
	t.Helper()
	record, err := store.Lookup(t.Context(), scope(path, key))
	require.NoError(t, err)
	require.NotNil(t, record)
	require.NotNil(t, record.Response)
	return record.Response
}

// Headers that belong to one caller or one connection reach the first client,
// however they are spelt, and are not even kept.
func TestHTTPHeadersNeverRecorded(t *testing.T) {
	t.Parallel()
	personal := []string{
		"Set-Cookie", "set-cookie", "SET-COOKIE", "WWW-Authenticate", "www-authenticate", "Proxy-Authenticate",
		"Authentication-Info", "Proxy-Authentication-Info", "X-Mine", "x-mine", "Keep-Alive", "Proxy-Connection", "Te", "Upgrade",
	}
	onEachProtocol(t, func(t *testing.T, proto string) {
		for _, name := range personal {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				store := memstore.New()
				mw := guardWith(store, idempotency.WithUnrecordedHeaders("x-MINE"))
				web := newSite(t, proto, mw.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					w.Header()[name] = []string{"secret"}
					w.Header().Set("Etag", `"1"`)
					w.WriteHeader(201)
				})))
				first := web.post("/", "K", "")
				requireFirst(t, 201, first)
				if proto == http1 || !strings.Contains("Keep-Alive Proxy-Connection Te Upgrade", name) { // which HTTP/2 has not
					require.Equal(t, []string{"secret"}, first.Header.Values(name))
				}
				resp := recorded(t, store, "/", "K")
				require.NotContains(t, fmt.Sprint(resp), "secret")
				require.Equal(t, http.Header{"Etag": {`"1"`}}, resp.Header)
				again := web.post("/", "K", "")
				requireReplay(t, first, again)
				require.Empty(t, again.Header.Values(name))
				require.Equal(t, `"1"`, again.Header.Get("Etag"))
			})
		}
	})
}

// The marks of the middleware cannot be forged, neither by a handler nor by a
// client, and are not recorded.
func TestHTTPHeadersMarksCannotBeForged(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"Idempotent-Replayed", "idempotent-replayed", "Idempotency-Unguarded", "idempotency-UNGUARDED", "X-Replay", "x-replay"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEachProtocol(t, func(t *testing.T, proto string) {
				store := memstore.New()
				mw := guardWith(store)
				if strings.EqualFold(name, "X-Replay") {
					mw = mw.With(idempotency.WithReplayHeader("x-Replay"))
				}
				web := newSite(t, proto, mw.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					w.Header()[name] = []string{"true"}
					w.WriteHeader(103)
					if r.URL.Path == "/flushed" {
						flush(w)
					}
				})))
				for _, path := range []string{"/held", "/flushed"} {
					first := web.post(path, "K", "", withHeader(name, "true"))
					require.Empty(t, first.Header.Values(name))
					require.Len(t, first.Infos, 1)
					require.Empty(t, first.Infos[0].Header.Values(name))
					again := web.post(path, "K", "")
					want := 0
					if !strings.EqualFold(name, "Idempotency-Unguarded") {
						want = 1
					}
					require.Len(t, again.Header.Values(name), want)
					for kept := range recorded(t, store, path, "K").Header {
						require.False(t, strings.EqualFold(kept, name), kept)
					}
				}
			})
		})
	}
}

// Trailers that are not to be recorded reach the first client all the same.
func TestHTTPHeadersUnrecordedTrailer(t *testing.T) {
	t.Parallel()
	onEachProtocol(t, func(t *testing.T, proto string) {
		mw := guard(idempotency.WithUnrecordedHeaders("X-Once"))
		web := newSite(t, proto, mw.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Trailer", "X-Once, X-Always")
			_, _ = io.WriteString(w, "body")
			if r.URL.Path == "/flushed" {
				flush(w)
			}
			w.Header().Set("X-Once", "1")
			w.Header().Set("X-Always", "2")
		})))
		for _, path := range []string{"/held", "/flushed"} {
			first := web.post(path, "K", "")
			require.Equal(t, http.Header{"X-Once": {"1"}, "X-Always": {"2"}}, first.Trailer)
			again := web.post(path, "K", "")
			requireReplay(t, first, again)
			require.Equal(t, http.Header{"X-Always": {"2"}}, again.Trailer)
			require.NotContains(t, again.Header, "X-Always")
		}
	})
}

// The headers of outer layers are each request's own: not recorded, not doubled.
// What the handler changed or took away of them is the handler's.
func TestHTTPHeadersOfOuterLayers(t *testing.T) {
	t.Parallel()
	onEachProtocol(t, func(t *testing.T, proto string) {
		var l, ids ledger
		store := memstore.New()
		inner := guardWith(store).Handler(l.counted(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Version", "handler")
			w.Header().Add("Vary", "Accept")
			w.Header().Del("X-Powered-By")
			w.WriteHeader(103)
			_, _ = io.WriteString(w, "done")
		}))
		web := newSite(t, proto, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h := w.Header()
			h.Set("X-Request-Id", fmt.Sprint(ids.add()))
			h.Set("Access-Control-Allow-Origin", r.Header.Get("Origin"))
			h.Set("Vary", "Origin")
			h.Set("X-Version", "outer")
			h.Set("X-Powered-By", "outer")
			inner.ServeHTTP(w, r)
		}))
		for i, origin := range []string{"https://one.example", "https://two.example"} {
			a := web.post("/", "K", "", withHeader("Origin", origin))
			require.Equal(t, "done", a.Body)
			require.Equal(t, []string{fmt.Sprint(i + 1)}, a.Header.Values("X-Request-Id"))
			require.Equal(t, []string{origin}, a.Header.Values("Access-Control-Allow-Origin"))
			require.Equal(t, []string{"Origin", "Accept"}, a.Header.Values("Vary"))
			require.Equal(t, []string{"handler"}, a.Header.Values("X-Version"))
			require.NotContains(t, a.Header, "X-Powered-By")
			require.Len(t, a.Header.Values("Date"), 1)
		}
		require.Equal(t, 1, l.runs())
		header := recorded(t, store, "/", "K").Header
		require.NotContains(t, header, "X-Request-Id")
		require.NotContains(t, header, "Access-Control-Allow-Origin")
	})
}

// A handler that goes on after it has returned changes neither its record nor
// anybody's answer.
func TestHTTPHeadersLateWrites(t *testing.T) {
	t.Parallel()
	onEachProtocol(t, func(t *testing.T, proto string) {
		for _, flushed := range []bool{false, true} {
			t.Run(fmt.Sprint("flushed ", flushed), func(t *testing.T) {
				t.Parallel()
				var l ledger
				var writers sync.WaitGroup
				stop, writing := make(chan struct{}), make(chan struct{}, 10)
				web := newSite(t, proto, guard().Handler(l.counted(func(w http.ResponseWriter, r *http.Request) {
					w.WriteHeader(201)
					_, _ = io.WriteString(w, "in time.")
					if flushed {
						flush(w)
					}
					for range 2 {
						writers.Go(func() {
							<-r.Context().Done() // the run has ended
							for {
								select {
								case <-stop:
									return
								case writing <- struct{}{}:
								default:
								}
								w.WriteHeader(500)
								_, err1 := w.Write([]byte("late"))
								_, err2 := io.WriteString(w, "late")
								err3 := http.NewResponseController(w).Flush()
								w.Header().Set("X-Late", "1")
								if err1 == nil || err2 == nil || err3 == nil {
									panic("a late write went through")
								}
							}
						})
					}
				})))
				first := web.post("/", "K", "b1")
				requireFirst(t, 201, first)
				require.Equal(t, "in time.", first.Body)
				within(t, writing)
				for range 10 {
					again := web.post("/", "K", "b1")
					requireReplay(t, first, again)
					require.NotContains(t, again.Header, "X-Late")
				}
				close(stop)
				writers.Wait()
				require.Equal(t, 1, l.runs())
			})
		}
	})
}

// Headers set while the answer is being recorded are too late for it.
func TestHTTPHeadersSetWhileRecording(t *testing.T) {
	t.Parallel()
	onEachProtocol(t, func(t *testing.T, proto string) {
		store := &fakeStore{Store: memstore.New()}
		var writer http.ResponseWriter
		store.complete = func(next func() error) error {
			writer.Header().Set("X-Late", "1")
			writer.Header().Set(http.TrailerPrefix+"X-Late-Trailer", "1")
			writer.Header().Set("X-Trailer", "late")
			return next()
		}
		web := newSite(t, proto, guardWith(store).Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			writer = w
			w.Header().Set("Trailer", "X-Trailer")
			_, _ = io.WriteString(w, "body")
			w.Header().Set("X-Trailer", "in time")
		})))
		first := web.post("/", "K", "")
		requireFirst(t, 200, first)
		require.NotContains(t, first.Header, "X-Late")
		require.Equal(t, http.Header{"X-Trailer": {"in time"}}, first.Trailer)
		again := web.post("/", "K", "")
		requireReplay(t, first, again)
		require.Equal(t, first.Trailer, again.Trailer)
	})
}
