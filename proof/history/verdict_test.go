package history_test

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/retrysafe/idempotency"
)

// judge adds the end of the request's run to the history, when everything has
// settled, and checks what its client got.
func (h *history) judge(q *request, atMostOnce bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.settle == 0 {
		h.problem("request %d has not settled", q.id)
	}
	if !q.ran {
		return
	}
	what := map[idempotency.Outcome]string{
		idempotency.OutcomeExecuted: "recorded",
		idempotency.OutcomeReleased: "freed",
	}[q.event.Outcome]
	from, to, noAnswer := q.end, q.settle, q.ending == 0
	if q.event.Code == idempotency.CodeNotCommitted {
		// The client is told to ask again, and a rollback may go on behind it.
		what, to, noAnswer = "unknown", max(to, h.quiet), true
	}
	if what != "recorded" && q.proxy != nil && h.ledger != nil {
		// A transaction is over when its connection is, while its handler runs, and
		// the server rolls back when it notices.
		from, to = q.began, max(to, h.quiet)
	}
	if !noAnswer && (q.status != q.ending || q.answer != q.text()) {
		h.problem("request %d got %d %q", q.id, q.status, q.answer)
	}
	if what == "" { // left to lapse: it blocks its key from now on
		if !atMostOnce || q.ending != 0 {
			h.problem("request %d has settled as %s", q.id, q.event.Outcome)
		}
		return
	}
	h.add(q, "end", from, to, outcome{what, q.text()})
}

// audit looks at what is left when everything has settled.
func (h *history) audit() {
	if h.ledger == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	record, err := h.store.(idempotency.Inspector).Lookup(ctx, idempotency.NewKey("shared", "POST /things", h.key))
	if err == nil {
		err = h.ledger.audit(ctx, record, h.key)
	}
	if err != nil {
		h.problem("%v", err)
	}
}

// mayStayClaimed reports whether the key may be claimed when everything has
// settled, until the lease is over: because a claim has arrived after what was to
// free it, or a panic under at-most-once. A transaction ends with its connection.
func (h *history) mayStayClaimed(s scenario) bool {
	if h.ledger != nil {
		return false
	}
	for _, q := range s.plans {
		if q.wire != nil || s.atMostOnce && q.ending == 0 {
			return true
		}
		for _, f := range q.faults {
			if f == late {
				return true
			}
		}
	}
	return false
}

// verdict returns what is wrong, with the story, or "".
func (h *history) verdict(s scenario, all []*request) string {
	last := all[len(all)-1]
	if last.status != http.StatusCreated && last.status != http.StatusConflict && last.status != http.StatusUnprocessableEntity {
		h.problem("the last request, without faults, got %d %q", last.status, last.answer)
	}
	if last.code == idempotency.CodeInProgress && !h.mayStayClaimed(s) {
		h.problem("a claim is left")
	}
	if result := porcupine.CheckOperationsTimeout(keyModel.ToModel(), h.actions, 30*time.Second); result != porcupine.Ok {
		h.problem("no order of the actions explains the history (%s)", result)
	}
	if len(h.problems) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", strings.Join(h.problems, "; "))
	if s.atMostOnce {
		b.WriteString("  at most once\n")
	}
	for _, q := range all {
		answer := q.answer
		if q.code != "" {
			answer = string(q.code)
		}
		fmt.Fprintf(&b, "  %s\n    calls %v, %d %q, settled as %s %v\n", q.plan, q.calls, q.status, answer, q.event.Outcome, q.event.Err)
	}
	slices.SortFunc(h.actions, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	for _, a := range h.actions {
		to := fmt.Sprint(a.Return)
		if a.Return == forever {
			to = "whenever"
		}
		fmt.Fprintf(&b, "  from %d to %s: %v %v\n", a.Call, to, a.Input, a.Output)
	}
	return b.String()
}
