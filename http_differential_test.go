package idempotency_test

import (
	"maps"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A guarded handler's first answer is what the handler gives without the
// middleware, and the replay is the first answer: whatever the handler does, on
// every protocol, in everything that a client can see.
func TestHTTPDifferential(t *testing.T) {
	t.Parallel()
	require.GreaterOrEqual(t, len(specimens()), 30)
	onEachProtocol(t, func(t *testing.T, proto string) {
		for _, s := range specimens() {
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				s.check(t, proto)
			})
		}
	})
}

// specimen is a handler of the differential test.
type specimen struct {
	name    string
	handler http.HandlerFunc
	header  http.Header // of the request

	// released: the answer is not complete, so the key is free again.
	released bool
	// closes: net/http closes the connection after the bare handler, and has no
	// reason to after the guarded one.
	closes bool
	// exceeds: over HTTP/2 net/http finds out too late that the bare handler
	// writes more than announced, and the client sees that. The guarded one is
	// told by Write, as over HTTP/1.1, and what was announced is sent.
	exceeds bool
	// length: over HTTP/1.1 the bare handler's answer is chunked, because
	// net/http sends it in two pieces, and the guarded one's has a length.
	length bool
	// trailer: over HTTP/1.1 net/http loses the bare handler's trailer, since it
	// was not declared and the short body was not flushed; the guarded one's is
	// sent, and so the answer is chunked.
	trailer bool
}

func (s specimen) check(t *testing.T, proto string) {
	var l ledger
	mux := http.NewServeMux()
	mux.Handle("/bare", s.handler)
	mux.Handle("/guarded", guard().Handler(l.counted(s.handler)))
	mux.HandleFunc("/probe", func(http.ResponseWriter, *http.Request) {})
	web := newSite(t, proto, mux)
	get := func(path string) (a answer, kept bool) {
		web.fresh()
		a = web.post(path, "K", "a body", func(r *http.Request) { maps.Copy(r.Header, s.header) })
		return a, web.post("/probe", "", "").Reused
	}

	bare, bareKept := get("/bare")
	first, firstKept := get("/guarded")
	if s.closes && proto == http1 {
		require.False(t, bareKept, "this is no exception any more")
		require.True(t, firstKept)
	} else {
		require.Equal(t, bareKept, firstKept, "connection kept")
	}
	s.requireSame(t, proto, bare, first)

	again, againKept := get("/guarded")
	if s.released {
		require.Equal(t, 2, l.runs())
		require.Empty(t, again.Header.Values("Idempotent-Replayed"))
		return
	}
	require.Equal(t, 1, l.runs())
	require.True(t, againKept, "a replay has no reason to close the connection")
	requireSameReplay(t, first, again)
}

// requireSame demands that the bare handler's answer and the guarded one's are the same.
func (s specimen) requireSame(t *testing.T, proto string, bare, first answer) {
	t.Helper()
	if proto == http1 && s.length {
		require.Equal(t, []string{"chunked"}, bare.Encoding, "this is no exception any more")
		require.EqualValues(t, len(first.Body), first.Length)
		bare.Encoding, bare.Length = nil, first.Length
		bare.Header.Set("Content-Length", first.Header.Get("Content-Length"))
	}
	if proto == http1 && s.trailer {
		require.Empty(t, bare.Trailer, "this is no exception any more")
		require.NotEmpty(t, first.Trailer)
		first.Encoding, first.Length, first.Trailer = nil, bare.Length, nil
		first.Header.Set("Content-Length", bare.Header.Get("Content-Length"))
	}
	if s.exceeds && proto != http1 {
		require.ErrorContains(t, bare.Err, "more than declared", "this is no exception any more")
		bare.Err, bare.Body, bare.Header = first.Err, first.Body, first.Header
	}
	if s.closes {
		bare.Close, first.Close = false, false
	}
	require.Equal(t, bare.Err != nil, first.Err != nil, "%v, %v", bare.Err, first.Err)
	if bare.Err != nil {
		require.ErrorIs(t, first.Err, bare.Err)
	}
	for _, a := range []*answer{&bare, &first} {
		a.Err, a.Reused = nil, false
		if len(a.Header["Date"]) > 0 {
			a.Header["Date"] = []string{"now"}
		}
	}
	require.Equal(t, bare, first)
}

// unrecordedInTest are the headers that a first answer may have and a replay has not.
var unrecordedInTest = []string{"Set-Cookie", "Www-Authenticate", "Connection", "X-Connection-Option"}

// requireSameReplay demands that the replay is the first answer but for the
// documented differences.
func requireSameReplay(t *testing.T, first, again answer) {
	t.Helper()
	require.NoError(t, first.Err)
	require.NoError(t, again.Err)
	want, got := first.Header.Clone(), again.Header.Clone()
	for _, name := range unrecordedInTest {
		want.Del(name)
		require.NotContains(t, got, name)
	}
	want.Set("Idempotent-Replayed", "true")
	if want.Get("Cache-Control") == "" {
		want.Set("Cache-Control", "no-store")
	}
	if len(got.Values("Date")) == 1 {
		want["Date"] = got["Date"]
	}
	length := int64(len(first.Body)) // also where the first answer came in chunks
	want.Set("Content-Length", strconv.Itoa(len(first.Body)))
	switch {
	case first.Status == http.StatusNoContent || first.Status == http.StatusNotModified:
		length = again.Length // of no body: what the client makes of it
		want.Del("Content-Length")
	case len(trailers(first)) > 0 && (again.Proto == "HTTP/1.1" || again.Length < 0):
		length = -1 // trailers instead of a length
		want.Del("Content-Length")
	}
	require.Equal(t, want, got)
	require.Equal(t, length, again.Length)
	require.Equal(t, first.Status, again.Status)
	require.Equal(t, first.Body, again.Body)
	require.Equal(t, trailers(first), trailers(again))
	require.Empty(t, again.Infos)
	require.False(t, again.Close)
}

// trailers leaves those out that were announced only.
func trailers(a answer) http.Header {
	h := make(http.Header)
	for name, values := range a.Trailer {
		if len(values) > 0 {
			h[name] = values
		}
	}
	return h
}

// fill returns n bytes of text.
func fill(n int) string { return strings.Repeat("0123456789abcdef", n/16+1)[:n] }
