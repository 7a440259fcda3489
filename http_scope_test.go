package idempotency_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/memstore"
)

// dial opens a plain connection to web, for what no decent client sends.
func dial(t *testing.T, web *site) *net.TCPConn {
	t.Helper()
	conn, err := net.Dial("tcp", web.server.Listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	tcp, ok := conn.(*net.TCPConn)
	require.True(t, ok)
	return tcp
}

// raw sends text as it stands, and returns the answer to it.
func raw(t *testing.T, web *site, text string) answer {
	t.Helper()
	conn := dial(t, web)
	_, err := io.WriteString(conn, text)
	require.NoError(t, err)
	return readAnswer(t, bufio.NewReader(conn))
}

func readAnswer(t *testing.T, from *bufio.Reader) answer {
	t.Helper()
	resp, err := http.ReadResponse(from, &http.Request{Method: http.MethodPost})
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	return answer{Status: resp.StatusCode, Proto: resp.Proto, Header: resp.Header, Length: resp.ContentLength, Close: resp.Close, Body: string(body), Err: err}
}

// One key of two users is two keys.
func TestHTTPScopeUsers(t *testing.T) {
	t.Parallel()
	onEachProtocol(t, func(t *testing.T, proto string) {
		var l ledger
		web := newSite(t, proto, guard().Handler(&l))
		users := []string{"ann", "bob", "Ann", "ann ann", "ann|POST /", "ann%7C", "ann|", "|", "%", "ann/", strings.Repeat("a", 300), strings.Repeat("a", 301), "ünï"}
		firsts := make([]answer, len(users))
		for i, user := range users {
			firsts[i] = web.post("/", "K", "b1", asUser(user))
			requireFirst(t, 201, firsts[i])
		}
		for i, user := range users {
			requireReplay(t, firsts[i], web.post("/", "K", "b1", asUser(user)))
		}
		require.Equal(t, len(users), l.runs())
		other := web.post("/", "K", "another body", asUser("carl"))
		requireFirst(t, 201, other)
	})
}

// A request of nobody is refused, with what the UserFunc has to say.
func TestHTTPScopeNobody(t *testing.T) {
	t.Parallel()
	refusal := &idempotency.Error{Code: "no_tenant", Status: 403, Detail: "Name a tenant.", Header: http.Header{"Www-Authenticate": {"Basic"}}}
	users := map[string]idempotency.UserFunc{
		"empty":   func(*http.Request) (string, error) { return "", nil },
		"error":   func(*http.Request) (string, error) { return "ann", errors.New("secret cause") },
		"refusal": func(*http.Request) (string, error) { return "ann", fmt.Errorf("secret cause: %w", refusal) },
		"header":  idempotency.UserFromHeader("x-user"),
	}
	for name, user := range users {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var l ledger
			seen := newEvents()
			web := newSite(t, http1, idempotency.New(memstore.New(), user, seen.option()).Handler(&l))
			for _, lines := range [][]string{nil, {""}, {"ann", "ann"}, {"ann", "bob"}} {
				a := web.post("/", "K", "b1", withHeader("X-User", lines...))
				require.NotContains(t, a.Body, "secret")
				code := idempotency.CodeUserUnknown
				if name == "refusal" {
					code = "no_tenant"
					requireProblem(t, a, 403, code)
					require.Equal(t, "Basic", a.Header.Get("Www-Authenticate"))
				} else {
					requireProblem(t, a, 401, code)
				}
				event := seen.next(t)
				require.Equal(t, idempotency.OutcomeRefused, event.Outcome)
				require.Equal(t, code, event.Code)
			}
			require.Zero(t, l.runs())
			if name == "header" {
				requireFirst(t, 201, web.post("/", "K", "b1", withHeader("X-User", "ann")))
			}
		})
	}
}

// One key of one user on two endpoints is two keys; another query or body is
// another request.
func TestHTTPScopeEndpoints(t *testing.T) {
	t.Parallel()
	onEachProtocol(t, func(t *testing.T, proto string) {
		var l ledger
		mux := http.NewServeMux()
		mw := guard(idempotency.WithMethods("POST", "PUT", "DELETE", "PATCH"))
		mux.Handle("/orders/{id}/pay", mw.Handler(&l))
		mux.Handle("/api/", http.StripPrefix("/api", mw.Handler(&l)))
		mux.Handle("/v2/", http.StripPrefix("/v2", mw.Handler(&l)))
		mux.Handle("/", mw.Handler(&l))
		web := newSite(t, proto, mux)
		requests := []struct{ method, path string }{
			{"POST", "/a"}, {"PUT", "/a"}, {"DELETE", "/a"}, {"PATCH", "/a"}, {"POST", "/b"}, {"POST", "/a/"}, {"POST", "/A"},
			{"POST", "/orders/1/pay"}, {"POST", "/orders/2/pay"}, {"POST", "/orders/1%2F2/pay"}, {"POST", "/orders/1%2f2/pay"},
			{"POST", "/x%2Fy"}, {"POST", "/x/y"}, {"POST", "/x%7Cy"}, {"POST", "/caf%C3%A9"},
			{"POST", "/api/things"}, {"POST", "/v2/things"}, {"POST", "/things"}, {"POST", "/" + strings.Repeat("p", 400)}, {"POST", "/" + strings.Repeat("p", 401)},
		}
		firsts := make([]answer, len(requests))
		for i, r := range requests {
			firsts[i] = web.post(r.path, "K", "b1", withMethod(r.method))
			requireFirst(t, 201, firsts[i])
		}
		for i, r := range requests {
			requireReplay(t, firsts[i], web.post(r.path, "K", "b1", withMethod(r.method)))
			requireProblem(t, web.post(r.path, "K", "b2", withMethod(r.method)), 409, idempotency.CodeKeyReused)
			requireProblem(t, web.post(r.path+"?id=1", "K", "b1", withMethod(r.method)), 409, idempotency.CodeKeyReused)
		}
		require.Equal(t, len(requests), l.runs())

		first := web.post("/q?a=1&b=2", "K", "b1")
		requireReplay(t, first, web.post("/q?a=1&b=2", "K", "b1"))
		requireProblem(t, web.post("/q?b=2&a=1", "K", "b1"), 409, idempotency.CodeKeyReused) // as sent
		requireReplay(t, web.post("/empty", "K", ""), web.post("/empty?", "K", ""))
	})
}

// The absolute form that proxies send is the same endpoint.
func TestHTTPScopeAbsoluteForm(t *testing.T) {
	t.Parallel()
	var l ledger
	web := newSite(t, http1, guard().Handler(&l))
	request := func(target, version string) answer {
		return raw(t, web, "POST "+target+" HTTP/"+version+"\r\nHost: shop.example\r\nUser: ann\r\nIdempotency-Key: K\r\nContent-Length: 2\r\n\r\nb1")
	}
	tests := []struct{ origin, absolute string }{
		{"/pay", "http://shop.example/pay"},
		{"/pay/1%2F2?a=b", "http://shop.example/pay/1%2F2?a=b"},
		{"/", "HTTP://shop.example"},
		{"/a://b//c", "http://shop.example/a://b//c"},
		{"/?c", "https://shop.example?c"},
	}
	for i, tt := range tests {
		if i == len(tests)-1 { // the same endpoint with another query
			requireProblem(t, request(tt.origin, "1.1"), 409, idempotency.CodeKeyReused)
			requireProblem(t, request(tt.absolute, "1.1"), 409, idempotency.CodeKeyReused)
			continue
		}
		first := request(tt.origin, "1.1")
		requireFirst(t, 201, first)
		requireReplay(t, first, request(tt.absolute, "1.1"))
		require.Equal(t, i+1, l.runs())
	}
	requireReplay(t, request("/pay", "1.1"), request("/pay", "1.0")) // and an old client's
}

// With a route pattern as the endpoint, another resource's request is another
// request under the same key, never another resource's answer.
func TestHTTPScopeRoutePattern(t *testing.T) {
	t.Parallel()
	onEachProtocol(t, func(t *testing.T, proto string) {
		var l ledger
		store := memstore.New()
		mux := http.NewServeMux()
		pattern := idempotency.WithEndpoint(func(r *http.Request) string { return r.Pattern })
		mw := guardWith(store, pattern, idempotency.WithMethods("POST", "PUT"))
		mux.Handle("/orders/{id}/pay", mw.Handler(&l))
		web := newSite(t, proto, mux)
		first := web.post("/orders/1/pay", "K", "")
		requireFirst(t, 201, first)
		requireReplay(t, first, web.post("/orders/1/pay", "K", ""))
		requireProblem(t, web.post("/orders/2/pay", "K", ""), 409, idempotency.CodeKeyReused)
		requireProblem(t, web.post("/orders/1%2F/pay", "K", ""), 409, idempotency.CodeKeyReused)
		requireProblem(t, web.post("/orders/1/pay", "K", "", withMethod("PUT")), 409, idempotency.CodeKeyReused)
		requireFirst(t, 201, web.post("/orders/2/pay", "L", ""))
		record, err := store.Lookup(t.Context(), idempotency.NewKey("ann", "/orders/{id}/pay", "K"))
		require.NoError(t, err)
		require.NotNil(t, record)
		require.Equal(t, 2, l.runs())
	})
}

// A handler guarded twice by one Middleware, or one made from it, is guarded
// once; by another Middleware, twice.
func TestHTTPScopeDoubleGuard(t *testing.T) {
	t.Parallel()
	mw := guard()
	tests := map[string]func(http.Handler) http.Handler{
		"the same": func(h http.Handler) http.Handler { return mw.Handler(mw.Handler(h)) },
		"made by With": func(h http.Handler) http.Handler {
			return mw.Handler(mw.With(idempotency.WithRequiredKey()).Handler(h))
		},
		"with a layer":   func(h http.Handler) http.Handler { return mw.Handler(http.StripPrefix("/a", mw.Handler(h))) },
		"three times":    func(h http.Handler) http.Handler { return mw.Handler(mw.Handler(mw.Handler(h))) },
		"another one":    func(h http.Handler) http.Handler { return mw.Handler(guard().Handler(h)) },
		"another bigger": func(h http.Handler) http.Handler { return guard().Handler(mw.Handler(h)) },
	}
	for name, wrap := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var l ledger
			web := newSite(t, http1, wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				w.Header().Set("Got", string(body))
				l.ServeHTTP(w, r)
			})))
			key := strings.ReplaceAll(name, " ", "-")
			first := web.post("/a/b", key, "b1")
			requireFirst(t, 201, first)
			require.Equal(t, "b1", first.Header.Get("Got"))
			requireReplay(t, first, web.post("/a/b", key, "b1"))
			requireProblem(t, web.post("/a/b", key, "b2"), 409, idempotency.CodeKeyReused)
			require.Equal(t, 1, l.runs())
		})
	}
}

// With changes what it is told, for one route, and shares the records.
func TestHTTPScopeWith(t *testing.T) {
	t.Parallel()
	var l ledger
	mw := guard(idempotency.WithMismatchStatus(422))
	strict := mw.With(idempotency.WithRequiredKey(), idempotency.WithKeyCheck(idempotency.RequireUUID), idempotency.WithReplayHeader("X-Again"))
	web := newSite(t, http1, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Strict") != "" {
			strict.Handler(&l).ServeHTTP(w, r)
			return
		}
		mw.Handler(&l).ServeHTTP(w, r)
	}))
	const uuid = "0192E0A8-7e1c-7cc1-9d2f-3b1f6a2c4d5e"
	first := web.post("/", uuid, "b1")
	requireReplay(t, first, web.post("/", uuid, "b1"))
	again := web.post("/", uuid, "b1", withHeader("Strict", "1"))
	require.Equal(t, first.Body, again.Body)
	require.Equal(t, "true", again.Header.Get("X-Again"))
	require.Empty(t, again.Header.Get("Idempotent-Replayed"))
	requireProblem(t, web.post("/", uuid, "b2", withHeader("Strict", "1")), 422, idempotency.CodeKeyReused)
	requireProblem(t, web.post("/", "K", "b1", withHeader("Strict", "1")), 400, idempotency.CodeKeyInvalid)
	requireProblem(t, web.post("/", "", "b1", withHeader("Strict", "1")), 400, idempotency.CodeKeyMissing)
	requireFirst(t, 201, web.post("/", "K", "b1"))
	requireFirst(t, 201, web.post("/", "", "b1"))
}
