package idempotencytest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retrysafe/idempotency"
)

// twinCount is how many requests with one key are sent at once.
const twinCount = 8

// rehearse runs the handler once and looks at what it does, and so finds out which
// calls of the store there are to die in. It returns false if the handler does not
// carry the request out, so that there is nothing to be tried.
func (s *suite) rehearse() bool {
	op := s.operation("a request and its retries", s.newRequest)
	if len(op.faults) > 0 {
		return false
	}
	op.valid = true
	a := op.attempt(0)
	got := a.send("the first")
	switch {
	case len(op.faults) > 0:
		return false
	case len(op.runs) == 0:
		op.fault("the handler was not reached by the request of newRequest: %v", got)
		return false
	case got == nil || got.status >= 400:
		op.fault("the handler did not carry out the request of newRequest, so there is nothing to be tried: it has to be answered with a status under 400")
		return false
	}
	op.retry(0)
	op.retry(1)
	op.changed()
	op.retry(0)
	return true
}

// runAll runs all other scenarios, beside each other.
func (s *suite) runAll() {
	var all sync.WaitGroup
	play := func(scenario string, newTemplate func(*operation) *template, f func(*operation)) *operation {
		op := s.operation(scenario, s.newRequest)
		if newTemplate != nil && op.request != nil {
			op.request = newTemplate(op)
		}
		if len(op.faults) == 0 {
			all.Go(func() { f(op) })
		}
		return op
	}
	play("twins", nil, (*operation).twins).valid = true
	play("a client that hangs up before its request is complete", nil, (*operation).hangUpBefore).valid = true
	play("a client that hangs up before the handler works", nil, func(op *operation) { op.hangUp(true) }).valid = true
	play("a client that hangs up before it is answered", nil, func(op *operation) { op.hangUp(false) }).valid = true
	play("a lost lease", nil, (*operation).loseLease).valid = true
	for n, call := range s.operations[0].calls[0][:s.firstCalls()] {
		for _, c := range []crash{{n, false}, {n, true}} {
			when := "before it took effect"
			if c.after {
				when = "after it took effect"
			}
			play(fmt.Sprintf("a crash in %s, %s", call, when), nil, func(op *operation) { op.die(c) }).valid = true
		}
	}
	for _, m := range manglings() {
		play("a body that is "+m.name, func(op *operation) *template { return op.request.with(m.mangle(op.request.body)) }, (*operation).plain)
	}
	if s.invalid != nil {
		op := s.operation("an invalid request", s.invalid)
		op.refusal = true
		if len(op.faults) == 0 {
			all.Go(op.plain)
		}
	}
	all.Wait()
}

// firstCalls returns how many calls of the store the first request made: up to the
// one that settled it.
func (s *suite) firstCalls() int {
	calls := s.operations[0].calls[0]
	for i, call := range calls {
		if call == "Complete" || call == "Release" {
			return i + 1
		}
	}
	return len(calls)
}

// manglings are the ways in which a body may be broken.
func manglings() []mangling {
	return []mangling{
		{"empty", func([]byte) []byte { return nil }},
		{"cut off", func(b []byte) []byte { return b[:len(b)/2] }},
		{"followed by garbage", another},
	}
}

type mangling struct {
	name   string
	mangle func([]byte) []byte
}

// another returns a body that is not b, not JSON and not text.
func another(b []byte) []byte { return append(append([]byte(nil), b...), "\x00changed"...) }

// plain sends a request that the handler may refuse, and retries it.
func (op *operation) plain() {
	op.attempt(0).send("the first")
	op.retry(0)
	op.retry(1)
}

// changed sends another body under the operation's key, which has been used.
func (op *operation) changed() {
	a := op.attempt(0)
	a.template = op.request.with(another(op.request.body))
	runs := len(op.runs)
	a.send("with another body")
	op.mu.Lock()
	defer op.mu.Unlock()
	if len(op.runs) > runs || a.settled && a.event.Outcome != idempotency.OutcomeRefused {
		op.fault("another body under the same key was not refused: does the fingerprint cover the body?")
	}
}

// twins sends the same request many times at once, twice: while the handler runs,
// and when it has run.
func (op *operation) twins() {
	arrived := make(chan struct{}) // closed when all have claimed the key
	var claims atomic.Int64
	op.onClaim = func() {
		if claims.Add(1) == twinCount {
			close(arrived)
		}
	}
	var all sync.WaitGroup
	for i := range twinCount {
		a := op.attempt(i % 2)
		a.enter = func() {
			select {
			case <-arrived:
			case <-time.After(op.suite.patience):
			}
		}
		all.Go(func() { a.send("a twin") })
	}
	all.Wait()
	for i := range twinCount {
		all.Go(func() { op.retry(i % 2) })
	}
	all.Wait()
}

// hangUpBefore breaks the request off, and then sends it.
func (op *operation) hangUpBefore() {
	a := op.attempt(0)
	a.cut, a.lost = true, true
	op.note("attempt %d was broken off before its last byte", a.number)
	if err := a.breakOff(); err != nil {
		op.note("it could not be sent: %v", err)
	}
	op.retry(0)
	op.retry(1)
}

// hangUp hangs up when the handler is about to begin, or has just returned, and goes
// on when the server has noticed.
func (op *operation) hangUp(before bool) {
	a := op.attempt(0)
	a.lost = true
	ctx, cancel := context.WithCancel(a.ctx)
	defer cancel()
	a.ctx = ctx
	gone := func() {
		cancel()
		select {
		case <-a.gone:
			op.note("the client of attempt %d hung up", a.number)
		case <-time.After(op.suite.patience):
			op.note("the client of attempt %d hung up, and the server has not noticed", a.number)
		}
	}
	if before {
		a.enter = gone
	} else {
		a.leave = gone
	}
	a.send("the first")
	op.retry(0)
	op.retry(1)
}

// die has process 1 die in a call of the store. Process 2 takes over when the lease
// has ended.
func (op *operation) die(c crash) {
	op.crash = &c
	a := op.attempt(0)
	a.lost = true
	a.send("the first")
	op.lapse()
	op.retry(1)
	op.retry(1)
}

// loseLease has process 1 stall when the handler has returned, so long that its
// lease ends. Process 2 takes over; then process 1 wakes up.
func (op *operation) loseLease() {
	a := op.attempt(0)
	stalled, awake := make(chan struct{}), make(chan struct{})
	a.leave = func() {
		close(stalled)
		<-awake
	}
	var all sync.WaitGroup
	all.Go(func() { a.send("the first") })
	select {
	case <-stalled:
		op.stall(true, "stalled")
		op.lapse()
		op.retry(1)
		op.stall(false, "woke up")
	case <-a.served:
	case <-time.After(op.suite.patience):
	}
	close(awake)
	all.Wait()
	op.retry(0)
	op.retry(1)
}
