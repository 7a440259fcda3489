package idempotency

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"
)

// run is a request that has its claim. Nothing in it is reused for another: a
// handler can keep the Execution, the ResponseWriter and the context.
type run struct {
	*request
	execution Execution
	recorder  recorder
	keeper    keeper
	replayed  replayedBody
	unguarded bool // there is no claim (WithFailOpen)

	context executionContext
	ctx     context.Context // the handler's
	cancel  context.CancelCauseFunc

	resp   *Response     // to be recorded
	ttl    time.Duration // of the record, as the handler wants it
	answer *Response     // to be sent in place of the handler's; nil: the handler's
}

func newRun(q *request) *run { return &run{request: q} }

// execute runs the handler under a fresh claim.
func (x *run) execute() {
	if x.m.atMostOnce {
		// Only now does the claim begin to hold its key: one whose handler never
		// ran is gone after its lease.
		x.claim.Hold = x.m.ttl
		x.leased = time.Now()
		err := x.call(x.extend)
		if err == nil {
			err = x.stale()
		}
		if err != nil {
			x.releaseAbandoned()
			x.refuse(&Error{Code: CodeStoreUnavailable, RetryAfter: time.Second, Err: err})
			return
		}
	}
	x.begin()
	x.handle()
}

// executeUnguarded runs the handler without a claim.
func (x *run) executeUnguarded() {
	x.unguarded, x.recorder.marked = true, true
	x.begin()
	x.handle()
}

// begin makes the handler's context and begins to keep the claim.
func (x *run) begin() {
	x.execution.key, x.execution.behind = x.claim.Key, x.m.behind
	x.context = executionContext{x.values(), &x.execution}
	x.ctx, x.cancel = context.WithCancelCause(&x.context)
	k := &x.keeper
	k.store, k.claim, k.timeout, k.values, k.lose = x.m.store, &x.claim, x.m.storeTimeout, x.values(), x.cancel
	if !x.unguarded && x.m.tx == nil { // a transaction does not lapse
		k.lease = x.m.lease
	}
	k.start(x.leased, time.Now().Add(x.m.maxExecution))
}

// handle runs the handler and settles what comes of it.
func (x *run) handle() {
	defer x.cancel(nil)
	x.recorder.init(x.m, x.w)
	started := time.Now()
	returned := false
	defer func() {
		// A panic is not recovered, so that it goes on with its own stack.
		if !returned {
			x.ended(started)
			x.panicked()
		}
	}()
	x.next.ServeHTTP(x.guarded())
	returned = true
	x.settle(x.ended(started))
}

// guarded returns what the handler is called with.
func (x *run) guarded() (http.ResponseWriter, *http.Request) {
	ctx := x.ctx
	if x.m.tx != nil {
		ctx = x.m.tx.Bind(ctx, x.claim)
	}
	r := x.r.WithContext(ctx)
	if x.body != nil {
		x.replayed.rest, x.body = x.body, nil
		r.Body = &x.replayed
	}
	if x.m.tx != nil {
		return &x.recorder, r
	}
	return flusher{&x.recorder}, r
}

// ended is called when the handler has ended, however it did. It reports whether
// the answer is complete.
func (x *run) ended(started time.Time) (complete bool) {
	x.event.Handler = time.Since(started)
	x.keeper.stop()
	_ = x.replayed.Close()
	return x.recorder.finish()
}

// settle decides what becomes of the answer.
func (x *run) settle(complete bool) {
	wish, ttl, reference := x.execution.wishes()
	x.resp, x.ttl = x.recorder.response(time.Now()), ttl
	x.resp.Reference = reference
	x.event.Status = x.resp.Status
	record := wish == toKeep
	if wish == byPolicy {
		record = x.policyRecords(Ending{Status: x.resp.Status})
	}
	switch {
	case record && complete:
		if x.resp.BodyLost {
			x.event.Code = CodeNotReplayable
		}
		x.record(OutcomeExecuted)
	case x.m.atMostOnce && !complete && wish != toDiscard:
		x.leave()
	default:
		x.release()
	}
}

// panicked decides what becomes of a key whose handler panicked. Nobody is
// answered: net/http, or a layer outside, sees the panic.
func (x *run) panicked() {
	x.event.Code = CodePanicked
	wish, ttl, reference := x.execution.wishes()
	switch {
	case wish != toDiscard && x.m.tx == nil && x.policyRecords(Ending{Status: http.StatusInternalServerError, Panicked: true}):
		x.resp, x.ttl = x.m.render(x.r, &Error{Code: CodePanicked}), ttl
		x.resp.Reference = reference
		x.event.Status = x.resp.Status
		x.record(OutcomeExecuted)
	case wish != toDiscard && x.m.atMostOnce:
		x.leave()
	default:
		x.release()
	}
}

// record makes x.resp the record and sends the answer: in this order, so that no
// client holds an answer that a retry would not get.
func (x *run) record(outcome Outcome) {
	if x.unguarded {
		defer x.done(OutcomeUnguarded)
		defer func() { _ = x.call(x.complete) }() // one try
		x.send()
		return
	}
	err := x.call(x.complete)
	switch {
	case err == nil:
		defer x.done(outcome)
	case x.m.tx != nil:
		if x.call(x.free) != nil { // the transaction is over; its connection must be, too
			x.releaseAbandoned()
		}
		x.refuse(&Error{Code: CodeNotCommitted, RetryAfter: time.Second, Err: err})
		return
	case errors.Is(err, ErrClaimLost):
		x.event.Err = err
		defer x.done(OutcomeUnstored)
	default:
		defer x.goOn(x.complete, true, outcome, err)
	}
	x.send()
}

// release frees the key and sends the answer: in this order, so that a client
// that repeats its request at once is not told to wait.
func (x *run) release() {
	if x.unguarded {
		defer x.done(OutcomeUnguarded)
		defer func() { _ = x.call(x.free) }() // one try
		x.send()
		return
	}
	if err := x.call(x.free); err != nil {
		defer x.goOn(x.free, x.claim.Hold > 0, OutcomeReleased, err)
	} else {
		defer x.done(OutcomeReleased)
	}
	x.send()
}

// leave lets the claim lapse and become unknown.
func (x *run) leave() {
	defer x.done(OutcomeUnstored)
	x.send()
}

// send lets the client have the answer, unless the handler panicked.
func (x *run) send() {
	switch {
	case x.answer != nil:
		x.write(x.answer)
	case x.event.Code != CodePanicked:
		x.recorder.send()
	}
}

func (x *run) complete(ctx context.Context) error {
	ttl := x.ttl
	if ttl == 0 {
		ttl = x.m.ttl
	}
	return x.m.store.Complete(ctx, x.claim, x.resp, ttl)
}

func (q *request) free(ctx context.Context) error { return q.m.store.Release(ctx, q.claim) }

func (q *request) extend(ctx context.Context) error {
	return q.m.store.Extend(ctx, q.claim, q.m.lease)
}

// goOn repeats a settling that failed, behind the request: until it succeeds, is
// refused, or the longest execution is over, but for one lease at least. The
// lease is extended meanwhile if extend says so.
func (x *run) goOn(settle func(context.Context) error, extend bool, outcome Outcome, err error) {
	until := x.keeper.end
	if lease := time.Now().Add(x.m.lease); until.Before(lease) {
		until = lease
	}
	finished := func(err error) {
		if err != nil {
			x.event.Err = err
			outcome = OutcomeUnstored
		}
		x.done(outcome)
	}
	leased := x.keeper.leased
	keep := func() { // before a try, which may hang for as long as the store timeout
		now := time.Now()
		if extend && now.Sub(leased) >= x.m.lease/3 && x.call(x.extend) == nil {
			leased = now
		}
	}
	started := x.m.behind.start(func() { finished(x.persist(until, keep, settle)) })
	if !started {
		finished(err)
	}
}

// releaseAbandoned frees the key, behind the request, of a claim that may have
// been made and is of no use: for up to a lease, when it is gone anyway.
func (q *request) releaseAbandoned() {
	// The request is being answered meanwhile: its event is not ours.
	own := &request{m: q.m, claim: q.claim, lasting: q.values()}
	until := time.Now().Add(q.m.lease)
	q.m.behind.start(func() { _ = own.persist(until, func() {}, own.free) })
}

// persist repeats keep and f with growing pauses until f succeeds, the claim is
// lost or the time is up, and returns what f returned last.
func (q *request) persist(until time.Time, keep func(), f func(context.Context) error) error {
	longest := max(q.m.lease/3, 10*time.Millisecond)
	for pause := min(20*time.Millisecond, longest); ; pause = min(2*pause, longest) {
		time.Sleep(pause - rand.N(pause/2))
		keep()
		err := q.call(f)
		if err == nil || errors.Is(err, ErrClaimLost) || !time.Now().Before(until) {
			return err
		}
	}
}

// policyRecords asks the policy whether to record. A policy that panics does so as if
// it were the handler: a transaction must not stay open for that.
func (x *run) policyRecords(e Ending) (record bool) {
	e.Cause = context.Cause(x.ctx)
	decided := false
	defer func() {
		if decided {
			return
		}
		x.event.Code = CodePanicked
		if x.m.atMostOnce {
			x.leave()
		} else {
			x.release()
		}
	}()
	record = x.m.policy(e)
	decided = true
	return record
}

// render returns the answer to a refusal as a record.
func (m *Middleware) render(r *http.Request, e *Error) *Response {
	rec := new(recorder)
	rec.init(m, nowhere{})
	e = e.filled(e.Code)
	e.Docs = m.docs
	m.errorHandler(rec, r, e)
	rec.finish()
	return rec.response(time.Now())
}

// nowhere is a ResponseWriter for an answer that nobody gets now.
type nowhere struct{}

func (nowhere) Header() http.Header         { return nil }
func (nowhere) Write(p []byte) (int, error) { return len(p), nil }
func (nowhere) WriteHeader(int)             {}
