package client_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency/client"
)

func TestRedirectToTheSameOriginKeepsTheKey(t *testing.T) {
	t.Parallel()
	for _, status := range []int{307, 308} {
		for _, whose := range []string{"made", "header", "context"} {
			t.Run(fmt.Sprint(status, " ", whose), func(t *testing.T) {
				t.Parallel()
				var first, second sightings
				mux := http.NewServeMux()
				mux.HandleFunc("/old", func(w http.ResponseWriter, r *http.Request) {
					first.see(r)
					http.Redirect(w, r, "/new", status)
				})
				mux.HandleFunc("/new", func(w http.ResponseWriter, r *http.Request) {
					w.WriteHeader([]int{503, 201}[min(second.see(r), 2)-1])
				})
				srv := server(t, mux.ServeHTTP)
				ctx := t.Context()
				if whose == "context" {
					ctx = client.WithKey(ctx, "k1")
				}
				req := post(t, ctx, srv.URL+"/old", strings.NewReader(payment))
				if whose == "header" {
					req.Header.Set("Idempotency-Key", "k1")
				}
				resp, _, err := roundTrip(t, fast(ownBase(t)), req)
				require.NoError(t, err)
				require.Equal(t, 201, resp.StatusCode)
				key := first.requireSame(t, 1, payment)
				require.Equal(t, key, second.requireSame(t, 2, payment), "and it is repeated there")
				require.Equal(t, key, client.Info(resp).Key)
				if whose != "made" {
					require.Equal(t, "k1", key)
				}
			})
		}
	}
}

func TestKeyStaysWithItsOrigin(t *testing.T) {
	t.Parallel()
	odd := "idempotency-KEY"
	for _, method := range []string{"POST", "PUT", "GET"} {
		for _, whose := range []string{"made", "header", "context"} {
			t.Run(method+" "+whose, func(t *testing.T) {
				t.Parallel()
				var there sightings
				other := server(t, func(w http.ResponseWriter, r *http.Request) {
					there.see(r)
					w.WriteHeader(503)
				})
				home := server(t, func(w http.ResponseWriter, r *http.Request) {
					http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
				})
				ctx := t.Context()
				if whose == "context" {
					ctx = client.WithKey(ctx, "k1")
				}
				req := post(t, ctx, home.URL, strings.NewReader(payment))
				req.Method = method
				if whose == "header" {
					req.Header = http.Header{odd: {"k1"}}
				}
				resp, _, err := roundTrip(t, fast(ownBase(t)), req)
				require.NoError(t, err)
				require.Equal(t, 503, resp.StatusCode)
				require.Len(t, there.list(), 1, "sent once")
				require.Empty(t, there.list()[0].Key, "without the key")
				require.Equal(t, payment, there.list()[0].Body)
				require.Empty(t, client.Info(resp).Key)
				if whose == "header" {
					require.Equal(t, []string{"k1"}, req.Header[odd], "the caller's header is as before")
				}
			})
		}
	}
}

// Nor does net/http send a request without a key twice, on a kept-alive
// connection that dies.
func TestForeignHopIsNotResent(t *testing.T) {
	t.Parallel()
	var there sightings
	other := server(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "GET" {
			return
		}
		there.see(r)
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			conn.Close()
		}
	})
	home := server(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
	})
	rt := fast(ownBase(t))
	warm, err := http.NewRequestWithContext(t.Context(), http.MethodGet, other.URL, nil)
	require.NoError(t, err)
	_, _, err = roundTrip(t, rt, warm)
	require.NoError(t, err)

	_, _, err = roundTrip(t, rt, post(t, t.Context(), home.URL, strings.NewReader(payment)))
	u := unknown(t, err)
	require.Empty(t, u.Key)
	require.Equal(t, 1, u.Attempts)
	require.Len(t, there.list(), 1)
}

func TestOrigins(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		chain []string
		kept  bool // at the end of the chain
	}{
		{"same", []string{"http://a.test/1", "http://a.test/2"}, true},
		{"relative", []string{"http://a.test/1", "/2"}, true},
		{"default port", []string{"http://a.test/1", "http://a.test:80/2"}, true},
		{"default TLS port", []string{"https://a.test/1", "https://a.test:443/2"}, true},
		{"letter case", []string{"http://a.test/1", "HTTP://A.Test/2"}, true},
		{"long chain", []string{"http://a.test/1", "/2", "/3", "http://a.test:80/4"}, true},
		{"IPv6", []string{"http://[::1]/1", "http://[::1]:80/2"}, true},
		{"other host", []string{"http://a.test/1", "http://b.test/2"}, false},
		{"subdomain", []string{"http://a.test/1", "http://x.a.test/2"}, false},
		{"other port", []string{"http://a.test/1", "http://a.test:8080/2"}, false},
		{"TLS on the same port", []string{"http://a.test:8443/1", "https://a.test:8443/2"}, false},
		{"TLS", []string{"http://a.test/1", "https://a.test/2"}, false},
		{"no TLS", []string{"https://a.test/1", "http://a.test/2"}, false},
		{"user name", []string{"http://a.test/1", "http://a.test@b.test/2"}, false},
		{"away and back", []string{"http://a.test/1", "http://b.test/2", "http://a.test/3"}, false},
		{"away and on", []string{"http://a.test/1", "http://b.test/2", "http://b.test/3"}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var seen sightings
			base := roundTripper(func(r *http.Request) (*http.Response, error) {
				n := seen.see(r)
				resp := &http.Response{StatusCode: 201, Header: http.Header{}, Body: http.NoBody, Request: r}
				if n < len(tt.chain) {
					resp.StatusCode = 307
					resp.Header.Set("Location", tt.chain[n])
				}
				return resp, nil
			})
			resp, _, err := roundTrip(t, fast(base), post(t, t.Context(), tt.chain[0], strings.NewReader(payment)))
			require.NoError(t, err)
			require.Equal(t, 201, resp.StatusCode)
			all := seen.list()
			require.Len(t, all, len(tt.chain))
			if !tt.kept {
				require.Empty(t, all[len(all)-1].Key)
				return
			}
			seen.requireSame(t, len(tt.chain), payment)
		})
	}
}

// A redirect whose origin cannot be told is not given the key.
func TestBrokenChain(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]*http.Response{
		"no request": {},
		"no address": {Request: &http.Request{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			base := &script{steps: []step{{status: 503}}}
			req := post(t, t.Context(), anywhere, strings.NewReader(payment))
			req.Header.Set("Idempotency-Key", "k1")
			req.Response = before
			_, err := fast(base).RoundTrip(req)
			require.NoError(t, err)
			require.Len(t, base.list(), 1)
			require.Empty(t, base.list()[0].Key)
		})
	}
}

func TestRedirectToGet(t *testing.T) {
	t.Parallel()
	var seen sightings
	mux := http.NewServeMux()
	mux.HandleFunc("POST /payments", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/payments/1", http.StatusSeeOther)
	})
	mux.HandleFunc("GET /payments/1", func(w http.ResponseWriter, r *http.Request) {
		seen.see(r)
		_, _ = io.WriteString(w, "paid")
	})
	srv := httptest.NewServer(mux)
	defer srv.Close()
	_, body, err := roundTrip(t, fast(ownBase(t)), post(t, t.Context(), srv.URL+"/payments", strings.NewReader(payment)))
	require.NoError(t, err)
	require.Equal(t, "paid", body)
	require.Empty(t, seen.list()[0].Key, "GET is given no key")
}
