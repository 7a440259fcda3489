package idempotency_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
)

// chunked hides the length of a text.
func chunked(s string) io.ReadCloser { return io.NopCloser(bufio.NewReader(strings.NewReader(s))) }

func withChunks(body string) func(*http.Request) {
	return func(r *http.Request) { r.Body, r.ContentLength, r.GetBody = chunked(body), -1, nil }
}

// The handler gets the request that it would have got: the same bytes, length,
// encoding and trailers.
func TestHTTPRequestIsRestored(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		body   string
		change func(*http.Request)
	}{
		{name: "no body"},
		{name: "body", body: "some text"},
		{name: "large body", body: fill(1 << 20)},
		{name: "chunked", change: withChunks("some text")},
		{name: "large and chunked", change: withChunks(fill(1 << 20))},
		{name: "chunked and empty", change: withChunks("")},
		{name: "trailers", change: func(r *http.Request) {
			withChunks("some text")(r)
			r.Trailer = http.Header{"X-Sum": {"12", "34"}}
		}},
	}
	look := func(w http.ResponseWriter, r *http.Request) {
		var seen bytes.Buffer // until the body has been read
		_, _ = fmt.Fprintln(&seen, r.Method, r.Proto, r.Host, r.RequestURI, r.URL, r.ContentLength, r.TransferEncoding, r.GetBody == nil, r.Body == http.NoBody)
		for name, values := range r.Header {
			if name != "Idempotency-Key" {
				w.Header()["Got-"+name] = values
			}
		}
		body, err := io.ReadAll(r.Body)
		_, _ = fmt.Fprintf(&seen, "%q %v\n", body, err)
		n, err := r.Body.Read(make([]byte, 10))
		_, _ = fmt.Fprintln(&seen, n, err)
		_, _ = fmt.Fprintln(&seen, r.Trailer)
		_, _ = fmt.Fprintln(&seen, r.Body.Close())
		_, _ = seen.WriteTo(w)
	}
	onEachProtocol(t, func(t *testing.T, proto string) {
		web := newSite(t, proto, guard(idempotency.WithMaxResponseBytes(1<<30)).Handler(http.HandlerFunc(look)))
		for _, tt := range tests {
			change := tt.change
			if change == nil {
				change = func(*http.Request) {}
			}
			bare := web.post("/a?b=c", "", tt.body, change)
			guarded := web.post("/a?b=c", tt.name, tt.body, change, withHeader("Idempotency-Key", fmt.Sprintf("%q", tt.name)))
			require.True(t, bare.Body == guarded.Body, "%s: %.500s\n%.500s", tt.name, bare.Body, guarded.Body)
			for _, a := range []answer{bare, guarded} {
				a.Header.Del("Date")
			}
			require.Equal(t, bare.Header, guarded.Header, tt.name)
		}
	})
}

// What net/http makes of a body works on the restored one.
func TestHTTPRequestForms(t *testing.T) {
	t.Parallel()
	var form bytes.Buffer
	parts := multipart.NewWriter(&form)
	require.NoError(t, parts.WriteField("a", "1"))
	file, err := parts.CreateFormFile("f", "f.txt")
	require.NoError(t, err)
	_, err = file.Write([]byte("content"))
	require.NoError(t, err)
	require.NoError(t, parts.Close())
	onEachProtocol(t, func(t *testing.T, proto string) {
		mux := http.NewServeMux()
		mw := guard()
		handle := func(path string, h http.HandlerFunc) { mux.Handle(path, mw.Handler(h)) }
		handle("/form", func(w http.ResponseWriter, r *http.Request) { _, _ = fmt.Fprint(w, r.FormValue("a")) })
		handle("/json", func(w http.ResponseWriter, r *http.Request) {
			var v struct{ A int }
			_, _ = fmt.Fprint(w, json.NewDecoder(r.Body).Decode(&v), v.A)
		})
		handle("/multipart", func(w http.ResponseWriter, r *http.Request) {
			err := r.ParseMultipartForm(1 << 20)
			_, header, _ := r.FormFile("f")
			_, _ = fmt.Fprintf(w, "%v %s %s %d", err, r.FormValue("a"), header.Filename, header.Size)
		})
		handle("/closed", func(w http.ResponseWriter, r *http.Request) {
			_ = r.Body.Close()
			n, err := r.Body.Read(make([]byte, 1))
			_, _ = fmt.Fprint(w, n, err)
		})
		handle("/limited", func(w http.ResponseWriter, r *http.Request) {
			_, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 3))
			_, _ = fmt.Fprint(w, err)
		})
		web := newSite(t, proto, mux)
		urlencoded := withHeader("Content-Type", "application/x-www-form-urlencoded")
		require.Equal(t, "x y", web.post("/form", "K", "a=x+y", urlencoded).Body)
		require.Equal(t, "<nil> 7", web.post("/json", "K", `{"a":7}`).Body)
		require.Equal(t, "<nil> 1 f.txt 7", web.post("/multipart", "K", form.String(), withHeader("Content-Type", parts.FormDataContentType())).Body)
		require.Equal(t, "0 "+http.ErrBodyReadAfterClose.Error(), web.post("/closed", "K", "text").Body)
		require.Equal(t, "http: request body too large", web.post("/limited", "K", "long text").Body)
	})
}

// Without a key, or with another method, or skipped, a request goes to the very
// handler with the very writer and body.
func TestHTTPRequestPassesThrough(t *testing.T) {
	t.Parallel()
	onEachProtocol(t, func(t *testing.T, proto string) {
		type seen struct {
			w    http.ResponseWriter
			body io.ReadCloser
		}
		var l ledger
		var outer, inner seen
		mw := guard(idempotency.WithSkip(func(r *http.Request) bool { return r.URL.Path == "/skipped" }))
		guarded := mw.Handler(l.counted(func(w http.ResponseWriter, r *http.Request) {
			inner = seen{w, r.Body}
			if idempotency.FromContext(r.Context()) != nil {
				w.WriteHeader(500)
			}
		}))
		web := newSite(t, proto, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			outer = seen{w, r.Body}
			guarded.ServeHTTP(w, r)
		}))
		requests := []*http.Request{web.request("/", "", "body"), web.request("/skipped", "K", "body")}
		for _, method := range []string{"GET", "HEAD", "OPTIONS", "PUT", "DELETE"} {
			requests = append(requests, web.request("/", "K", "", withMethod(method)))
		}
		for _, r := range requests {
			for range 2 {
				before := l.runs()
				a, err := web.try(r)
				require.NoError(t, err)
				requireFirst(t, 200, a)
				require.Equal(t, before+1, l.runs())
				require.True(t, outer == inner, "%s %s", r.Method, r.URL) // the same, not alike
				if r.GetBody != nil {
					r.Body, err = r.GetBody()
					require.NoError(t, err)
				}
			}
		}
	})
}

// WithMethods, WithKeyHeader and WithRequiredKey do what they say.
func TestHTTPRequestOtherRules(t *testing.T) {
	t.Parallel()
	onEachProtocol(t, func(t *testing.T, proto string) {
		var l ledger
		mw := guard(idempotency.WithMethods("PUT", "GET"), idempotency.WithKeyHeader("x-request-KEY"), idempotency.WithRequiredKey())
		web := newSite(t, proto, mw.Handler(&l))
		requireFirst(t, 201, web.post("/", "K", "b1"))
		requireFirst(t, 201, web.post("/", "K", "b1")) // not guarded
		for _, method := range []string{"PUT", "GET"} {
			requireProblem(t, web.post("/", "K", "", withMethod(method)), 400, idempotency.CodeKeyMissing)
			key := withHeader("X-Request-Key", "K")
			first := web.post("/", "", "", withMethod(method), key)
			requireFirst(t, 201, first)
			requireReplay(t, first, web.post("/", "", "", withMethod(method), key))
		}
		require.Equal(t, 4, l.runs())
	})
}
