package client

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/retrysafe/idempotency"
)

// Stop is why no further attempt is made.
type Stop string

// The reasons. The empty Stop says that another attempt follows.
const (
	StopAnswered   Stop = "answered"   // the answer is not one to be repeated
	StopError      Stop = "error"      // the error is not one that another attempt could mend
	StopCancelled  Stop = "cancelled"  // the caller's context has ended
	StopRedirected Stop = "redirected" // the request went to another origin, without the key
	StopBody       Stop = "body"       // the request body cannot be sent again
	StopAttempts   Stop = "attempts"   // MaxAttempts is reached
	StopDeadline   Stop = "deadline"   // the wait would go past the context's deadline
	StopElapsed    Stop = "elapsed"    // the wait would go past MaxElapsed
	StopLifetime   Stop = "lifetime"   // the wait would go past KeyLifetime
	StopBudget     Stop = "budget"     // the Transport's retry budget is used up
)

// Attempt is what [Transport.OnAttempt] is told.
type Attempt struct {
	Request   *http.Request    // the caller's; not to be changed
	Key       string           // the operation's key; keep it out of logs
	Number    int              // 1 for the first attempt
	Status    int              // of the answer; 0 if there was none
	Code      idempotency.Code // of the middleware's problem document
	Replayed  bool             // the server answered from its record
	Unguarded bool             // the server ran the handler without protection
	Err       error            // nil if there was an answer
	Sent      bool             // the server may have got the request
	Took      time.Duration    // until the answer's header, or its end if it was read ahead
	Wait      time.Duration    // until the next attempt
	Stop      Stop             // why there is no next attempt; empty if there is one
}

// report tells the hook and the log about an attempt.
func (o *operation) report(a *attempt, wait time.Duration, stop Stop) {
	e := Attempt{
		Request: o.req, Key: o.key.value, Number: o.attempts,
		Code: a.problem.Code, Replayed: a.replayed, Unguarded: a.unguarded,
		Err: a.err, Sent: a.sent, Took: a.took, Wait: wait, Stop: stop,
	}
	if a.resp != nil {
		e.Status = a.resp.StatusCode
	}
	o.t.log(e)
	if o.t.OnAttempt != nil {
		o.t.OnAttempt(e)
	}
}

func (t *Transport) log(e Attempt) {
	logger := t.Logger
	if logger == nil {
		logger = slog.Default()
	}
	ctx := e.Request.Context()
	if !logger.Enabled(ctx, slog.LevelDebug) {
		return
	}
	attrs := []slog.Attr{
		slog.String("method", e.Request.Method),
		slog.String("host", e.Request.URL.Host),
		slog.Int("attempt", e.Number),
		slog.Duration("took", e.Took),
	}
	if e.Err != nil {
		attrs = append(attrs, slog.Any("error", e.Err), slog.Bool("sent", e.Sent))
	} else {
		attrs = append(attrs, slog.Int("status", e.Status), slog.Bool("replayed", e.Replayed))
	}
	if e.Code != "" {
		attrs = append(attrs, slog.String("code", string(e.Code)))
	}
	if e.Stop != "" {
		attrs = append(attrs, slog.String("stop", string(e.Stop)))
	} else {
		attrs = append(attrs, slog.Duration("wait", e.Wait))
	}
	logger.LogAttrs(ctx, slog.LevelDebug, "client: attempt", attrs...)
}
