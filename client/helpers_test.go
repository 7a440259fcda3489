package client_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency/client"
)

const payment = `{"amount":4200,"currency":"EUR"}`

// roundTripper is a Base made of a function.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// sighting is one request as Base or a server saw it.
type sighting struct {
	Key     []string
	Body    string
	Length  int64
	Chunked bool
	Whole   bool // the body could be read to its end
	At      time.Time
}

// log records sightings.
type sightings struct {
	mu  sync.Mutex
	all []sighting
}

func (s *sightings) see(r *http.Request) (n int) {
	e := sighting{Length: r.ContentLength, Chunked: len(r.TransferEncoding) > 0, Whole: true, At: time.Now()}
	for k, v := range r.Header { // a Base sees the spelling, a server does not
		if http.CanonicalHeaderKey(k) == "Idempotency-Key" {
			e.Key = append(e.Key, v...)
		}
	}
	if r.Body != nil {
		b, err := io.ReadAll(r.Body)
		r.Body.Close()
		e.Body, e.Whole = string(b), err == nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, e)
	return len(s.all)
}

func (s *sightings) list() []sighting {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]sighting(nil), s.all...)
}

// dropTorn forgets requests whose body did not arrive whole.
func (s *sightings) dropTorn() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = slices.DeleteFunc(s.all, func(e sighting) bool { return !e.Whole })
}

// requireSame checks that all sightings are of one operation and returns its key.
func (s *sightings) requireSame(t *testing.T, attempts int, body string) string {
	t.Helper()
	all := s.list()
	require.Len(t, all, attempts)
	for _, e := range all {
		require.Len(t, e.Key, 1)
		require.NotEmpty(t, e.Key[0])
		require.Equal(t, all[0].Key, e.Key)
		require.Equal(t, body, e.Body)
		require.True(t, e.Whole)
		require.Equal(t, all[0].Length, e.Length)
		require.Equal(t, all[0].Chunked, e.Chunked)
	}
	return all[0].Key[0]
}

// script is a Base that gives one answer or error after the other, the last one
// for ever.
type script struct {
	sightings
	steps []step
}

type step struct {
	status int
	header http.Header
	body   string
	err    error
	hang   bool // until the request's context ends
}

func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	n := s.see(r)
	st := s.steps[min(n, len(s.steps))-1]
	if st.hang {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	if st.err != nil {
		return nil, st.err
	}
	h := st.header.Clone()
	if h == nil {
		h = http.Header{}
	}
	return &http.Response{
		StatusCode: st.status, Header: h, Request: r, ProtoMajor: 1, ProtoMinor: 1,
		Body: io.NopCloser(strings.NewReader(st.body)), ContentLength: int64(len(st.body)),
	}, nil
}

func headers(kv ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(kv); i += 2 {
		h.Add(kv[i], kv[i+1])
	}
	return h
}

func problemStep(status int, body string, kv ...string) step {
	return step{status: status, body: body, header: headers(append(kv, "Content-Type", "application/problem+json")...)}
}

func post(t *testing.T, ctx context.Context, url string, body io.Reader) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, body)
	require.NoError(t, err)
	return req
}

// roundTrip sends req and reads the answer.
func roundTrip(t *testing.T, rt http.RoundTripper, req *http.Request) (*http.Response, string, error) {
	t.Helper()
	resp, err := (&http.Client{Transport: rt}).Do(req)
	if err != nil {
		return nil, "", err
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	return resp, string(body), err
}

// unknown returns the UnknownOutcomeError in err.
func unknown(t *testing.T, err error) *client.UnknownOutcomeError {
	t.Helper()
	var u *client.UnknownOutcomeError
	require.ErrorAs(t, err, &u)
	return u
}

// fast is a Transport whose waits are too short to notice.
func fast(base http.RoundTripper) *client.Transport {
	return &client.Transport{Base: base, MinBackoff: time.Millisecond, MaxBackoff: 2 * time.Millisecond, MaxRetryAfter: time.Millisecond, RetryBudget: -1}
}

// ownBase is an http.Transport of the test's own.
func ownBase(t *testing.T) *http.Transport {
	base := &http.Transport{}
	t.Cleanup(base.CloseIdleConnections)
	return base
}

func server(t *testing.T, h http.HandlerFunc) *httptest.Server {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

var errReset = errors.New("connection reset")

// bodyKind makes a request body of one kind.
type bodyKind struct {
	name string
	want string
	make func(t *testing.T) io.Reader
}

func bodyKinds() []bodyKind {
	return []bodyKind{
		{"none", "", func(*testing.T) io.Reader { return nil }},
		{"bytes", payment, func(*testing.T) io.Reader { return bytes.NewReader([]byte(payment)) }},
		{"buffer", payment, func(*testing.T) io.Reader { return bytes.NewBufferString(payment) }},
		{"string", payment, func(*testing.T) io.Reader { return strings.NewReader(payment) }},
		{"reader", payment, func(*testing.T) io.Reader { return struct{ io.Reader }{strings.NewReader(payment)} }},
		{"pipe", payment, func(*testing.T) io.Reader {
			r, w := io.Pipe()
			go func() {
				_, err := io.WriteString(w, payment)
				w.CloseWithError(err)
			}()
			return r
		}},
		{"file", payment, func(t *testing.T) io.Reader {
			name := filepath.Join(t.TempDir(), "body")
			require.NoError(t, os.WriteFile(name, []byte(payment), 0o600))
			f, err := os.Open(name)
			require.NoError(t, err)
			return f
		}},
	}
}

// closeCounter is a body without GetBody that counts how often it is closed.
type closeCounter struct {
	io.Reader
	closed atomic.Int32
}

func (c *closeCounter) Close() error {
	c.closed.Add(1)
	return nil
}
