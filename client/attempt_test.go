package client_test

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency/client"
)

func quiet() *log.Logger { return log.New(io.Discard, "", 0) }

// slowBody gives its text after a while, unless its request's context ends.
type slowBody struct {
	ctx    context.Context
	after  time.Duration
	text   io.Reader
	closed *bool
}

func (b *slowBody) Read(p []byte) (int, error) {
	if b.after == 0 {
		return b.text.Read(p)
	}
	timer := time.NewTimer(b.after)
	defer timer.Stop()
	select {
	case <-timer.C:
		return b.text.Read(p)
	case <-b.ctx.Done():
		return 0, context.Cause(b.ctx)
	}
}

func (b *slowBody) Close() error {
	if b.closed != nil {
		*b.closed = true
	}
	return nil
}

// slowAnswer is a Base whose answers' bodies take their time.
func slowAnswer(status int, after time.Duration, length int64, ctx *context.Context) roundTripper {
	return func(r *http.Request) (*http.Response, error) {
		*ctx = r.Context()
		return &http.Response{
			StatusCode: status, Header: http.Header{}, ContentLength: length,
			Body: &slowBody{ctx: r.Context(), after: after, text: strings.NewReader("at last")},
		}, nil
	}
}

func TestAttemptTimeoutLeavesTheCallersBodyAlone(t *testing.T) {
	t.Parallel()
	for name, length := range map[string]int64{"length unknown": -1, "long": 1 << 20} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var ctx context.Context
				rt := &client.Transport{Base: slowAnswer(201, time.Hour, length, &ctx), AttemptTimeout: time.Second}
				resp, err := rt.RoundTrip(post(t, t.Context(), anywhere, nil))
				require.NoError(t, err)
				body, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				require.Equal(t, "at last", string(body))
				require.Error(t, ctx.Err(), "the attempt's context ends with the body")
				require.NoError(t, resp.Body.Close())
			})
		})
	}
}

func TestClosingTheBodyEndsTheAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var ctx context.Context
		resp, err := (&client.Transport{Base: slowAnswer(201, time.Hour, -1, &ctx)}).RoundTrip(post(t, t.Context(), anywhere, nil))
		require.NoError(t, err)
		require.NoError(t, ctx.Err())
		require.NoError(t, resp.Body.Close())
		require.Error(t, ctx.Err())
	})
}

// An answer that is read ahead has to come within the attempt.
func TestAttemptTimeoutCoversSmallAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var ctx context.Context
		slow := slowAnswer(201, time.Hour, 7, &ctx)
		calls := 0
		base := roundTripper(func(r *http.Request) (*http.Response, error) {
			if calls++; calls == 1 {
				return slow(r)
			}
			return slowAnswer(201, time.Second, 7, &ctx)(r)
		})
		_, body, took, err := inBubble(t, &client.Transport{Base: base, AttemptTimeout: 2 * time.Second}, t.Context())
		require.NoError(t, err)
		require.Equal(t, "at last", body)
		require.Equal(t, 2, calls)
		require.Less(t, took, 5*time.Second)

		// Unless nothing is to be read ahead.
		calls = 0
		_, body, _, err = inBubble(t, &client.Transport{Base: base, AttemptTimeout: 2 * time.Second, MaxAnswerBytes: -1}, t.Context())
		require.NoError(t, err)
		require.Equal(t, "at last", body)
		require.Equal(t, 1, calls)
	})
}

// A discarded answer that drips is not waited for.
func TestDrainingIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var ctx context.Context
		dripping := slowAnswer(503, time.Hour, -1, &ctx)
		calls := 0
		base := roundTripper(func(r *http.Request) (*http.Response, error) {
			if calls++; calls == 1 {
				return dripping(r)
			}
			return &http.Response{StatusCode: 201, Header: http.Header{}}, nil
		})
		_, _, took, err := inBubble(t, &client.Transport{Base: base}, t.Context())
		require.NoError(t, err)
		require.Less(t, took, time.Second)
	})
}

// Nor is one that has no end: on the fake clock no time passes while it is read.
func TestDrainingIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var first context.Context
		calls, read, closed := 0, 0, false
		base := roundTripper(func(r *http.Request) (*http.Response, error) {
			if calls++; calls > 1 {
				require.Error(t, first.Err(), "the first attempt has ended")
				return &http.Response{StatusCode: 201, Header: http.Header{}}, nil
			}
			first = r.Context()
			endless := readerFunc(func(p []byte) (int, error) {
				read += len(p)
				return len(p), nil
			})
			return &http.Response{StatusCode: 503, Header: http.Header{}, ContentLength: -1, Body: &slowBody{ctx: first, text: endless, closed: &closed}}, nil
		})
		_, _, _, err := inBubble(t, &client.Transport{Base: base}, t.Context())
		require.NoError(t, err)
		require.LessOrEqual(t, read, 128<<10)
		require.True(t, closed)
	})
}

func TestSwitchingProtocols(t *testing.T) {
	t.Parallel()
	mine, theirs := net.Pipe()
	defer theirs.Close()
	base := roundTripper(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 101, Header: http.Header{}, Body: mine}, nil
	})
	resp, err := fast(base).RoundTrip(post(t, t.Context(), anywhere, nil))
	require.NoError(t, err)
	conn, ok := resp.Body.(io.ReadWriteCloser)
	require.True(t, ok, "the body is still the connection")
	go func() { _, _ = conn.Write([]byte("hello")) }()
	got := make([]byte, 5)
	_, err = io.ReadFull(theirs, got)
	require.NoError(t, err)
	require.Equal(t, "hello", string(got))
	require.NoError(t, conn.Close())
}

// A Base that breaks its contract is an attempt that failed, not a panic.
func TestBaseReturnsNothing(t *testing.T) {
	t.Parallel()
	base := roundTripper(func(*http.Request) (*http.Response, error) { return nil, nil })
	_, err := fast(base).RoundTrip(post(t, t.Context(), anywhere, nil))
	unknown(t, err)
}

func TestLyingLength(t *testing.T) {
	t.Parallel()
	base := roundTripper(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 201, Header: http.Header{}, ContentLength: 3, Body: stream("longer")}, nil
	})
	_, body, err := roundTrip(t, fast(base), post(t, t.Context(), anywhere, nil))
	require.NoError(t, err)
	require.Equal(t, "longer", body)
}

// The caller's own trace goes on working.
func TestCallersTrace(t *testing.T) {
	t.Parallel()
	srv := server(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(201) })
	wrote := 0
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{WroteHeaderField: func(name string, _ []string) {
		if name == "Idempotency-Key" {
			wrote++
		}
	}})
	_, _, err := roundTrip(t, fast(ownBase(t)), post(t, ctx, srv.URL, nil))
	require.NoError(t, err)
	require.Equal(t, 1, wrote)
}

// What net/http refuses to send is refused once, with its own error. The texts
// that tell such refusals are net/http's; a new one would fail here.
func TestRequestsThatCannotBeSent(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change func(*http.Request)
		text   string
	}{
		{"scheme", func(r *http.Request) { r.URL.Scheme = "gopher" }, "unsupported protocol scheme"},
		{"no scheme", func(r *http.Request) { r.URL.Scheme = "" }, "unsupported protocol scheme"},
		{"host", func(r *http.Request) { r.URL.Host = "" }, "no Host"},
		{"address", func(r *http.Request) { r.URL = nil }, "nil Request.URL"},
		{"method", func(r *http.Request) { r.Method = "BAD METHOD" }, "invalid method"},
		{"header", func(r *http.Request) { r.Header.Set("X-Note", "a\nb") }, "invalid header"},
		{"trailer", func(r *http.Request) { r.Trailer = http.Header{"X-Note": {"a\nb"}} }, "invalid trailer"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			rt := fast(ownBase(t))
			rt.Methods = []string{"POST", "BAD METHOD"}
			attempts := 0
			rt.OnAttempt = func(a client.Attempt) {
				attempts++
				require.False(t, a.Sent)
				require.Equal(t, client.StopError, a.Stop)
			}
			body := &closeCounter{Reader: strings.NewReader(payment)}
			req := post(t, t.Context(), "http://127.0.0.1:1/", body)
			tt.change(req)
			_, err := rt.RoundTrip(req)
			require.ErrorContains(t, err, tt.text)
			require.LessOrEqual(t, attempts, 1)
			require.NotZero(t, body.closed.Load())
			var u *client.UnknownOutcomeError
			require.NotErrorAs(t, err, &u)
		})
	}
}

func TestUntrustedServer(t *testing.T) {
	t.Parallel()
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		panic("it was sent")
	}))
	srv.Config.ErrorLog = quiet()
	srv.StartTLS()
	defer srv.Close()
	rt := fast(ownBase(t))
	attempts := 0
	rt.OnAttempt = func(client.Attempt) { attempts++ }
	_, _, err := roundTrip(t, rt, post(t, t.Context(), srv.URL, nil))
	require.ErrorContains(t, err, "certificate")
	require.Equal(t, 1, attempts)
	var u *client.UnknownOutcomeError
	require.NotErrorAs(t, err, &u)
}

// refusingAfter is a Base that connects n times and then no more.
func refusingAfter(t *testing.T, n int) *http.Transport {
	base := ownBase(t)
	base.DisableKeepAlives = true
	base.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if n--; n < 0 {
			return nil, errRefused
		}
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}
	return base
}

var errRefused = errors.New("connection refused")

func TestOutcomeIsUnknownOnlyIfSomethingWasSent(t *testing.T) {
	t.Parallel()
	cutting := func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			conn.Close()
		}
	}
	tests := []struct {
		name     string
		connects int
		handler  http.HandlerFunc
		unknown  bool
	}{
		{"never connected", 0, cutting, false},
		{"cut, then not connected", 1, cutting, true},
		{"503, then not connected", 1, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			srv := server(t, tt.handler)
			rt := fast(refusingAfter(t, tt.connects))
			var sent []bool
			rt.OnAttempt = func(a client.Attempt) { sent = append(sent, a.Sent) }
			_, _, err := roundTrip(t, rt, post(t, t.Context(), srv.URL, strings.NewReader(payment)))
			require.ErrorIs(t, err, errRefused)
			require.Len(t, sent, 5)
			require.Equal(t, tt.unknown, sent[0])
			require.False(t, sent[4])
			var u *client.UnknownOutcomeError
			require.Equal(t, tt.unknown, errors.As(err, &u))
			if tt.unknown {
				require.NotEmpty(t, u.Key)
				require.Equal(t, 5, u.Attempts)
			}
		})
	}
}
