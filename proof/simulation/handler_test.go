package simulation_test

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/retrysafe/idempotency"
)

// ran is one run of the handler.
type ran struct {
	id      int
	asked   *asked
	began   time.Duration
	ended   time.Duration // it returned, its context ended or its process died; -1 while it runs
	freed   bool          // it said that nothing was done, or panicked where that frees the key
	effect  bool
	answers int // the status
}

// text is the answer of a run, which cannot be taken for another's.
func (x *ran) text() string { return fmt.Sprintf("run %d", x.id) }

// serve is the handler of every process: a few steps that take their time, one
// of which has an effect, and an ending that tells the truth about it.
func (p *process) serve(rw http.ResponseWriter, r *http.Request) {
	w, q := p.w, r.Context().Value(askedKey{}).(*asked)
	x := w.begin(p, q)
	stop := context.AfterFunc(r.Context(), func() { w.over(x, "its context has ended") })
	defer w.over(x, "it has returned")
	defer stop()
	dice := w.dice("handler", q.id)
	steps := 1 + dice.IntN(3)
	act := dice.IntN(steps + 1) // the step with the effect; none if it is beyond the last
	for i := range steps {
		if dice.Float64() < w.faults/4 && !w.calm && w.crashes(q, i) {
			p.crash("in the handler of " + q.String())
		}
		if !p.pause(r.Context(), moment(dice)/2) {
			break
		}
		if i == act {
			w.act(p, x)
		}
	}
	p.end(rw, x, dice.IntN(8))
}

func (w *world) crashes(q *asked, step int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.happens("step %d of the handler of %s kills its process", step, q)
}

// pause returns false when the process has died or the context has ended.
func (p *process) pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	case <-p.died:
	}
	return ctx.Err() == nil && !p.isDead()
}

func (p *process) end(rw http.ResponseWriter, x *ran, how int) {
	if p.isDead() {
		panic(http.ErrAbortHandler) // its goroutine has to end somehow
	}
	p.w.mu.Lock()
	effect := x.effect
	status := http.StatusCreated
	switch {
	case how == 0:
		status = 0
		x.freed = !p.w.atMostOnce
		p.w.excused[x.asked.key] = p.w.excused[x.asked.key] || effect
	case !effect && how < 5:
		status, x.freed = http.StatusServiceUnavailable, true
	case !effect:
		status = http.StatusUnprocessableEntity
	}
	x.answers = status
	p.w.note("the handler of %s ends with %d", x.asked, status)
	p.w.mu.Unlock()
	if status == 0 {
		panic(http.ErrAbortHandler)
	}
	rw.WriteHeader(status)
	_, _ = rw.Write([]byte(x.text()))
}

// reconcile is the Reconciler of every process: it takes its time, then says
// what is true, or that it does not know.
func (p *process) reconcile(ctx context.Context, e *idempotency.Execution) (*idempotency.Response, error) {
	w, q := p.w, ctx.Value(askedKey{}).(*asked)
	dice := w.dice("reconciler", q.id)
	w.tell("%s asks what became of the key of %s", p.name, q)
	if dice.IntN(4) == 0 { // it does not heed its context
		time.Sleep(2 * moment(dice))
	}
	if !p.pause(ctx, moment(dice)/2) && dice.IntN(2) == 0 || dice.IntN(4) == 0 {
		return nil, errDown
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.effects[q.key] == 0 {
		if !p.dead && ctx.Err() == nil { // else the handler does not run
			w.note("%s: nothing was done", p.name)
			for _, x := range w.runs {
				if x.asked.key == q.key && x.ended >= 0 {
					x.freed = true
				}
			}
		}
		return nil, idempotency.ErrNotExecuted
	}
	for _, x := range w.runs {
		if x.asked.key == q.key && x.effect {
			return &idempotency.Response{Status: http.StatusCreated, Body: []byte(x.text())}, nil
		}
	}
	return nil, errDown
}
