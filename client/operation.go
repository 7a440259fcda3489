package client

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// operation is one logical operation: all attempts under one key.
type operation struct {
	t       *Transport
	req     *http.Request // the caller's, never changed
	key     opKey
	foreign bool        // another origin's hop: no key, one attempt
	header  http.Header // of every attempt
	body    *payload
	began   time.Time
	delays  *backoff.ExponentialBackOff

	attempts int  // made
	tries    int  // made, less those that were told "in progress"
	sent     bool // some attempt may have reached the server
}

func (t *Transport) newOperation(req *http.Request, h hop) (*operation, error) {
	o := &operation{t: t, req: req, foreign: h.foreign, header: req.Header.Clone(), began: time.Now(), delays: t.delays()}
	if o.header == nil {
		o.header = make(http.Header)
	}
	if h.foreign {
		dropHeader(o.header, t.header())
		o.body = streamed(req)
		return o, nil
	}
	if req.URL == nil {
		return nil, errors.New("client: nil Request.URL")
	}
	var err error
	if o.key, err = t.keyFor(req, h); err != nil {
		return nil, err
	}
	if o.expired(0) {
		return nil, ErrKeyExpired
	}
	dropHeader(o.header, t.header())
	o.header[t.header()] = []string{o.key.wire}
	if o.body, err = newPayload(req, cmp.Or(t.MaxBodyBytes, defaultMaxBodyBytes)); err != nil {
		return nil, err
	}
	t.budget.deposit()
	return o, nil
}

// run makes attempts until one is to be returned.
func (o *operation) run() (*http.Response, error) {
	for {
		a := o.send()
		wait, stop := o.decide(a)
		o.report(a, wait, stop)
		if stop != "" {
			return o.finish(a, stop)
		}
		a.discard()
		if err := o.pause(wait); err != nil {
			return nil, o.failure(fmt.Errorf("waiting to try again after %s: %w", a.outcome(), err), StopCancelled)
		}
		// The wait may have been longer than planned: a machine can be suspended.
		if o.expired(0) {
			return nil, o.failure(fmt.Errorf("%w, after %s", ErrKeyExpired, a.outcome()), StopLifetime)
		}
	}
}

// decide says how long to wait before the next attempt, or why there is none.
func (o *operation) decide(a *attempt) (wait time.Duration, stop Stop) {
	busy := a.busy()
	if !busy {
		o.tries++
	}
	again := o.worthRepeating(a)
	switch {
	case !again && a.err == nil:
		return 0, StopAnswered
	case gone(o.req) != nil:
		return 0, StopCancelled
	case errors.Is(a.err, errClientTimeout):
		return 0, StopDeadline
	case !again:
		return 0, StopError
	case o.foreign:
		return 0, StopRedirected
	case !o.body.repeatable():
		return 0, StopBody
	case o.t.MaxAttempts == 1 || int64(o.tries) >= bound(o.t.MaxAttempts, defaultMaxAttempts):
		return 0, StopAttempts
	}
	wait = o.wait(a)
	if deadline, ok := o.req.Context().Deadline(); ok && wait >= time.Until(deadline) {
		return 0, StopDeadline
	}
	switch {
	case int64(wait) >= bound(o.t.MaxElapsed, defaultMaxElapsed)-int64(elapsed(o.began)):
		return 0, StopElapsed
	case o.expired(wait):
		return 0, StopLifetime
	}
	// Last, so that no token is taken for a retry that is not made.
	if size := o.t.RetryBudget; size >= 0 && !busy && !o.t.budget.withdraw(cmp.Or(size, defaultRetryBudget)) {
		return 0, StopBudget
	}
	return wait, ""
}

// expired reports whether the server may have forgotten the key after wait.
func (o *operation) expired(wait time.Duration) bool {
	if o.key.since.IsZero() {
		return false
	}
	return int64(wait) >= bound(o.t.KeyLifetime, defaultKeyLifetime)-int64(elapsed(o.key.since))
}

// pause sleeps between two attempts, unless the caller goes.
func (o *operation) pause(d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-o.req.Context().Done():
	case <-legacyCancel(o.req):
	}
	return gone(o.req)
}

// finish returns the last attempt to the caller.
func (o *operation) finish(a *attempt, stop Stop) (*http.Response, error) {
	if a.err != nil {
		return nil, o.failure(a.err, stop)
	}
	facts := Facts{
		Key:       o.key.value,
		Attempts:  o.attempts,
		Replayed:  a.replayed,
		Unguarded: a.unguarded,
		Code:      a.problem.Code,
	}
	return a.result(o.req, &trail{facts: facts, since: o.key.since}), nil
}

// failure is the error of an operation that ends without an answer.
func (o *operation) failure(err error, stop Stop) error {
	if stop == StopBody {
		err = fmt.Errorf("%w: %w", ErrBodyNotRepeatable, err)
	}
	if !o.sent {
		return err
	}
	return &UnknownOutcomeError{
		Key:       o.key.value,
		FirstSent: o.key.since,
		Attempts:  o.attempts,
		Err:       err,
	}
}

// elapsed is the time since t, by whichever of the two clocks has run further:
// the monotonic one stands still while a machine is suspended, the wall clock
// may be set back.
func elapsed(t time.Time) time.Duration {
	now := time.Now()
	return max(now.Sub(t), now.Round(0).Sub(t.Round(0)))
}
