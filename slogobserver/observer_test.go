package slogobserver_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/memstore"
	"github.com/retrysafe/idempotency/slogobserver"
)

func TestLevels(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		outcome idempotency.Outcome
		code    idempotency.Code
		want    string
	}{
		{idempotency.OutcomeExecuted, "", "INFO"},
		{idempotency.OutcomeExecuted, idempotency.CodeNotReplayable, "INFO"},
		{idempotency.OutcomeExecuted, idempotency.CodePanicked, "ERROR"},
		{idempotency.OutcomeReplayed, "", "INFO"},
		{idempotency.OutcomeReleased, "", "INFO"},
		{idempotency.OutcomeReleased, idempotency.CodePanicked, "ERROR"},
		{idempotency.OutcomeReconciled, "", "INFO"},
		{idempotency.OutcomeUnstored, "", "ERROR"},
		{idempotency.OutcomeUnguarded, "", "ERROR"},
		{idempotency.OutcomeRefused, idempotency.CodeInProgress, "INFO"},
		{idempotency.OutcomeRefused, idempotency.CodeKeyReused, "WARN"},
		{idempotency.OutcomeRefused, idempotency.CodeOutcomeUnknown, "WARN"},
		{idempotency.OutcomeRefused, idempotency.CodeStoreUnavailable, "ERROR"},
		{idempotency.OutcomeRefused, idempotency.CodeNotCommitted, "ERROR"},
		{idempotency.OutcomeRefused, idempotency.CodeRecordCorrupt, "ERROR"},
	} {
		var text bytes.Buffer
		slogobserver.New(slog.New(slog.NewJSONHandler(&text, nil)))(t.Context(), idempotency.Event{Outcome: c.outcome, Code: c.code})
		want := map[string]any{"level": c.want, "msg": "idempotency: request", "outcome": string(c.outcome)}
		if c.code != "" {
			want["code"] = string(c.code)
		}
		require.Equal(t, want, record(t, &text))
	}
}

func TestAttributes(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	observe := slogobserver.New(slog.New(slog.NewJSONHandler(&text, nil)))
	observe(t.Context(), idempotency.Event{
		Outcome: idempotency.OutcomeUnstored, Key: idempotency.NewKey("SECRETUSER", "POST /pay", "SECRETKEY"), Status: 201,
		Err: errors.New("connection refused"), Handler: 3, Store: 2 * time.Second, Wait: 1,
	})
	require.NotContains(t, text.String(), "SECRET")
	got := record(t, &text)
	require.Len(t, got["key_hash"], 16)
	delete(got, "key_hash")
	require.Equal(t, map[string]any{
		"level": "ERROR", "msg": "idempotency: request", "outcome": "unstored", "endpoint": "POST /pay", "status": 201.,
		"error": "connection refused", "handler": 3., "store": 2e9, "wait": 1.,
	}, got)
}

// The hash is the one that the Middleware logs, so that one search finds both.
func TestHashIsTheMiddlewares(t *testing.T) {
	t.Parallel()
	var text, own bytes.Buffer
	mw := idempotency.New(memstore.New(memstore.WithMaxBytes(1)), idempotency.SharedKeys,
		idempotency.WithLogger(slog.New(slog.NewJSONHandler(&own, nil))),
		idempotency.WithObserver(slogobserver.New(slog.New(slog.NewJSONHandler(&text, nil)))))
	r := httptest.NewRequest(http.MethodPost, "/pay", strings.NewReader("body"))
	r.Header.Set("Idempotency-Key", "K")
	mw.Handler(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), r)
	hash := record(t, &own)["key_hash"]
	require.NotEmpty(t, hash)
	require.Equal(t, hash, record(t, &text)["key_hash"])
}

func TestNilLogger(t *testing.T) {
	t.Parallel()
	require.PanicsWithValue(t, "slogobserver: New: the logger is nil: pass slog.Default() or another logger", func() { slogobserver.New(nil) })
}

// record returns the one record in text, less its time.
func record(t *testing.T, text *bytes.Buffer) map[string]any {
	t.Helper()
	require.Equal(t, 1, strings.Count(text.String(), "\n"), text)
	var got map[string]any
	require.NoError(t, json.Unmarshal(text.Bytes(), &got))
	delete(got, "time")
	return got
}
