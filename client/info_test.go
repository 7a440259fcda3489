package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/client"
)

func TestInfo(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		last step
		want client.Facts
	}{
		{"executed", step{status: 201}, client.Facts{}},
		{"replayed", step{status: 201, header: headers("Idempotent-Replayed", "true")}, client.Facts{Replayed: true}},
		{"unguarded", step{status: 201, header: headers("Idempotency-Unguarded", "true")}, client.Facts{Unguarded: true}},
		{"refused", problemStep(400, `{"error":"idempotency_key_invalid","retryable":false}`), client.Facts{Code: idempotency.CodeKeyInvalid}},
		{"mismatch by 422", problemStep(422, `{"error":"idempotency_key_reused_with_different_params"}`), client.Facts{Code: idempotency.CodeKeyReused}},
		{"not an error", problemStep(200, `{"error":"idempotency_key_invalid"}`), client.Facts{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			rt := fast(&script{steps: []step{{status: 503}, tt.last}})
			// A client with a time-out wraps the body; the facts are still there.
			c := &http.Client{Transport: rt, Timeout: time.Minute}
			resp, err := c.Do(post(t, client.WithKey(t.Context(), "k1"), anywhere, nil))
			require.NoError(t, err)
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, tt.last.body, string(body), "looking at the problem takes nothing away")
			tt.want.Key, tt.want.Attempts = "k1", 2
			require.Equal(t, tt.want, client.Info(resp))
		})
	}
}

func TestInfoOfOthers(t *testing.T) {
	t.Parallel()
	require.Zero(t, client.Info(nil))
	require.Zero(t, client.Info(&http.Response{}))
	require.Zero(t, client.Info(&http.Response{Request: &http.Request{}}))
}

func TestResume(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := &script{steps: []step{{err: errReset}, {err: errReset}, {status: 201, header: headers("Idempotent-Replayed", "true")}}}
		rt := &client.Transport{Base: base, MaxAttempts: 2, KeyLifetime: time.Hour}
		began := time.Now()
		_, _, err := roundTrip(t, rt, post(t, t.Context(), anywhere, strings.NewReader(payment)))
		u := unknown(t, err)
		require.Equal(t, began, u.FirstSent)
		require.Equal(t, 2, u.Attempts)
		require.EqualError(t, u, "client: outcome unknown after 2 attempts: connection reset")
		require.False(t, u.Timeout())

		// Somewhat later: the same operation.
		<-time.After(30 * time.Minute)
		resp, _, err := roundTrip(t, rt, post(t, u.Resume(t.Context()), anywhere, strings.NewReader(payment)))
		require.NoError(t, err)
		require.True(t, client.Info(resp).Replayed)
		require.Equal(t, base.requireSame(t, 3, payment), u.Key)

		// Too late: it would be another operation.
		<-time.After(30 * time.Minute)
		_, _, err = roundTrip(t, rt, post(t, u.Resume(t.Context()), anywhere, strings.NewReader(payment)))
		require.ErrorIs(t, err, client.ErrKeyExpired)
		require.Len(t, base.list(), 3, "nothing was sent")
	})
}

func TestOneAttemptInTheError(t *testing.T) {
	t.Parallel()
	rt := fast(&script{steps: []step{{err: errReset}}})
	rt.MaxAttempts = 1
	_, err := rt.RoundTrip(post(t, t.Context(), anywhere, nil))
	require.EqualError(t, err, "client: outcome unknown after 1 attempt: connection reset")
}

func TestHook(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var got []client.Attempt
		rt := &client.Transport{
			Base: &script{steps: []step{
				{err: errReset},
				problemStep(409, `{"error":"request_in_progress"}`, "Retry-After", "2"),
				{status: 201, header: headers("Idempotent-Replayed", "true")},
			}},
			OnAttempt: func(a client.Attempt) { got = append(got, a) },
		}
		req := post(t, client.WithKey(t.Context(), "k1"), anywhere, nil)
		_, err := rt.RoundTrip(req)
		require.NoError(t, err)
		require.Len(t, got, 3)
		for i, a := range got {
			require.Same(t, req, a.Request)
			require.Equal(t, "k1", a.Key)
			require.Equal(t, i+1, a.Number)
			require.True(t, a.Sent)
		}
		require.Equal(t, errReset, got[0].Err)
		require.Zero(t, got[0].Status)
		require.Equal(t, 409, got[1].Status)
		require.Equal(t, idempotency.CodeInProgress, got[1].Code)
		require.GreaterOrEqual(t, got[1].Wait, 2*time.Second)
		require.Empty(t, got[1].Stop)
		require.Equal(t, 201, got[2].Status)
		require.True(t, got[2].Replayed)
		require.Equal(t, client.StopAnswered, got[2].Stop)
		require.Zero(t, got[2].Wait)
	})
}

func TestLogHasNoKey(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	rt := fast(&script{steps: []step{{err: errReset}, problemStep(409, `{"error":"request_in_progress"}`), {status: 503}, {status: 201}}})
	rt.Logger = slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	_, err := rt.RoundTrip(post(t, client.WithKey(t.Context(), "secret-key"), anywhere+"?token=secret", nil))
	require.NoError(t, err)
	require.NotContains(t, log.String(), "secret")

	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	require.Len(t, lines, 4)
	var first, last map[string]any
	require.NoError(t, json.Unmarshal([]byte(lines[0]), &first))
	require.NoError(t, json.Unmarshal([]byte(lines[3]), &last))
	require.Equal(t, "DEBUG", first["level"])
	require.Equal(t, "connection reset", first["error"])
	require.EqualValues(t, 1, first["attempt"])
	require.EqualValues(t, 201, last["status"])
	require.Equal(t, "answered", last["stop"])
}

// Base is free to add to the request it is given.
func TestBaseMayChangeItsRequest(t *testing.T) {
	t.Parallel()
	steps := &script{steps: []step{{status: 503}, {status: 201}}}
	base := roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.Header.Get("Authorization") != "" {
			return nil, errors.New("left over from the attempt before")
		}
		r.Header.Set("Authorization", "Bearer 1")
		return steps.RoundTrip(r)
	})
	req := post(t, t.Context(), anywhere, nil)
	_, err := fast(base).RoundTrip(req)
	require.NoError(t, err)
	require.Empty(t, req.Header)
	steps.requireSame(t, 2, "")
}

func TestCloseIdleConnections(t *testing.T) {
	t.Parallel()
	base := &idleCloser{}
	(&http.Client{Transport: &client.Transport{Base: base}}).CloseIdleConnections()
	require.True(t, base.closed)
	(&client.Transport{Base: roundTripper(nil)}).CloseIdleConnections() // has none: nothing happens
}

type idleCloser struct {
	roundTripper
	closed bool
}

func (c *idleCloser) CloseIdleConnections() { c.closed = true }

func TestDerivedKeyOutsideOfAHandler(t *testing.T) {
	t.Parallel()
	keys := map[string]bool{}
	for range 2 {
		base := &script{steps: []step{{status: 503}, {status: 201}}}
		ctx := client.WithDerivedKey(context.Background(), "charge")
		_, err := fast(base).RoundTrip(post(t, ctx, anywhere, nil))
		require.NoError(t, err)
		keys[base.requireSame(t, 2, "")] = true
	}
	require.Len(t, keys, 2)
}
