package idempotency

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"time"
)

// Outcome says how a guarded request ended.
type Outcome string

// The outcomes.
const (
	OutcomeExecuted   Outcome = "executed"   // the handler ran and its answer is recorded
	OutcomeReplayed   Outcome = "replayed"   // answered from the record
	OutcomeReleased   Outcome = "released"   // the handler ran and the key is free again
	OutcomeUnstored   Outcome = "unstored"   // the handler ran, but its answer could not be recorded or its claim was left to lapse
	OutcomeRefused    Outcome = "refused"    // the handler did not run, or its transaction was not committed; see Event.Code
	OutcomeReconciled Outcome = "reconciled" // an unknown outcome was settled by the Reconciler's answer
	OutcomeUnguarded  Outcome = "unguarded"  // the store failed and the handler ran without a claim, see WithFailOpen
)

// Event tells an [Observer] of one request.
type Event struct {
	Outcome Outcome

	// Code is the reason of a refusal. With a handler that ran it is empty, but
	// for handler_panicked (it panicked or called runtime.Goexit) and
	// response_not_replayable (its answer was too large to keep).
	Code Code

	Key    Key   // as far as it was found out; personal data in many systems
	Status int   // that was answered or recorded; 0 where nothing was
	Err    error // the cause: of the store, the network, a user's function

	Wait    time.Duration // spent waiting for a twin
	Handler time.Duration // spent in the handler
	Store   time.Duration // spent in the store's methods, heartbeats not counted
}

// Observer is told of every guarded request that carried a key or lacked a
// required one, once, after it has settled: when recording goes on behind the
// request, after that. ctx has the request's values and is not cancelled. An
// Observer is called from many goroutines at once and holds up the request, so it
// should be quick.
type Observer func(ctx context.Context, e Event)

// done reports the request's end. It is called exactly once a request.
func (q *request) done(outcome Outcome) {
	q.event.Outcome = outcome
	q.event.Key = q.claim.Key
	q.log()
	if q.m.observer != nil {
		q.m.observer(q.values(), q.event)
	}
}

// log writes of an abnormal end: one that an operator should know of, as opposed
// to those that are a client's doing.
func (q *request) log() {
	e, level := &q.event, slog.LevelError
	switch {
	case e.Outcome == OutcomeUnstored || e.Outcome == OutcomeUnguarded:
	case e.Code == CodeStoreUnavailable || e.Code == CodeNotCommitted || e.Code == CodeRecordCorrupt:
	case e.Code == CodeOutcomeUnknown && e.Err != nil:
		level = slog.LevelWarn // the reconciler failed
	default:
		return
	}
	logger := q.m.logger
	if logger == nil {
		logger = slog.Default()
	}
	attrs := []slog.Attr{
		slog.String("outcome", string(e.Outcome)),
		slog.String("code", string(e.Code)),
		slog.String("endpoint", e.Key.Endpoint),
		slog.String("key_hash", hashed(e.Key)),
		slog.Int("status", e.Status),
	}
	if e.Err != nil {
		attrs = append(attrs, slog.String("error", e.Err.Error()))
	}
	logger.LogAttrs(q.values(), level, "idempotency: request ended abnormally", attrs...)
}

// hashed returns what stands for a key in logs: enough to find its other lines.
func hashed(k Key) string {
	sum := sha256.Sum256([]byte(k.String()))
	return hex.EncodeToString(sum[:8])
}
