package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency/client"
)

const anywhere = "http://payments.test/payments"

func created() []step { return []step{{status: 201}} }

func TestKeyIsARandomUUID(t *testing.T) {
	t.Parallel()
	base := &script{steps: []step{{err: errReset}, {status: 503}, {status: 201}}}
	rt := fast(base)

	resp, _, err := roundTrip(t, rt, post(t, t.Context(), anywhere, strings.NewReader(payment)))
	require.NoError(t, err)
	require.Equal(t, 201, resp.StatusCode)
	key := base.requireSame(t, 3, payment)
	id, err := uuid.Parse(key)
	require.NoError(t, err)
	require.Equal(t, uuid.Version(4), id.Version())
	require.Equal(t, client.Facts{Key: key, Attempts: 3}, client.Info(resp))

	resp, _, err = roundTrip(t, rt, post(t, t.Context(), anywhere, strings.NewReader(payment)))
	require.NoError(t, err)
	require.NotEqual(t, key, client.Info(resp).Key, "another operation, another key")
}

func TestWhoseKeyWins(t *testing.T) {
	t.Parallel()
	byHeader := func(name, value string) http.Header { return http.Header{name: {value}} }
	withKey := func(key string) func(context.Context) context.Context {
		return func(ctx context.Context) context.Context { return client.WithKey(ctx, key) }
	}
	long := strings.Repeat("k", 255)
	tests := []struct {
		name   string
		rt     *client.Transport
		header http.Header
		ctx    func(context.Context) context.Context
		want   string // on the wire; "": refused
		key    string // in the facts, if it differs
	}{
		{name: "NewKey", want: "made"},
		{name: "context", ctx: withKey("ctx-1"), want: "ctx-1"},
		{name: "header", header: byHeader("Idempotency-Key", "mine"), want: "mine"},
		{name: "header before context", header: byHeader("Idempotency-Key", "mine"), ctx: withKey("ctx-1"), want: "mine"},
		{name: "odd letter case", header: byHeader("iDEMPOTENCY-kEY", "mine"), want: "mine"},
		{name: "lower case before context", header: byHeader("idempotency-key", "mine"), ctx: withKey("ctx-1"), want: "mine"},
		{name: "spaces do not count", header: byHeader("Idempotency-Key", " mine\t"), want: "mine"},
		{name: "quoted header stays quoted", header: byHeader("Idempotency-Key", `"mi ne"`), want: `"mi ne"`, key: "mi ne"},
		{name: "escapes", header: byHeader("Idempotency-Key", `"a\"b\\c"`), want: `"a\"b\\c"`, key: `a"b\c`},
		{name: "Quoted", rt: &client.Transport{Quoted: true}, want: `"made"`, key: "made"},
		{name: "Quoted, bare header", rt: &client.Transport{Quoted: true}, header: byHeader("Idempotency-Key", "mine"), want: `"mine"`, key: "mine"},
		{name: "Quoted, quoted header", rt: &client.Transport{Quoted: true}, header: byHeader("Idempotency-Key", `"mine"`), want: `"mine"`, key: "mine"},
		{name: "Quoted, any text", rt: &client.Transport{Quoted: true}, ctx: withKey(`a "b", c\d`), want: `"a \"b\", c\\d"`, key: `a "b", c\d`},
		{name: "empty list is no key", header: http.Header{"Idempotency-Key": {}}, want: "made"},
		{name: "empty list, context", header: http.Header{"Idempotency-Key": nil}, ctx: withKey("ctx-1"), want: "ctx-1"},
		{name: "longest", ctx: withKey(long), want: long},

		{name: "empty header", header: byHeader("Idempotency-Key", "")},
		{name: "blank header", header: byHeader("Idempotency-Key", " ")},
		{name: "empty quotes", header: byHeader("Idempotency-Key", `""`)},
		{name: "open quote", header: byHeader("Idempotency-Key", `"mine`)},
		{name: "only a quote", header: byHeader("Idempotency-Key", `"`)},
		{name: "quote inside", header: byHeader("Idempotency-Key", `"a"b"`)},
		{name: "dangling escape", header: byHeader("Idempotency-Key", `"a\"`)},
		{name: "unknown escape", header: byHeader("Idempotency-Key", `"a\n"`)},
		{name: "two values", header: http.Header{"Idempotency-Key": {"a", "b"}}},
		{name: "two spellings", header: http.Header{"Idempotency-Key": {"a"}, "idempotency-key": {"a"}}},
		{name: "empty context key", ctx: withKey("")},
		{name: "space", ctx: withKey("a b")},
		{name: "comma", ctx: withKey("a,b")},
		{name: "line break", ctx: withKey("a\r\nX-Evil: 1")},
		{name: "not ASCII", ctx: withKey("schlüssel")},
		{name: "Quoted, not ASCII", rt: &client.Transport{Quoted: true}, ctx: withKey("schlüssel")},
		{name: "too long", ctx: withKey(long + "k")},
		{name: "NewKey gives none", rt: &client.Transport{NewKey: func(*http.Request) string { return "" }}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			base := &script{steps: []step{{status: 503}, {status: 201}}}
			rt := fast(base)
			rt.NewKey = func(*http.Request) string { return "made" }
			if tt.rt != nil {
				rt.Quoted = tt.rt.Quoted
				rt.NewKey = cmpFunc(tt.rt.NewKey, rt.NewKey)
			}
			ctx := t.Context()
			if tt.ctx != nil {
				ctx = tt.ctx(ctx)
			}
			body := &closeCounter{Reader: strings.NewReader(payment)}
			req := post(t, ctx, anywhere, body)
			req.Header = tt.header
			before := tt.header.Clone()

			resp, err := rt.RoundTrip(req)
			require.Equal(t, before, req.Header, "the caller's header is as before")
			require.NotZero(t, body.closed.Load(), "the body is closed, whatever happens")
			if tt.want == "" {
				require.ErrorIs(t, err, client.ErrInvalidKey)
				require.Empty(t, base.list(), "nothing was sent")
				return
			}
			require.NoError(t, err)
			for _, e := range base.list() {
				require.Equal(t, []string{tt.want}, e.Key)
			}
			base.requireSame(t, 2, payment)
			want := tt.want
			if tt.key != "" {
				want = tt.key
			}
			require.Equal(t, want, client.Info(resp).Key)
		})
	}
}

func cmpFunc(f, otherwise func(*http.Request) string) func(*http.Request) string {
	if f != nil {
		return f
	}
	return otherwise
}

func TestInvalidKeyIsNotInTheError(t *testing.T) {
	t.Parallel()
	_, _, err := roundTrip(t, fast(&script{steps: created()}), post(t, client.WithKey(t.Context(), "secret key"), anywhere, nil))
	require.ErrorIs(t, err, client.ErrInvalidKey)
	require.NotContains(t, err.Error(), "secret")
}

func TestHeaderName(t *testing.T) {
	t.Parallel()
	var got http.Header
	base := roundTripper(func(r *http.Request) (*http.Response, error) {
		got = r.Header
		return &http.Response{StatusCode: 201, Header: http.Header{}}, nil
	})
	rt := &client.Transport{Base: base, Header: "x-request-key"}
	req := post(t, client.WithKey(t.Context(), "k1"), anywhere, nil)
	_, _, err := roundTrip(t, rt, req)
	require.NoError(t, err)
	require.Equal(t, http.Header{"X-Request-Key": {"k1"}}, got)
}

func TestMethods(t *testing.T) {
	t.Parallel()
	tests := []struct {
		methods []string
		method  string
		guarded bool
	}{
		{nil, "POST", true}, {nil, "PATCH", true},
		{nil, "GET", false}, {nil, "", false}, {nil, "HEAD", false}, {nil, "PUT", false}, {nil, "DELETE", false},
		{[]string{"PUT"}, "PUT", true}, {[]string{"PUT"}, "POST", false}, {[]string{}, "POST", false},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprint(tt.methods, tt.method), func(t *testing.T) {
			t.Parallel()
			var got *http.Request
			calls := 0
			base := roundTripper(func(r *http.Request) (*http.Response, error) {
				got = r
				calls++
				return &http.Response{StatusCode: 503, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
			})
			rt := fast(base)
			rt.Methods = tt.methods
			req := post(t, t.Context(), anywhere, nil)
			req.Method = tt.method
			resp, err := rt.RoundTrip(req)
			require.NoError(t, err)
			if tt.guarded {
				require.Equal(t, 5, calls)
				require.NotEmpty(t, got.Header.Get("Idempotency-Key"))
				return
			}
			require.Same(t, req, got, "passed through untouched")
			require.Equal(t, 1, calls)
			require.Zero(t, client.Info(resp))
		})
	}
}

// Two calls with one request value are two operations, and the request stays as
// it was.
func TestRequestIsSentManyTimes(t *testing.T) {
	t.Parallel()
	base := &script{steps: created()}
	rt := fast(base)
	req := post(t, t.Context(), anywhere, strings.NewReader(payment))
	req.Header = nil
	before := *req
	seen := map[string]bool{}
	for range 1000 {
		resp, err := rt.RoundTrip(req)
		require.NoError(t, err)
		require.Equal(t, 201, resp.StatusCode)
		require.Nil(t, req.Header)
		require.Same(t, before.URL, req.URL)
		require.Equal(t, before.Body, req.Body)
		require.Equal(t, before.Context(), req.Context())
		require.NotNil(t, req.GetBody)
	}
	for _, e := range base.list() {
		require.Len(t, e.Key, 1)
		require.False(t, seen[e.Key[0]], "a key was used twice")
		seen[e.Key[0]] = true
		require.Equal(t, payment, e.Body)
	}
}

func TestSharedTransport(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	pairs := map[string]string{}
	srv := server(t, func(w http.ResponseWriter, r *http.Request) {
		var s sightings
		s.see(r)
		e := s.list()[0]
		mu.Lock()
		defer mu.Unlock()
		pairs[strings.Join(e.Key, "+")] = e.Body
		w.WriteHeader(201)
	})
	rt := fast(ownBase(t))
	shared, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL, nil)
	require.NoError(t, err)
	shared.Header.Set("X-Shared", "yes")
	errs := make(chan error, 50)
	for g := range 50 {
		go func() {
			for i := range 100 {
				key := fmt.Sprintf("key-%d-%d", g, i)
				req, err := http.NewRequestWithContext(client.WithKey(context.Background(), key), http.MethodPost, srv.URL, strings.NewReader("body of "+key))
				if err == nil {
					err = send(rt, req)
				}
				if err == nil && i%10 == 0 {
					err = send(rt, shared)
				}
				if err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	for range 50 {
		require.NoError(t, <-errs)
	}
	explicit := 0
	for key, body := range pairs {
		if strings.HasPrefix(key, "key-") {
			explicit++
			require.Equal(t, "body of "+key, body)
		}
	}
	require.Equal(t, 5000, explicit)
	require.Len(t, pairs, 5500, "the shared request made a key each time")
}

func send(rt http.RoundTripper, req *http.Request) error {
	resp, err := rt.RoundTrip(req)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode != 201 {
		return errors.New(resp.Status)
	}
	return nil
}

// A request that Base makes on the way, with the same context, is another one.
func TestContextKeyStopsAtBase(t *testing.T) {
	t.Parallel()
	inner := &script{steps: created()}
	innerTransport := fast(inner)
	base := roundTripper(func(r *http.Request) (*http.Response, error) {
		token, err := http.NewRequestWithContext(r.Context(), http.MethodPost, "http://auth.test/token", nil)
		if err != nil {
			return nil, err
		}
		if _, err := innerTransport.RoundTrip(token); err != nil {
			return nil, err
		}
		return &http.Response{StatusCode: 201, Header: http.Header{}}, nil
	})
	_, _, err := roundTrip(t, fast(base), post(t, client.WithKey(t.Context(), "payment-1"), anywhere, nil))
	require.NoError(t, err)
	require.NotEqual(t, "payment-1", inner.requireSame(t, 1, ""))
}
