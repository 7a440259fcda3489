package idempotency_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/memstore"
)

// Keys that are none are refused, without being repeated in the answer; spellings
// of one key are one key.
func TestHTTPBadInputKeys(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("k", 255)
	good := [][]string{
		{"K", `"K"`, " K ", "\tK", `"K";a`, `"K" `, `"K";a=1;b="x"`},
		{"k", `"k"`},
		{long, `"` + long + `"`},
		{`"a b"`}, {`"a,b;c"`}, {`"a\"b\\c"`}, {"!#$%&'()*+-./:<=>?@[]^_`{|}~"},
		{"0192e0a8-7e1c-7cc1-9d2f-3b1f6a2c4d5e", `"0192e0a8-7e1c-7cc1-9d2f-3b1f6a2c4d5e"`},
	}
	bad := [][]string{
		{""}, {" "}, {`""`}, {"secret,secret"}, {"secret;a"}, {"secret secret"}, {`"secret`}, {`secret"`}, {`"secret"x`}, {`"secret" ;a`}, {`"secret\x"`},
		{"secret\u00e9"}, {"secret\U0001F4B8"}, {"secret\xff"}, {"\"secret\u00e9\""}, {"secret\tsecret"},
		{long + "k"}, {`"` + long + `k"`}, {strings.Repeat("secret", 1400)},
		{"secret", "secret"}, {"secret", "secret2"}, {"", "secret"},
	}
	onEachProtocol(t, func(t *testing.T, proto string) {
		var l ledger
		seen := newEvents()
		web := newSite(t, proto, guard(seen.option()).Handler(&l))
		for i, spellings := range good {
			first := web.post("/", "", "", withHeader("Idempotency-Key", spellings[0]))
			requireFirst(t, 201, first)
			for _, spelling := range spellings {
				requireReplay(t, first, web.post("/", "", "", withHeader("Idempotency-Key", spelling)))
				require.Equal(t, i+1, l.runs())
			}
		}
		for len(seen.c) > 0 {
			seen.next(t)
		}
		for _, lines := range bad {
			a := web.post("/", "", "", withHeader("Idempotency-Key", lines...))
			p := requireProblem(t, a, 400, idempotency.CodeKeyInvalid)
			require.False(t, *p.Retryable)
			require.NotContains(t, a.Body, "secret")
			require.NotContains(t, fmt.Sprint(a.Header), "secret")
			event := seen.next(t)
			require.Equal(t, idempotency.OutcomeRefused, event.Outcome)
			require.Equal(t, idempotency.CodeKeyInvalid, event.Code)
			require.Equal(t, 400, event.Status)
			require.Error(t, event.Err)
			require.NotContains(t, event.Err.Error(), "secret")
		}
		require.Equal(t, len(good), l.runs())
	})
}

// What reaches the server as it is typed: names of any case, control characters,
// headers of 70,000 bytes.
func TestHTTPBadInputRawKeys(t *testing.T) {
	t.Parallel()
	var l ledger
	web := newSite(t, http1, guard().Handler(&l))
	request := func(header string) answer {
		return raw(t, web, "POST / HTTP/1.1\r\nHost: a\r\nUser: ann\r\n"+header+"\r\nContent-Length: 0\r\n\r\n")
	}
	first := request("IDEMPOTENCY-KEY: K")
	requireFirst(t, 201, first)
	for _, header := range []string{"idempotency-key: K", "iDEMPOTENCY-kEY:K", "Idempotency-Key: \"K\"", "Idempotency-Key: \t K \t"} {
		requireReplay(t, first, request(header))
	}
	requireProblem(t, request("Idempotency-Key: K\r\nidempotency-key: K"), 400, idempotency.CodeKeyInvalid)
	requireProblem(t, request("Idempotency-Key:"), 400, idempotency.CodeKeyInvalid)
	requireProblem(t, request("Idempotency-Key: "+strings.Repeat("x", 70_000)), 400, idempotency.CodeKeyInvalid)
	for _, c := range []string{"\x00", "\x01", "\x1b", "\x7f"} {
		require.Equal(t, 400, request("Idempotency-Key: a"+c+"b").Status) // net/http's own or ours
	}
	require.Equal(t, 1, l.runs())
}

// Bodies up to the limit are taken, larger ones refused, announced or not; and
// what an outer layer says about its limit is believed.
func TestHTTPBadInputLargeBodies(t *testing.T) {
	t.Parallel()
	const limit = 1000
	onEachProtocol(t, func(t *testing.T, proto string) {
		var l ledger
		mw := guard(idempotency.WithMaxRequestBytes(limit))
		mux := http.NewServeMux()
		mux.Handle("/", mw.Handler(&l))
		mux.Handle("/outer", http.MaxBytesHandler(mw.Handler(&l), limit/2))
		web := newSite(t, proto, mux)
		send := func(path, key string, size int, announced bool) answer {
			change := func(*http.Request) {}
			if !announced {
				change = withChunks(fill(size))
			}
			return web.post(path, key, fill(size), change)
		}
		for _, announced := range []bool{true, false} {
			for _, size := range []int{0, 1, limit - 1, limit} {
				requireFirst(t, 201, send("/", fmt.Sprintf("%d-%v", size, announced), size, announced))
			}
			for _, size := range []int{limit + 1, 5 * limit, 200 * limit} {
				p := requireProblem(t, send("/", "large", size, announced), 413, idempotency.CodeBodyTooLarge)
				require.False(t, *p.Retryable)
			}
			requireFirst(t, 201, send("/outer", fmt.Sprint(announced), limit/2, announced))
			requireProblem(t, send("/outer", "large", limit/2+1, announced), 413, idempotency.CodeBodyTooLarge)
		}
		before := l.runs()
		requireFirst(t, 201, send("/", "large", 10, true)) // nothing has been left behind
		requireFirst(t, 201, send("/", "", 5*limit, true)) // the limit is for keyed requests
		require.Equal(t, before+2, l.runs())
	})
}

// A client that asks before it sends its body is told to only if the body may be
// sent.
func TestHTTPBadInputExpectContinue(t *testing.T) {
	t.Parallel()
	onEachProtocol(t, func(t *testing.T, proto string) {
		var l ledger
		web := newSite(t, proto, guard(idempotency.WithMaxRequestBytes(1000)).Handler(l.counted(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(201)
			_, _ = io.Copy(w, r.Body)
		})))
		web.client.Transport.(*http.Transport).ExpectContinueTimeout = patience
		send := func(size int, key string) (a answer, asked, read bool) {
			var wanted, taken atomic.Bool
			r := web.request("/", key, "", withHeader("Expect", "100-continue"))
			r.Body = io.NopCloser(readFunc(func(p []byte) (int, error) {
				if taken.Swap(true) {
					return 0, io.EOF
				}
				return copy(p, fill(size)), nil
			}))
			r.ContentLength = int64(size)
			trace := &httptrace.ClientTrace{Got100Continue: func() { wanted.Store(true) }}
			a, err := web.try(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
			require.NoError(t, err)
			return a, wanted.Load(), taken.Load()
		}
		a, asked, read := send(1000, "K")
		requireFirst(t, 201, a)
		require.True(t, asked)
		require.True(t, read)
		require.Equal(t, fill(1000), a.Body)
		a, asked, read = send(1001, "L")
		requireProblem(t, a, 413, idempotency.CodeBodyTooLarge)
		require.False(t, asked)
		require.False(t, read)
		a, asked, read = send(10, "malformed,key")
		requireProblem(t, a, 400, idempotency.CodeKeyInvalid)
		require.False(t, asked || read)
		require.Equal(t, 1, l.runs())
	})
}

type readFunc func(p []byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

// An upload that breaks off is not executed and leaves nothing behind.
func TestHTTPBadInputBrokenUploads(t *testing.T) {
	t.Parallel()
	onEachProtocol(t, func(t *testing.T, proto string) {
		for _, length := range []int64{-1, 100} {
			t.Run(fmt.Sprint("length ", length), func(t *testing.T) {
				t.Parallel()
				var l ledger
				seen := newEvents()
				store := memstore.New()
				web := newSite(t, proto, guardWith(store, seen.option()).Handler(&l))
				broken := errors.New("broken")
				r := web.request("/", "K", "", func(r *http.Request) {
					r.Body = io.NopCloser(io.MultiReader(strings.NewReader(fill(50)), readFunc(func([]byte) (int, error) { return 0, broken })))
					r.ContentLength = length
				})
				_, err := web.try(r)
				require.Error(t, err)
				event := seen.next(t)
				require.Equal(t, idempotency.OutcomeRefused, event.Outcome)
				require.Equal(t, idempotency.CodeBodyUnreadable, event.Code)
				require.Error(t, event.Err)
				record, err := store.Lookup(t.Context(), scope("/", "K"))
				require.NoError(t, err)
				require.Nil(t, record)
				require.Zero(t, l.runs())
				requireFirst(t, 201, web.post("/", "K", fill(100)))
			})
		}
	})
}

// The same on the wire, where the client still listens.
func TestHTTPBadInputHalfClosed(t *testing.T) {
	t.Parallel()
	for name, rest := range map[string]string{
		"announced":       "Content-Length: 100\r\n\r\nonly this",
		"no byte of it":   "Content-Length: 100\r\n\r\n",
		"in a chunk":      "Transfer-Encoding: chunked\r\n\r\n64\r\nonly this",
		"between chunks":  "Transfer-Encoding: chunked\r\n\r\n4\r\nonly\r\n",
		"no last chunk":   "Transfer-Encoding: chunked\r\n\r\n4\r\nonly\r\n0\r\n",
		"malformed chunk": "Transfer-Encoding: chunked\r\n\r\nzz\r\nonly\r\n0\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var l ledger
			web := newSite(t, http1, guard().Handler(&l))
			conn := dial(t, web)
			_, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: a\r\nUser: ann\r\nIdempotency-Key: K\r\n"+rest)
			require.NoError(t, err)
			require.NoError(t, conn.CloseWrite())
			p := requireProblem(t, readAnswer(t, bufio.NewReader(conn)), 400, idempotency.CodeBodyUnreadable)
			require.True(t, *p.Retryable)
			require.Zero(t, l.runs())
			requireFirst(t, 201, web.post("/", "K", "the whole body"))
		})
	}
}

// meddling is what an outer layer may do to a request.
type meddling struct {
	name   string
	change func(*http.Request) *http.Request
	status int
}

func meddlings() []meddling {
	with := func(f func(*http.Request)) func(*http.Request) *http.Request {
		return func(r *http.Request) *http.Request { f(r); return r }
	}
	past := time.Now().Add(-time.Hour)
	return []meddling{
		{"shorter body", with(func(r *http.Request) { r.Body = chunked("short") }), 400},
		{"failing body", with(func(r *http.Request) {
			r.Body = io.NopCloser(readFunc(func([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }))
		}), 400},
		{"no body though announced", with(func(r *http.Request) { r.Body = http.NoBody }), 400},
		{"body nil, none announced", with(func(r *http.Request) { r.Body, r.ContentLength = nil, 0 }), 201},
		{"longer body", with(func(r *http.Request) { r.Body = chunked(fill(5000)) }), 201},
		{"cancelled", func(r *http.Request) *http.Request {
			ctx, cancel := context.WithCancel(r.Context())
			cancel()
			return r.WithContext(ctx)
		}, 400},
		{"past deadline", func(r *http.Request) *http.Request {
			ctx, cancel := context.WithDeadline(r.Context(), past)
			cancel()
			return r.WithContext(ctx)
		}, 400},
	}
}

// A layer that hands on another body than was announced, or a request that has
// ended, has nothing executed. A deadline of the request is not the handler's.
func TestHTTPBadInputFromOuterLayers(t *testing.T) {
	t.Parallel()
	for _, tt := range meddlings() {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var l ledger
			guarded := guard().Handler(&l)
			web := newSite(t, http1, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Change") != "" {
					r = tt.change(r)
				}
				guarded.ServeHTTP(w, r)
			}))
			a := web.post("/", "K", "the whole body", withHeader("Change", "1"))
			if tt.status == 201 {
				requireFirst(t, 201, a)
				return
			}
			requireProblem(t, a, 400, idempotency.CodeBodyUnreadable)
			require.Zero(t, l.runs())
			requireFirst(t, 201, web.post("/", "K", "the whole body"))
		})
	}
}
