package idempotency

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// Reconciler finds out what a run did that broke off, usually by asking the
// system in which it worked, under a key from [Execution.Derive]. It is called
// with the claim taken over, so that it runs once at a time for a key, and with
// a context like a handler's.
//
// A Response is recorded and answered. [ErrNotExecuted] says that nothing was
// done: the handler runs, unless the context has ended by then. Any other error,
// or a panic, leaves the outcome unknown: the request is refused with 409
// outcome_unknown, and one that comes after the lease asks again.
type Reconciler func(ctx context.Context, e *Execution) (*Response, error)

// outcomeUnknown is the refusal of a request whose key a dead run blocks.
func (m *Middleware) outcomeUnknown(err error) *Error {
	e := &Error{Code: CodeOutcomeUnknown, Err: err}
	if m.reconciler != nil {
		e.RetryAfter = max(m.retryAfter, time.Second)
	}
	return e
}

// reconcile settles the unknown outcome of the claim that was taken over.
func (x *run) reconcile() {
	x.claim.Replaces = ""
	x.begin()
	asked := false
	defer func() {
		if !asked { // runtime.Goexit in the Reconciler
			x.keeper.stop()
			x.cancel(nil)
			x.event.Code = CodeOutcomeUnknown
			x.done(OutcomeRefused)
		}
	}()
	resp, err := x.ask()
	asked = true
	if errors.Is(err, ErrNotExecuted) {
		x.handle()
		return
	}
	defer x.cancel(nil)
	x.keeper.stop()
	if err != nil {
		x.refuse(x.m.outcomeUnknown(err))
		return
	}
	_, ttl, reference := x.execution.wishes()
	x.resp, x.ttl = x.m.reconciled(resp, reference), ttl
	x.answer = resp.Clone()
	x.event.Status = resp.Status
	x.record(OutcomeReconciled)
}

// ask calls the Reconciler.
func (x *run) ask() (resp *Response, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("idempotency: the reconciler panicked: %v", p)
		}
	}()
	resp, err = x.m.reconciler(x.ctx, &x.execution)
	switch {
	case errors.Is(err, ErrNotExecuted) && x.ctx.Err() != nil:
		// The claim may be another's by now, who may have run the handler.
		return nil, fmt.Errorf("idempotency: the reconciler took too long: %w", context.Cause(x.ctx))
	case err != nil:
		return nil, err
	case resp == nil:
		return nil, errors.New("idempotency: the reconciler returned neither a response nor an error")
	case resp.Status < 200 || resp.Status > 999:
		return nil, fmt.Errorf("idempotency: the reconciler returned the status %d", resp.Status)
	}
	return resp, nil
}

// reconciled returns a Reconciler's answer as it is to be recorded.
func (m *Middleware) reconciled(resp *Response, reference string) *Response {
	kept := resp.Clone()
	kept.Header = make(http.Header, len(resp.Header))
	for name, values := range resp.Header {
		if name = http.CanonicalHeaderKey(name); !m.unrecorded[name] {
			kept.Header[name] = values
		}
	}
	if int64(len(kept.Body)) > m.maxResponse {
		kept.Body, kept.BodyLost = nil, true
	}
	if kept.Reference == "" {
		kept.Reference = reference
	}
	if kept.Time.IsZero() {
		kept.Time = time.Now()
	}
	return kept
}
