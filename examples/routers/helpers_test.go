package routers_test

import (
	"bufio"
	"compress/gzip"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/examples/routers"
	"github.com/retrysafe/idempotency/memstore"
)

func TestMain(m *testing.M) {
	gin.SetMode(gin.TestMode) // gin's own global; it prints every route otherwise
	m.Run()
}

// patience is how long a test waits for what must happen.
const patience = 30 * time.Second

// site is the API on one router, behind a real server.
type site struct {
	t      *testing.T
	orders *routers.Orders
	events chan idempotency.Event
	server *httptest.Server
}

// onEach runs f as a subtest on every router.
func onEach(t *testing.T, f func(t *testing.T, s *site)) {
	t.Helper()
	for _, router := range routers.Routers() {
		t.Run(router.Name, func(t *testing.T) {
			t.Parallel()
			s := &site{t: t, orders: routers.NewOrders(), events: make(chan idempotency.Event, 100)}
			mw := idempotency.New(memstore.New(), routers.User, idempotency.WithObserver(s.observe))
			s.server = serve(t, router.New(s.orders, mw))
			t.Cleanup(func() { // before the server's, which waits for its handlers
				for _, id := range []string{"1", "2"} {
					s.orders.Ship(id)
				}
			})
			f(t, s)
		})
	}
}

func serve(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Start()
	t.Cleanup(server.Close)
	return server
}

// answer is what a client sees.
type answer struct {
	status int
	header http.Header
	body   string
}

func (a answer) replayed() bool { return a.header.Get("Idempotent-Replayed") == "true" }

// post sends ann's request; header holds names and values in turn.
func (s *site) post(path, key, body string, header ...string) answer {
	s.t.Helper()
	return s.do(http.MethodPost, path, key, body, header...)
}

func (s *site) do(method, path, key, body string, header ...string) answer {
	s.t.Helper()
	resp := s.open(method, path, key, body, header...)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(decoded(s.t, resp))
	require.NoError(s.t, err)
	return answer{resp.StatusCode, resp.Header, string(text)}
}

// decoded returns the body of an answer, which may be compressed.
func decoded(t *testing.T, resp *http.Response) io.Reader {
	t.Helper()
	if resp.Header.Get("Content-Encoding") != "gzip" {
		return resp.Body
	}
	z, err := gzip.NewReader(resp.Body)
	require.NoError(t, err)
	return z
}

// open sends a request and returns when the header of the answer is there.
func (s *site) open(method, path, key, body string, header ...string) *http.Response {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.server.URL+path, strings.NewReader(body))
	require.NoError(s.t, err)
	r.Header.Set("Authorization", "Bearer ann-1")
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept-Encoding", "identity")
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := s.server.Client().Do(r)
	require.NoError(s.t, err)
	return resp
}

// event returns how the next request ended. A replay's answer may be there
// before its event.
func (s *site) event() idempotency.Event {
	s.t.Helper()
	select {
	case e := <-s.events:
		return e
	case <-time.After(patience):
		s.t.Fatal("no event")
		return idempotency.Event{}
	}
}

// requireReplay asserts that again is first once more.
func requireReplay(t *testing.T, first, again answer) {
	t.Helper()
	require.False(t, first.replayed())
	require.True(t, again.replayed(), "%d %s", again.status, again.body)
	require.Equal(t, first.status, again.status)
	require.Equal(t, first.body, again.body)
	for _, name := range []string{"Content-Type", "Location"} {
		require.Equal(t, first.header.Values(name), again.header.Values(name))
	}
}

// requireProblem asserts that a is a refusal of the middleware.
func requireProblem(t *testing.T, status int, code idempotency.Code, a answer) {
	t.Helper()
	require.Equal(t, status, a.status, a.body)
	require.Equal(t, "application/problem+json", a.header.Get("Content-Type"))
	require.Contains(t, a.body, `"error":"`+string(code)+`"`)
}

// line reads one line of a stream.
func line(t *testing.T, r *bufio.Reader) string {
	t.Helper()
	s, err := r.ReadString('\n')
	require.NoError(t, err)
	return s
}
