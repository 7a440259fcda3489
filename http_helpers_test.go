package idempotency_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/memstore"
)

// patience is how long a test waits for what must happen. It is never waited
// out, unless something is broken.
const patience = 30 * time.Second

// The protocols that the middleware is tried on.
const (
	http1 = "http1"
	http2 = "http2"
	h2c   = "h2c"
)

// onEachProtocol runs f as a subtest for every protocol.
func onEachProtocol(t *testing.T, f func(t *testing.T, proto string)) {
	t.Helper()
	for _, proto := range []string{http1, http2, h2c} {
		t.Run(proto, func(t *testing.T) {
			t.Parallel()
			f(t, proto)
		})
	}
}

// site is a server and a client for it.
type site struct {
	t      *testing.T
	server *httptest.Server
	client *http.Client
	logged *lockedText // what net/http had to say
}

func newSite(t *testing.T, proto string, h http.Handler) *site {
	t.Helper()
	s := &site{t: t, server: httptest.NewUnstartedServer(h), logged: new(lockedText)}
	s.server.Config.ErrorLog = log.New(s.logged, "", 0)
	var protocols http.Protocols
	switch proto {
	case http1:
		protocols.SetHTTP1(true)
		s.server.Start()
	case http2:
		protocols.SetHTTP2(true)
		s.server.EnableHTTP2 = true
		s.server.StartTLS()
	case h2c:
		protocols.SetUnencryptedHTTP2(true)
		s.server.Config.Protocols = &protocols
		s.server.Start()
	}
	t.Cleanup(s.server.Close)
	s.client = s.server.Client()
	transport, ok := s.client.Transport.(*http.Transport)
	require.True(t, ok)
	transport.Protocols = &protocols
	transport.DisableCompression = true
	s.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return s
}

// lockedText is a text that many may write to.
type lockedText struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// informational is a 1xx answer.
type informational struct {
	Status int
	Header http.Header
}

// answer is all that a client can see of an answer.
type answer struct {
	Status   int
	Proto    string
	Header   http.Header
	Length   int64
	Encoding []string
	Close    bool
	Body     string
	Err      error // of reading the body
	Trailer  http.Header
	Infos    []informational
	Reused   bool // the connection had been used before
}

// request makes a keyed POST of the user ann.
func (s *site) request(path, key, body string, changes ...func(*http.Request)) *http.Request {
	s.t.Helper()
	var content io.Reader
	if body != "" {
		content = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.server.URL+path, content)
	require.NoError(s.t, err)
	r.Header.Set("User", "ann")
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	for _, change := range changes {
		change(r)
	}
	return r
}

func withHeader(name string, values ...string) func(*http.Request) {
	return func(r *http.Request) { r.Header[name] = values }
}

func withMethod(method string) func(*http.Request) {
	return func(r *http.Request) { r.Method = method }
}

func asUser(user string) func(*http.Request) { return withHeader("User", user) }

// post sends such a request and returns the answer, which there must be.
func (s *site) post(path, key, body string, changes ...func(*http.Request)) answer {
	s.t.Helper()
	a, err := s.try(s.request(path, key, body, changes...))
	require.NoError(s.t, err)
	return a
}

// try sends r. It may be used by many goroutines.
func (s *site) try(r *http.Request) (a answer, err error) {
	var mu sync.Mutex
	trace := &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) {
			mu.Lock()
			defer mu.Unlock()
			a.Reused = info.Reused
		},
		Got1xxResponse: func(code int, header textproto.MIMEHeader) error {
			mu.Lock()
			defer mu.Unlock()
			a.Infos = append(a.Infos, informational{code, http.Header(header)})
			return nil
		},
	}
	resp, err := s.client.Do(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	mu.Lock()
	defer mu.Unlock()
	a.Status, a.Proto, a.Header = resp.StatusCode, resp.Proto, resp.Header
	a.Length, a.Encoding, a.Close = resp.ContentLength, resp.TransferEncoding, resp.Close
	a.Body, a.Err, a.Trailer = string(body), err, resp.Trailer
	return a, nil
}

// fresh has the next request use a connection of its own, so that Go's transport
// does not repeat it when the connection breaks.
func (s *site) fresh() { s.client.CloseIdleConnections() }

// ledger is a handler with a side effect that is counted, and an answer that no
// other run gives.
type ledger struct {
	mu sync.Mutex
	n  int
}

func (l *ledger) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	n := l.add()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Location", fmt.Sprintf("/things/%d", n))
	w.WriteHeader(http.StatusCreated)
	_, _ = fmt.Fprintf(w, `{"n":%d,"nonce":%q}`, n, rand.Text())
}

func (l *ledger) add() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n++
	return l.n
}

func (l *ledger) runs() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.n
}

// counted counts the runs of h in l.
func (l *ledger) counted(h http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.add()
		h(w, r)
	})
}

// byHeader is a UserFunc.
func byHeader(r *http.Request) (string, error) { return r.Header.Get("User"), nil }

// guard makes a Middleware with a memory store.
func guard(opts ...idempotency.Option) *idempotency.Middleware {
	return guardWith(memstore.New(), opts...)
}

func guardWith(store idempotency.Store, opts ...idempotency.Option) *idempotency.Middleware {
	quiet := idempotency.WithLogger(slog.New(slog.DiscardHandler))
	return idempotency.New(store, byHeader, append([]idempotency.Option{quiet}, opts...)...)
}

// drained waits for what goes on behind requests.
func drained(t *testing.T, mw *idempotency.Middleware) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, mw.Drain(ctx))
}

// requireReplay demands that again is first, repeated.
func requireReplay(t *testing.T, first, again answer) {
	t.Helper()
	require.Equal(t, first.Status, again.Status, again.Body)
	require.Equal(t, first.Body, again.Body)
	require.NoError(t, again.Err)
	require.Equal(t, []string{"true"}, again.Header.Values("Idempotent-Replayed"))
}

// requireFirst demands that a is a run's own answer.
func requireFirst(t *testing.T, status int, a answer) {
	t.Helper()
	require.Equal(t, status, a.Status, a.Body)
	require.NoError(t, a.Err)
	require.Empty(t, a.Header.Values("Idempotent-Replayed"))
}

// problem is a problem document with all members that there may be.
type problem struct {
	Type           string `json:"type"`
	Title          string `json:"title"`
	Status         int    `json:"status"`
	Detail         string `json:"detail"`
	Error          string `json:"error"`
	Retryable      *bool  `json:"retryable"`
	RetryAfter     *int64 `json:"retry_after"`
	OriginalStatus *int   `json:"original_status"`
}

// requireProblem demands that a is a refusal with that status and code.
func requireProblem(t *testing.T, a answer, status int, code idempotency.Code) problem {
	t.Helper()
	require.Equal(t, status, a.Status, a.Body)
	require.Equal(t, "application/problem+json", a.Header.Get("Content-Type"))
	require.Equal(t, "no-store", a.Header.Get("Cache-Control"))
	require.Empty(t, a.Header.Values("Idempotent-Replayed"))
	var p problem
	decoder := json.NewDecoder(strings.NewReader(a.Body))
	decoder.DisallowUnknownFields()
	require.NoError(t, decoder.Decode(&p), a.Body)
	require.Equal(t, string(code), p.Error)
	require.Equal(t, status, p.Status)
	require.NotEmpty(t, p.Title)
	require.NotEmpty(t, p.Detail)
	require.NotNil(t, p.Retryable)
	return p
}

// within returns what comes out of c.
func within[T any](t *testing.T, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(patience):
		require.FailNow(t, "nothing came")
	}
	return v
}

// await waits for c in a handler, which must not outlive its test.
func await[T any](t *testing.T, c <-chan T) (v T) {
	select {
	case v = <-c:
	case <-t.Context().Done():
	}
	return v
}

// events collects what an Observer is told.
type events struct{ c chan idempotency.Event }

func newEvents() *events { return &events{make(chan idempotency.Event, 1000)} }

func (e *events) option() idempotency.Option {
	return idempotency.WithObserver(func(_ context.Context, event idempotency.Event) { e.c <- event })
}

// next returns the next event, which must have come or be coming.
func (e *events) next(t *testing.T) idempotency.Event {
	t.Helper()
	return within(t, e.c)
}
