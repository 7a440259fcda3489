package idempotency

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"
)

// run is a request that may get to run its handler. Nothing in it is reused for
// another: a handler can keep the Execution, the ResponseWriter and the context.
type run struct {
	request
	execution Execution
	recorder  recorder
	keeper    keeper
	leased    time.Time // when the last call that may have given the claim its lease was begun
	unguarded bool      // there is no claim (WithFailOpen)

	ctx    context.Context // the handler's
	cancel context.CancelCauseFunc
}

// execute runs the handler under a fresh claim.
func (x *run) execute() {
	if x.m.atMostOnce {
		// Only now does the claim begin to hold its key: one whose handler never
		// ran is gone after its lease.
		x.claim.Hold = x.m.ttl
		if err := x.hold(); err != nil {
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

// hold extends the claim with its Hold.
func (x *run) hold() error {
	ctx, cancel := x.storeContext()
	defer cancel()
	x.leased = time.Now()
	defer func() { x.event.Store += time.Since(x.leased) }()
	return x.m.store.Extend(ctx, x.claim, x.m.lease)
}

// begin makes the handler's context and begins to keep the claim.
func (x *run) begin() {
	x.execution.key, x.execution.behind = x.claim.Key, x.m.behind
	values := x.values()
	x.ctx, x.cancel = context.WithCancelCause(&executionContext{values, &x.execution})
	x.keeper = keeper{
		store:   x.m.store,
		claim:   x.claim,
		lease:   x.m.lease,
		timeout: x.m.storeTimeout,
		values:  values,
		lose:    x.cancel,
	}
	if x.unguarded {
		x.keeper.lease = 0
	}
	x.keeper.start(x.leased, time.Now().Add(x.m.maxExecution))
}

// handle runs the handler and settles what comes of it.
func (x *run) handle() {
	defer x.cancel(nil)
	ctx := x.ctx
	if x.m.tx != nil {
		ctx = x.m.tx.Bind(ctx, x.claim)
	}
	r := x.r.WithContext(ctx)
	x.restoreBody(r)
	x.recorder.init(x.m, x.w)
	var w http.ResponseWriter = &x.recorder
	if x.m.tx == nil {
		w = flusher{&x.recorder}
	}

	started := time.Now()
	returned := false
	defer func() {
		// A panic is not recovered, so that it goes on with its own stack.
		if !returned {
			x.ended(started)
			x.panicked()
		}
	}()
	x.next.ServeHTTP(w, r)
	returned = true
	complete := x.ended(started)
	x.settle(complete)
}

// ended is called when the handler has ended, however it did. It reports whether
// the answer is complete.
func (x *run) ended(started time.Time) bool {
	x.event.Handler = time.Since(started)
	x.keeper.stop()
	return x.recorder.finish()
}

// settle decides what becomes of the answer.
func (x *run) settle(complete bool) {
	status := x.recorder.status
	x.event.Status = status
	wish, ttl, reference := x.execution.wishes()
	record := wish == toKeep
	if wish == byPolicy {
		record = x.m.policy(Ending{Status: status, Cause: context.Cause(x.ctx)})
	}
	resp := x.recorder.response(time.Now())
	resp.Reference = reference
	send := func() { x.recorder.send(resp.Trailer) }
	switch {
	case record && complete:
		if resp.BodyLost {
			x.event.Code = CodeNotReplayable
		}
		x.record(resp, ttl, OutcomeExecuted, send)
	case x.m.atMostOnce && !complete && wish != toDiscard:
		x.leave(send)
	default:
		x.release(send)
	}
}

// panicked decides what becomes of a key whose handler panicked.
func (x *run) panicked() {
	x.event.Code = CodePanicked
	wish, ttl, _ := x.execution.wishes()
	nothing := func() {}
	switch {
	case wish != toDiscard && x.m.tx == nil &&
		x.m.policy(Ending{Status: http.StatusInternalServerError, Panicked: true, Cause: context.Cause(x.ctx)}):
		resp := x.m.render(x.r, &Error{Code: CodePanicked})
		x.event.Status = resp.Status
		x.record(resp, ttl, OutcomeExecuted, nothing)
	case wish != toDiscard && x.m.atMostOnce:
		x.leave(nothing)
	default:
		x.release(nothing)
	}
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

// record makes resp the record and sends the answer: in this order, so that no
// client holds an answer that a retry would not get.
func (x *run) record(resp *Response, ttl time.Duration, outcome Outcome, send func()) {
	if ttl == 0 {
		ttl = x.m.ttl
	}
	complete := func(ctx context.Context) error { return x.m.store.Complete(ctx, x.claim, resp, ttl) }
	if x.unguarded {
		x.afterwards(complete, send)
		return
	}
	err := x.call(complete)
	switch {
	case err == nil:
		defer x.done(outcome)
	case x.m.tx != nil:
		_ = x.call(x.free) // the transaction is over; its connection must be, too
		x.refuse(&Error{Code: CodeNotCommitted, RetryAfter: time.Second, Err: err})
		return
	case errors.Is(err, ErrClaimLost):
		x.event.Err = err
		defer x.done(OutcomeUnstored)
	default:
		defer x.goOn(complete, true, outcome, err)
	}
	send()
}

// release frees the key and sends the answer: in this order, so that a client
// that repeats its request at once is not told to wait.
func (x *run) release(send func()) {
	if x.unguarded {
		x.afterwards(x.free, send)
		return
	}
	if err := x.call(x.free); err != nil {
		defer x.goOn(x.free, x.claim.Hold > 0, OutcomeReleased, err)
	} else {
		defer x.done(OutcomeReleased)
	}
	send()
}

// leave lets the claim lapse and become unknown.
func (x *run) leave(send func()) {
	defer x.done(OutcomeUnstored)
	send()
}

// afterwards settles a run without a claim: the answer first, then one try.
func (x *run) afterwards(settle func(context.Context) error, send func()) {
	defer x.done(OutcomeUnguarded)
	defer func() { _ = x.call(settle) }()
	send()
}

func (x *run) free(ctx context.Context) error { return x.m.store.Release(ctx, x.claim) }

// call makes one call of the store.
func (x *run) call(f func(context.Context) error) error {
	ctx, cancel := x.storeContext()
	defer cancel()
	start := time.Now()
	defer func() { x.event.Store += time.Since(start) }()
	return f(ctx)
}

// goOn repeats a settling that failed, behind the request: until it succeeds, is
// refused, or the longest execution is over, but for one lease at least. The
// lease is extended meanwhile if extend says so.
func (x *run) goOn(settle func(context.Context) error, extend bool, outcome Outcome, err error) {
	until := x.keeper.end
	if lease := time.Now().Add(x.m.lease); until.Before(lease) {
		until = lease
	}
	started := x.m.behind.start(func() {
		leased := x.keeper.leased
		err := x.persist(until, func(ctx context.Context) error {
			err := settle(ctx)
			if err != nil && extend && time.Since(leased) >= x.m.lease/3 {
				now := time.Now()
				if x.call(func(ctx context.Context) error { return x.m.store.Extend(ctx, x.claim, x.m.lease) }) == nil {
					leased = now
				}
			}
			return err
		})
		x.finished(outcome, err)
	})
	if !started {
		x.finished(outcome, err)
	}
}

// finished reports the end of a settling behind the request.
func (x *run) finished(outcome Outcome, err error) {
	if err != nil {
		x.event.Err = err
		outcome = OutcomeUnstored
	}
	x.done(outcome)
}

// releaseAbandoned frees the key, behind the request, of a claim that may have
// been made and is of no use: for up to a lease, when it is gone anyway.
func (x *run) releaseAbandoned() {
	q := &run{request: request{m: x.m, r: x.r, claim: x.claim}} // the event is not ours any more
	until := time.Now().Add(x.m.lease)
	x.m.behind.start(func() { _ = q.persist(until, q.free) })
}

// persist repeats f with growing pauses until it succeeds, the claim is lost or
// the time is up, and returns what it returned last.
func (x *run) persist(until time.Time, f func(context.Context) error) error {
	longest := max(x.m.lease/3, 10*time.Millisecond)
	for pause := min(20*time.Millisecond, longest); ; pause = min(2*pause, longest) {
		time.Sleep(pause - rand.N(pause/2))
		err := x.call(f)
		if err == nil || errors.Is(err, ErrClaimLost) || !time.Now().Before(until) {
			return err
		}
	}
}
