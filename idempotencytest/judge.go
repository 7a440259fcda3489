package idempotencytest

import (
	"fmt"
	"net/http"

	"github.com/retrysafe/idempotency"
)

// judge returns everything that is wrong with what happened, each in one sentence.
func (op *operation) judge() []string {
	effects := op.suite.count(op.key)
	op.mu.Lock()
	defer op.mu.Unlock()
	if op.suite.effects != nil {
		op.tell("at the end%s", op.withEffects(effects))
	}
	op.judgeRuns()
	op.judgeEffects(effects)
	op.judgeAnswers()
	return op.faults
}

// judgeRuns looks at how often the handler ran.
func (op *operation) judgeRuns() {
	allowed := 1 + op.reasons
	for i := range op.runs {
		r := &op.runs[i]
		if r.outcome() == idempotency.OutcomeReleased {
			allowed++
			if status := r.status(); !r.panics && status < 400 {
				op.fault("run %d answered %d and its key was released, so a retry carries the request out again", i+1, status)
			}
		}
	}
	if n := len(op.runs); n > allowed {
		op.fault("the handler ran %d times, and no crash, lost lease or released key explains more than %d", n, allowed)
	}
}

// judgeEffects looks at each run's side effects, and at those between runs.
func (op *operation) judgeEffects(effects int) {
	if op.suite.effects == nil {
		return
	}
	carriedOut, refused := false, false
	for i := range op.runs {
		r := &op.runs[i]
		until := effects // of what came after the run, before the next
		if i+1 < len(op.runs) {
			until = op.runs[i+1].before
		}
		made, status := r.after-r.before, r.status()
		all := made + max(until-r.after, 0)
		if late := until - r.after; late > 0 && r.ended {
			op.fault("the handler went on after it had returned: run %d had %s when it returned, and %s later", i+1, plural(made), plural(all))
		}
		if made > 1 {
			op.fault("run %d had %s, a run should have one", i+1, plural(made))
		}
		switch {
		case all > 0 && r.panics:
			op.fault("run %d panicked after its side effect, and a retry repeats it", i+1)
		case all > 0 && refuses(status):
			op.fault("run %d had its side effect and then refused the request with %d", i+1, status)
		case all > 0 && r.outcome() == idempotency.OutcomeReleased && status >= 400:
			op.fault("run %d had its side effect and its key was released, so a retry repeats it", i+1)
		}
		refused = refused || refuses(status)
		carriedOut = carriedOut || !r.panics && status > 0 && status < 400
	}
	before := effects
	if len(op.runs) > 0 {
		before = op.runs[0].before
	}
	switch {
	case before > 0:
		op.fault("the key had %s before the handler ran: does WithEffects count others'?", plural(before))
	case op.valid && carriedOut && !refused && effects == 0:
		op.fault("the request was carried out without a side effect: did it get lost, or does WithEffects count another key's?")
	case op.suite.once && effects > 1:
		op.fault("%s for one key, with WithOneEffect", plural(effects))
	}
}

// judgeAnswers compares what the clients got.
func (op *operation) judgeAnswers() {
	var first *given
	for i := range op.answers {
		g := &op.answers[i]
		if op.refusal && g.attempt.event.Outcome == idempotency.OutcomeExecuted && (g.answer.status < 400 || g.answer.status > 499) {
			op.fault("a request of WithInvalid was answered with %d, not with 400 to 499", g.answer.status)
		}
		if !op.counts(g) {
			continue
		}
		if first == nil {
			first = g
		} else if !first.answer.equal(g.answer) {
			op.fault("attempt %d was answered otherwise than attempt %d", g.attempt.number, first.attempt.number)
			return
		}
	}
}

// counts reports whether an answer has to be the same as the others: the record's,
// and with WithOneEffect those of runs that lost their claim, too.
func (op *operation) counts(g *given) bool {
	switch g.attempt.event.Outcome {
	case idempotency.OutcomeExecuted, idempotency.OutcomeReplayed, idempotency.OutcomeReconciled:
		return true
	case idempotency.OutcomeUnstored:
		return op.suite.once
	}
	return false
}

func (r *run) outcome() idempotency.Outcome {
	if !r.attempt.settled {
		return ""
	}
	return r.attempt.event.Outcome
}

// status is what the run answered, 0 if nothing is known of it.
func (r *run) status() int {
	if r.panics {
		return 0
	}
	return r.attempt.event.Status
}

// refuses reports whether a handler says with status that nothing was done.
func refuses(status int) bool {
	return status >= 400 && status < 500 || status == http.StatusServiceUnavailable
}

// plural is n side effects, in words.
func plural(n int) string { return count(n, "side effect") }

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// summary says how often the handler ran for the key and whether the answers agree.
func (op *operation) summary() string {
	op.mu.Lock()
	defer op.mu.Unlock()
	agree, counted := "all equal", 0
	var first *given
	for i := range op.answers {
		g := &op.answers[i]
		if !op.counts(g) {
			continue
		}
		counted++
		if first == nil {
			first = g
		} else if !first.answer.equal(g.answer) {
			agree = "not all equal"
		}
	}
	text := fmt.Sprintf("%s: %s of the handler, %s, %s", op.scenario, count(len(op.runs), "run"), count(counted, "answer"), agree)
	if op.suite.effects != nil {
		text += ", " + plural(op.suite.count(op.key))
	}
	return text + " (key " + op.key + ")"
}
