package history_test

import (
	"cmp"
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
	switch {
	case q.event.Code == idempotency.CodeNotCommitted:
		// The client is told to ask again, and a rollback may go on behind it.
		what, q.settle = "unknown", max(q.settle, h.quiet)
	case q.ending == 0: // no answer
	case q.status != q.ending || q.answer != q.text():
		h.problem("request %d got %d %q", q.id, q.status, q.answer)
	}
	if what == "" { // left to lapse: it blocks its key from now on
		if !atMostOnce || q.ending != 0 {
			h.problem("request %d has settled as %s", q.id, q.event.Outcome)
		}
		return
	}
	h.add(q, "end", q.end, q.settle, outcome{what, q.text()})
}

// verdict returns what is wrong, with the story, or "".
func (h *history) verdict(s scenario, all []*request) string {
	last := all[len(all)-1]
	if last.status != http.StatusCreated && last.status != http.StatusConflict && last.status != http.StatusUnprocessableEntity {
		h.problem("the last request, without faults, got %d %q", last.status, last.answer)
	}
	if result := porcupine.CheckOperationsTimeout(keyModel.ToModel(), h.actions, 30*time.Second); result != porcupine.Ok {
		h.problem("no order of the actions explains the history (%s)", result)
	}
	if len(h.problems) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", s.name, strings.Join(h.problems, "; "))
	for _, q := range all {
		fmt.Fprintf(&b, "  %s\n    %d %q, settled as %s %s %v\n", q, q.status, q.answer, q.event.Outcome, q.event.Code, q.event.Err)
	}
	slices.SortFunc(h.actions, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	for _, a := range h.actions {
		fmt.Fprintf(&b, "  from %d to %d: %v %v\n", a.Call, a.Return, a.Input, a.Output)
	}
	return b.String()
}
