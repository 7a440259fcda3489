package simulation_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/retrysafe/idempotency"
)

// begin notes the beginning of a run, and checks that it may begin.
func (w *world) begin(p *process, q *asked) *ran {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	x := &ran{id: len(w.runs) + 1, asked: q, began: now, ended: -1}
	w.note("%s runs the handler of %s: %s", p.name, q, x.text())
	c := w.claims[q.token]
	if p.dead {
		x.ended = now // what a dead process does has no effect
		x.freed = true
		return x
	}
	switch {
	case c == nil || !c.won:
		w.fail("%s runs without having won a claim", q)
		return x
	case c.good < now: // at one instant, whose timer fires first is chance
		w.fail("%s runs under a claim whose lease was over", q)
	case q.broken:
		w.fail("%s runs with a body that broke off", q)
	}
	for _, other := range w.claims {
		if other.asked.key == q.key && other.recorded && now < other.completedAt+ttl {
			w.fail("%s runs though %s has recorded an answer", q, other.asked)
		}
	}
	for _, y := range w.runs {
		w.mayFollow(y, x)
	}
	q.run, c.run = x, x
	w.runs = append(w.runs, x)
	return x
}

// mayFollow checks that x may begin though y has begun before.
func (w *world) mayFollow(y, x *ran) {
	if y.asked.key != x.asked.key {
		return
	}
	c := w.claims[y.asked.token]
	switch {
	case y.freed:
	case w.atMostOnce:
		w.fail("%s runs, though nothing has freed the key since %s", x.text(), y.text())
	case c.good > x.began:
		w.fail("%s runs, though the claim of %s is good until %s", x.text(), y.text(), c.good)
	}
	if y.ended < 0 {
		// Timers of the same instant fire in any order: it has to end by now.
		w.note("%s is still running", y.text())
	}
}

// over notes that a run has ended. Nothing of it counts from now on.
func (w *world) over(x *ran, why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if x.ended >= 0 {
		return
	}
	x.ended = w.now()
	w.note("%s is over: %s", x.text(), why)
	for _, y := range w.runs {
		if y != x && y.asked.key == x.asked.key && y.began > x.began && y.began < x.ended {
			w.fail("%s and %s ran at the same time", x.text(), y.text())
		}
	}
}

// act is the effect of a run, such as a payment.
func (w *world) act(p *process, x *ran) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.dead || x.ended >= 0 {
		return
	}
	x.effect = true
	key := x.asked.key
	w.effects[key]++
	w.note("%s has its effect on key %s", x.text(), key)
	if w.atMostOnce && w.effects[key] > 1 {
		w.fail("the effect on key %s was had twice", key)
	}
}

// recorded notes an answer that the store has taken.
func (w *world) recorded(token string, q *asked, resp *idempotency.Response) {
	now := w.now()
	for t, other := range w.claims {
		if t != token && other.asked.key == q.key && other.recorded && now < other.completedAt+ttl {
			w.fail("%s and %s have both recorded an answer", q, other.asked)
		}
	}
	c := w.claimOf(token, q)
	if !c.recorded || now >= c.completedAt+ttl {
		c.recorded, c.completedAt = true, now
		c.asked.recordedBody = string(resp.Body)
	}
}

// checkAnswer checks what a client got.
func (w *world) checkAnswer(q *asked, rec *httptest.ResponseRecorder) {
	body := rec.Body.String()
	replayed := rec.Header().Get("Idempotent-Replayed") != ""
	switch {
	case strings.HasPrefix(rec.Header().Get("Content-Type"), "application/problem"):
		if q.run != nil {
			w.fail("the handler of %s ran to its end, and the client got %s", q, body)
		}
	case replayed:
		for _, c := range w.claims {
			if c.asked.key == q.key && c.asked.body == q.body && c.recorded && c.asked.recordedBody == body {
				return
			}
		}
		if q.token != "" && w.reconciler { // the Reconciler's answer, whether or not it was recorded
			return
		}
		w.fail("%s got %q, which nobody has recorded", q, body)
	case q.run == nil:
		w.fail("%s got %q, and its handler has not run", q, body)
	case rec.Code != q.run.answers || body != q.run.text():
		w.fail("%s got %d %q, but its handler answered %d %q", q, rec.Code, body, q.run.answers, q.run.text())
	}
	if q.broken && rec.Code != http.StatusBadRequest {
		w.fail("%s, whose body broke off, got %d", q, rec.Code)
	}
}

// afterwards checks that nothing is left behind: when nothing happens any more
// no key is in progress, and without at-most-once every key can be used.
func (w *world) afterwards() {
	for _, key := range []string{"A", "B"} {
		held, err := w.store.Lookup(context.Background(), idempotency.NewKey("shared", "POST /things", key))
		w.mu.Lock()
		if err != nil || held != nil && held.Response == nil && !held.Lapsed {
			w.fail("key %s is stuck: %s", key, recordText(held, err))
		}
		if held != nil && held.Lapsed && !w.atMostOnce {
			w.fail("key %s is held: %s", key, recordText(held, err))
		}
		for _, q := range w.requests {
			if q.broken && q.token != "" {
				w.fail("%s, whose body broke off, has claimed its key", q)
			}
		}
		p := w.processes[0]
		w.mu.Unlock()
		if w.atMostOnce {
			continue
		}
		q := &asked{id: "last " + key, key: key, body: "b1"}
		rec := w.send(context.Background(), p, q, strings.NewReader(q.body))
		w.mu.Lock()
		if q.run == nil && rec.Header().Get("Idempotent-Replayed") == "" && rec.Code != http.StatusConflict {
			w.fail("key %s cannot be used: %d", key, rec.Code)
		}
		w.mu.Unlock()
	}
	time.Sleep(2 * longest)
}
