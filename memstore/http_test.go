package memstore_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/memstore"
)

// TestFloodBehindMiddleware: a client that sends any number of new keys neither
// pushes out a running request nor a recorded answer.
func TestFloodBehindMiddleware(t *testing.T) {
	t.Parallel()
	mw := idempotency.New(memstore.New(memstore.WithMaxEntries(100)), idempotency.SharedKeys,
		idempotency.WithLogger(slog.New(slog.DiscardHandler)))
	var runs atomic.Int64
	entered, finish := make(chan struct{}), make(chan struct{})
	handler := mw.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Idempotency-Key") == "K" {
			runs.Add(1)
			close(entered)
			<-finish
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "done")
	}))
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	send := func(key string) (int, string, error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/things", strings.NewReader("b1"))
		if err != nil {
			return 0, "", err
		}
		req.Header.Set("Idempotency-Key", key)
		resp, err := server.Client().Do(req)
		if err != nil {
			return 0, "", err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		return resp.StatusCode, string(body), err
	}
	post := func(key string) (int, string) {
		t.Helper()
		status, body, err := send(key)
		require.NoError(t, err)
		return status, body
	}

	first := make(chan int, 1)
	go func() {
		status, _, err := send("K")
		if err != nil {
			t.Error(err)
		}
		first <- status
	}()
	<-entered
	for i := range 500 {
		want := http.StatusCreated
		if i >= 99 {
			want = http.StatusServiceUnavailable
		}
		status, body := post(fmt.Sprintf("flood-%d", i))
		require.Equal(t, want, status, "%d: %s", i, body)
	}
	status, body := post("K")
	require.Equal(t, http.StatusConflict, status)
	require.Contains(t, body, "request_in_progress")

	close(finish)
	require.Equal(t, http.StatusCreated, <-first)
	status, body = post("K")
	require.Equal(t, http.StatusCreated, status)
	require.Equal(t, "done", body)
	status, _ = post("flood-0")
	require.Equal(t, http.StatusCreated, status)
	require.Equal(t, int64(1), runs.Load())
}
