// Package slogobserver writes one log record for every guarded request.
//
//	mw := idempotency.New(store, currentUser, idempotency.WithObserver(slogobserver.New(logger)))
//
// A Middleware logs abnormal ends by itself, see [idempotency.WithLogger]. With
// both, these are written twice; give WithLogger a logger with slog.DiscardHandler
// to have them once.
package slogobserver

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"time"

	"github.com/retrysafe/idempotency"
)

// New returns an Observer for [idempotency.WithObserver] that writes one record
// with the message "idempotency: request" for each request, in the request's
// context, to l. It panics if l is nil.
//
// The level says whom it concerns. Error, an operator: the answer could not be
// recorded, the request ran unguarded, the store failed, or the handler panicked.
// Warn, a client's developer: the request was refused for another reason. Info:
// everything else, a request refused because the first one still runs included.
//
// The attributes are outcome, code, endpoint, key_hash, status, error, and the
// times handler, store and wait; those that say nothing are left out. key_hash
// stands for user, endpoint and key and is the same as in what the Middleware
// logs; neither the key nor the user is written. endpoint holds the path of the
// request, and error the text of the error.
func New(l *slog.Logger) idempotency.Observer {
	if l == nil {
		panic("slogobserver: New: the logger is nil: pass slog.Default() or another logger")
	}
	return func(ctx context.Context, e idempotency.Event) {
		level := levelOf(&e)
		if l.Enabled(ctx, level) {
			l.LogAttrs(ctx, level, "idempotency: request", attrsOf(&e)...)
		}
	}
}

func levelOf(e *idempotency.Event) slog.Level {
	switch e.Code {
	case idempotency.CodePanicked, idempotency.CodeStoreUnavailable, idempotency.CodeNotCommitted, idempotency.CodeRecordCorrupt:
		return slog.LevelError
	case idempotency.CodeInProgress:
		return slog.LevelInfo
	}
	switch e.Outcome {
	case idempotency.OutcomeUnstored, idempotency.OutcomeUnguarded:
		return slog.LevelError
	case idempotency.OutcomeRefused:
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

func attrsOf(e *idempotency.Event) []slog.Attr {
	attrs := append(make([]slog.Attr, 0, 9), slog.String("outcome", string(e.Outcome)))
	if e.Code != "" {
		attrs = append(attrs, slog.String("code", string(e.Code)))
	}
	if e.Key != (idempotency.Key{}) {
		sum := sha256.Sum256([]byte(e.Key.String()))
		attrs = append(attrs, slog.String("endpoint", e.Key.Endpoint), slog.String("key_hash", hex.EncodeToString(sum[:8])))
	}
	if e.Status != 0 {
		attrs = append(attrs, slog.Int("status", e.Status))
	}
	if e.Err != nil {
		attrs = append(attrs, slog.String("error", e.Err.Error()))
	}
	for _, took := range []struct {
		name string
		d    time.Duration
	}{{"handler", e.Handler}, {"store", e.Store}, {"wait", e.Wait}} {
		if took.d > 0 {
			attrs = append(attrs, slog.Duration(took.name, took.d))
		}
	}
	return attrs
}
