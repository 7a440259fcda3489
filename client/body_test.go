package client_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency/client"
)

// stream hides what http.NewRequest could make GetBody of.
func stream(s string) io.ReadCloser { return &closeCounter{Reader: strings.NewReader(s)} }

func TestBodyTooLongToKeep(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		body   string
		length int64
		max    int64
		tries  int
	}{
		{"at the limit", "12345678", -1, 8, 2},
		{"at the limit, length known", "12345678", 8, 8, 2},
		{"above the limit", "123456789", -1, 8, 1},
		{"above the limit, length known", "123456789", 9, 8, 1},
		{"no body is kept", "1", -1, -1, 1},
		{"a limit like no limit", "123456789", -1, 1<<63 - 1, 2},
		{"far above the default", strings.Repeat("x", 3<<20), -1, 0, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			send := func(base *script) (*http.Response, error) {
				rt := fast(base)
				rt.MaxBodyBytes = tt.max
				rt.MaxAttempts = 2
				req := post(t, t.Context(), anywhere, stream(tt.body))
				req.ContentLength = tt.length
				return rt.RoundTrip(req)
			}
			base := &script{steps: []step{{status: 503}}}
			resp, err := send(base)
			require.NoError(t, err)
			require.Equal(t, 503, resp.StatusCode)
			base.requireSame(t, tt.tries, tt.body)
			require.Equal(t, tt.length, base.list()[0].Length, "the caller's framing is kept")

			base = &script{steps: []step{{err: errReset}}}
			_, err = send(base)
			require.ErrorIs(t, err, errReset)
			key := base.requireSame(t, tt.tries, tt.body)
			require.Equal(t, key, unknown(t, err).Key)
			require.Equal(t, tt.tries == 1, errors.Is(err, client.ErrBodyNotRepeatable))
		})
	}
}

func TestBodyThatCannotBeRead(t *testing.T) {
	t.Parallel()
	broken := errors.New("disk on fire")
	tests := []struct {
		name   string
		body   io.Reader
		length int64
		want   string
	}{
		{"error", io.MultiReader(strings.NewReader("12"), iotest.ErrReader(broken)), -1, "disk on fire"},
		{"short", strings.NewReader("12"), 3, "has 2 bytes where Content-Length says 3"},
		{"long", strings.NewReader("1234"), 3, "has 4 bytes where Content-Length says 3"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			base := &script{steps: created()}
			body := &closeCounter{Reader: tt.body}
			req := post(t, t.Context(), anywhere, body)
			req.ContentLength = tt.length
			_, err := fast(base).RoundTrip(req)
			require.ErrorContains(t, err, tt.want)
			var u *client.UnknownOutcomeError
			require.NotErrorAs(t, err, &u)
			require.Empty(t, base.list(), "nothing was sent")
			require.EqualValues(t, 1, body.closed.Load())
		})
	}
}

// A body whose Read never returns does not hold up a caller who has gone, in
// either way of going.
func TestBodyThatBlocks(t *testing.T) {
	t.Parallel()
	for _, legacy := range []bool{false, true} {
		release, stop := make(chan struct{}), make(chan struct{})
		defer close(release)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		body := &closeCounter{Reader: readerFunc(func([]byte) (int, error) {
			if legacy {
				close(stop)
			} else {
				cancel()
			}
			<-release
			return 0, io.EOF
		})}
		base := &script{steps: created()}
		req := post(t, ctx, anywhere, body)
		//lint:ignore SA1019 http.Client still sets it
		req.Cancel = stop
		_, err := fast(base).RoundTrip(req)
		require.ErrorContains(t, err, "cancel")
		require.EqualValues(t, 1, body.closed.Load())
		require.Empty(t, base.list())
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestGetBodyFails(t *testing.T) {
	t.Parallel()
	gone := errors.New("file removed")
	opened := 0
	req := post(t, t.Context(), anywhere, stream(payment))
	req.ContentLength = int64(len(payment))
	req.GetBody = func() (io.ReadCloser, error) {
		if opened++; opened > 1 {
			return nil, gone
		}
		return stream(payment), nil
	}
	base := &script{steps: []step{{status: 503}, {status: 201}}}
	_, err := fast(base).RoundTrip(req)
	require.ErrorIs(t, err, gone)
	require.Equal(t, base.requireSame(t, 1, payment), unknown(t, err).Key)
	require.Equal(t, 2, opened, "it is not asked again and again")
}

// The parts of a multipart body keep their boundary, whatever the attempt.
func TestContentTypeIsKept(t *testing.T) {
	t.Parallel()
	var types []string
	steps := &script{steps: []step{{status: 503}, {status: 503}, {status: 201}}}
	base := roundTripper(func(r *http.Request) (*http.Response, error) {
		types = append(types, r.Header.Get("Content-Type"))
		return steps.RoundTrip(r)
	})
	body := "--b0undary\r\nContent-Disposition: form-data; name=\"amount\"\r\n\r\n4200\r\n--b0undary--\r\n"
	req := post(t, t.Context(), anywhere, stream(body))
	req.Header.Set("Content-Type", "multipart/form-data; boundary=b0undary")
	_, err := fast(base).RoundTrip(req)
	require.NoError(t, err)
	steps.requireSame(t, 3, body)
	want := "multipart/form-data; boundary=b0undary"
	require.Equal(t, []string{want, want, want}, types)
}

// Trailers whose values are known only at the end of the body go with every
// attempt.
func TestRequestTrailers(t *testing.T) {
	t.Parallel()
	var got []string
	srv := server(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		got = append(got, r.Trailer.Get("X-Checksum"))
		w.WriteHeader([]int{503, 201}[min(len(got), 2)-1])
	})
	req := post(t, t.Context(), srv.URL, nil)
	req.Trailer = http.Header{"X-Checksum": nil}
	req.Body = &closeCounter{Reader: io.MultiReader(strings.NewReader(payment), readerFunc(func([]byte) (int, error) {
		req.Trailer.Set("X-Checksum", "abc")
		return 0, io.EOF
	}))}
	_, _, err := roundTrip(t, fast(ownBase(t)), req)
	require.NoError(t, err)
	require.Equal(t, []string{"abc", "abc"}, got)
}

func TestExpectContinue(t *testing.T) {
	t.Parallel()
	for _, kind := range bodyKinds() {
		if kind.want == "" {
			continue
		}
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			var seen sightings
			calls := 0
			srv := server(t, func(w http.ResponseWriter, r *http.Request) {
				if calls++; calls == 1 {
					w.WriteHeader(503) // without reading, so without 100 Continue
					return
				}
				seen.see(r)
				w.WriteHeader(201)
			})
			base := ownBase(t)
			base.ExpectContinueTimeout = time.Minute
			req := post(t, t.Context(), srv.URL, kind.make(t))
			req.Header.Set("Expect", "100-continue")
			resp, _, err := roundTrip(t, fast(base), req)
			require.NoError(t, err)
			require.Equal(t, 201, resp.StatusCode)
			seen.requireSame(t, 1, payment)
			require.Equal(t, 2, client.Info(resp).Attempts)
		})
	}
}
