package idempotencytest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/retrysafe/idempotency"
)

// operation is one key: what is done to it, and what came of it.
type operation struct {
	suite    *suite
	scenario string
	key      string
	request  *template
	valid    bool   // the handler has to carry the request out
	refusal  bool   // the handler has to refuse it
	onClaim  func() // called after each Claim

	mu      sync.Mutex
	story   []string
	faults  []string // found on the way
	tries   int
	runs    []run
	answers []given
	calls   [2][]string // of the store, by process
	crash   *crash      // of process 1
	dead    bool        // process 1 is
	stalled bool        // process 1 is
	claim   idempotency.Claim
	stored  bool // the store has acknowledged an answer
	reasons int  // for one run more: deaths and lost leases
}

// run is one run of the handler.
type run struct {
	attempt       *attempt
	before, after int // effects
	ended, panics bool
}

// attempt is one request.
type attempt struct {
	op       *operation
	id       int // among all
	number   int // among the operation's
	process  int
	template *template
	ctx      context.Context // the client's
	gone     <-chan struct{} // closed when the server has noticed that the client has gone
	served   chan struct{}   // closed when the server is done with it
	enter    func()          // called before the handler
	leave    func()          // called after the handler

	event   idempotency.Event // guarded by op.mu
	settled bool              // event is there
	lost    bool              // the client does not get the answer
	cut     bool              // the request was broken off
}

// given is an answer that a client got.
type given struct {
	attempt *attempt
	answer  *answer
}

// attempt makes a new attempt, to be sent to a process.
func (op *operation) attempt(process int) *attempt {
	s := op.suite
	a := &attempt{op: op, process: process, template: op.request, ctx: context.Background(), served: make(chan struct{})}
	op.mu.Lock()
	a.number = op.tries + 1
	op.tries++
	op.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	a.id = len(s.attempts)
	s.attempts = append(s.attempts, a)
	return a
}

// send sends a and takes down what came of it.
func (a *attempt) send(what string) *answer {
	op := a.op
	op.note("attempt %d, %s, was sent to process %d", a.number, what, a.process+1)
	got := a.exchange()
	op.mu.Lock()
	defer op.mu.Unlock()
	switch {
	case a.lost || got == nil:
		op.tell("attempt %d got no answer (the Middleware: %s)", a.number, a.fate())
	default:
		op.tell("attempt %d was answered %v (the Middleware: %s)", a.number, got, a.fate())
		op.answers = append(op.answers, given{a, got})
	}
	if !a.settled && got != nil && !a.lost {
		op.fault("the request was not guarded: is its method, %s, one that is, and its key header %s?", a.template.method, op.suite.keyHeader)
	}
	return got
}

// fate says in a word what the Middleware did.
func (a *attempt) fate() string {
	if !a.settled {
		return "nothing yet"
	}
	if a.event.Code != "" {
		return string(a.event.Outcome) + ", " + string(a.event.Code)
	}
	return string(a.event.Outcome)
}

// settled takes down what the Middleware made of a.
func (op *operation) settled(a *attempt, e idempotency.Event) {
	op.mu.Lock()
	defer op.mu.Unlock()
	a.event, a.settled = e, true
}

// retry sends the request until it gets an answer that is not "try again later", as
// a client does.
func (op *operation) retry(process int) *answer {
	for deadline := time.Now().Add(op.suite.patience); ; {
		a := op.attempt(process)
		got := a.send("a retry")
		op.mu.Lock()
		busy := a.settled && a.event.Outcome == idempotency.OutcomeRefused &&
			(a.event.Code == idempotency.CodeInProgress || a.event.Code == idempotency.CodeStoreUnavailable)
		op.mu.Unlock()
		if !busy {
			return got
		}
		if time.Now().After(deadline) {
			op.fail("the key was still busy after %v", op.suite.patience)
			return nil
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// begin takes down that the handler begins a run.
func (op *operation) begin(a *attempt) int {
	before := op.suite.count(op.key)
	op.mu.Lock()
	defer op.mu.Unlock()
	n := len(op.runs) + 1
	op.tell("run %d of the handler began, for attempt %d%s", n, a.number, op.withEffects(before))
	switch {
	case op.stored:
		op.fault("the handler ran again although its answer had been recorded")
	case a.cut:
		op.fault("the handler ran for a request that had not arrived in full")
	}
	op.runs = append(op.runs, run{attempt: a, before: before, after: before})
	return n
}

// end takes down that run n has ended.
func (op *operation) end(n int, returned bool, panicked any) {
	after := op.suite.count(op.key)
	op.mu.Lock()
	defer op.mu.Unlock()
	r := &op.runs[n-1]
	r.after, r.ended, r.panics = after, true, !returned
	switch {
	case returned:
		op.tell("run %d returned%s", n, op.withEffects(after))
	case panicked == nil:
		op.tell("run %d ended by runtime.Goexit%s", n, op.withEffects(after))
	default:
		op.tell("run %d panicked: %v%s", n, panicked, op.withEffects(after))
	}
}

func (op *operation) withEffects(n int) string {
	if op.suite.effects == nil {
		return ""
	}
	return fmt.Sprintf(" (side effects so far: %d)", n)
}

// hang takes down that a did not end.
func (op *operation) hang(a *attempt) {
	op.suite.mu.Lock()
	op.suite.hung = true
	op.suite.mu.Unlock()
	op.fail("attempt %d had not ended after %v", a.number, op.suite.patience)
}

// stall has process 1 make no more calls of the store, or make them again.
func (op *operation) stall(stalled bool, what string) {
	op.mu.Lock()
	defer op.mu.Unlock()
	op.stalled = stalled
	op.tell("process 1 %s", what)
}

// tell adds to the story; op.mu is held.
func (op *operation) tell(format string, args ...any) {
	op.story = append(op.story, fmt.Sprintf(format, args...))
}

func (op *operation) note(format string, args ...any) {
	op.mu.Lock()
	defer op.mu.Unlock()
	op.tell(format, args...)
}

// fault adds to the faults; op.mu is held.
func (op *operation) fault(format string, args ...any) {
	op.faults = append(op.faults, fmt.Sprintf(format, args...))
}

func (op *operation) fail(format string, args ...any) {
	op.mu.Lock()
	defer op.mu.Unlock()
	op.fault(format, args...)
}
