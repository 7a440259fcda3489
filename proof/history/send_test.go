package history_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/retrysafe/idempotency"
)

// send sends a request and notes its run and its answer.
func (h *history) send(mw *idempotency.Middleware, q *request) {
	r := httptest.NewRequestWithContext(context.WithValue(context.Background(), requestKey{}, q),
		http.MethodPost, "/things", strings.NewReader(q.body))
	r.Header.Set("Idempotency-Key", h.key)
	rec := httptest.NewRecorder()
	q.began = h.clock.Add(1)
	func() {
		defer func() {
			if p := recover(); p != nil && p != http.ErrAbortHandler {
				panic(p)
			}
		}()
		mw.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.handle(w, r, q) })).ServeHTTP(rec, r)
	}()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.status, q.answer, q.replay = rec.Code, rec.Body.String(), rec.Header().Get("Idempotent-Replayed") != ""
	if q.proxy != nil && h.repeats {
		h.lostClaim(q, -1-q.id)
	}
	if !q.replay {
		q.code = codeOf(rec)
	}
	if q.ran {
		return
	}
	out := outcome{what: "replayed", text: q.answer}
	if !q.replay {
		if q.code == idempotency.CodeStoreUnavailable {
			h.lostClaim(q, q.id)
			return
		}
		out = outcome{what: map[idempotency.Code]string{
			idempotency.CodeInProgress: "busy",
			idempotency.CodeKeyReused:  "mismatch",
		}[q.code]}
	}
	h.add(q, "answer", q.began, h.clock.Add(1), out)
}

// codeOf is the code of a refusal.
func codeOf(rec *httptest.ResponseRecorder) idempotency.Code {
	var problem struct {
		Error idempotency.Code `json:"error"`
	}
	_ = json.Unmarshal(rec.Body.Bytes(), &problem)
	return problem.Error
}

// lostClaim is a claim that may have been made, and may be freed at any time: one
// whose reply was lost, or, under an id of its own, one that the store's client
// has sent a second time while the first is still on its way.
func (h *history) lostClaim(q *request, id int) {
	h.addAs(q, id, "lost claim made", q.began, forever, outcome{})
	h.addAs(q, id, "lost claim freed", q.began, forever, outcome{})
}

const forever = 1 << 60

func (h *history) handle(w http.ResponseWriter, r *http.Request, q *request) {
	q.mu.Lock()
	if q.ran {
		h.problem("request %d ran twice", q.id)
	}
	q.ran = true
	q.mu.Unlock()
	h.add(q, "begin", q.began, h.clock.Add(1), outcome{})
	if q.first {
		h.running.give()
	}
	if h.ledger != nil {
		h.write(r.Context(), q)
	}
	time.Sleep(q.takes)
	if q.lasts && q.proxy == nil {
		<-h.wired.given
	}
	q.mu.Lock()
	q.end = h.clock.Add(1)
	q.mu.Unlock()
	if q.ending == 0 {
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(q.ending)
	_, _ = w.Write([]byte(q.text()))
}

// write writes the row of a run. Where that fails the handler goes on all the
// same, as a careless one would: its answer must not become a record.
func (h *history) write(ctx context.Context, q *request) {
	timeout := storeTimeout
	if q.proxy != nil {
		timeout = h.patience
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := h.ledger.write(ctx, h.key, q.id); err != nil && q.proxy == nil {
		h.problem("the handler of request %d cannot write: %v", q.id, err)
	}
}
