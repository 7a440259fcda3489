package history_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/retrysafe/idempotency"
)

// request is one request of a scenario, and what is to go wrong with its calls.
type request struct {
	id      int
	body    string
	after   time.Duration // when it is sent
	takes   time.Duration // its handler
	ending  int           // the status of its handler; 0: a panic
	faults  map[int]fault // by the number of the store call, from 1
	process int

	mu     sync.Mutex
	calls  []string
	began  int64 // in the history's clock
	ran    bool
	end    int64
	settle int64
	event  idempotency.Event
	status int
	answer string
	replay bool
}

type requestKey struct{}

func (q *request) next(method string) fault {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.calls = append(q.calls, method)
	return q.faults[len(q.calls)]
}

func (q *request) String() string {
	return fmt.Sprintf("request %d (process %d, body %s, ending %d, calls %v, faults %v)", q.id, q.process, q.body, q.ending, q.calls, q.faults)
}

// text is the answer of the request's own run.
func (q *request) text() string { return fmt.Sprintf("run of request %d", q.id) }

// scenario is some requests with one key, to two processes that share a store.
type scenario struct {
	name       string
	atMostOnce bool
	requests   []*request
}

// history is what happened.
type history struct {
	key      string
	ledger   *ledger // nil: handlers write nothing
	clock    atomic.Int64
	mu       sync.Mutex
	quiet    int64 // when nothing went on behind requests any more
	actions  []porcupine.Operation
	problems []string
}

func (h *history) add(q *request, what string, from, to int64, out outcome) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.actions = append(h.actions, porcupine.Operation{
		ClientId: q.id, Input: action{what, q.id, q.body}, Call: from, Output: out, Return: to,
	})
}

func (h *history) problem(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.problems = append(h.problems, fmt.Sprintf(format, args...))
}

// run plays the scenario over the store, with key, and returns what is wrong with
// the history, or "".
func (s scenario) run(store idempotency.Store, key string) string {
	h := &history{key: key}
	if l, ok := store.(ledger); ok {
		h.ledger = &l
	}
	var network sync.WaitGroup
	var processes [2]*idempotency.Middleware
	for i := range processes {
		processes[i] = h.process(store, &network, s.atMostOnce)
	}
	var clients sync.WaitGroup
	for _, q := range s.requests {
		clients.Go(func() {
			time.Sleep(q.after)
			h.send(processes[q.process], q)
		})
	}
	clients.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, p := range processes {
		if err := p.Drain(ctx); err != nil {
			h.problem("Drain: %v", err)
		}
	}
	network.Wait()
	h.quiet = h.clock.Add(1)
	last := &request{id: len(s.requests), body: "b1", ending: http.StatusCreated}
	h.send(processes[0], last)
	all := append(slices.Clone(s.requests), last)
	for _, q := range all {
		h.judge(q, s.atMostOnce)
	}
	if h.ledger != nil {
		if err := h.ledger.audit(ctx, key); err != nil {
			h.problem("%v", err)
		}
	}
	return h.verdict(s, all)
}

func (h *history) process(store idempotency.Store, network *sync.WaitGroup, atMostOnce bool) *idempotency.Middleware {
	opts := []idempotency.Option{
		idempotency.WithLogger(slog.New(slog.DiscardHandler)),
		idempotency.WithStoreTimeout(10 * time.Second),
		idempotency.WithLease(time.Minute), // no lease lapses here
		idempotency.WithObserver(func(ctx context.Context, e idempotency.Event) {
			q := ctx.Value(requestKey{}).(*request)
			q.mu.Lock()
			defer q.mu.Unlock()
			q.event, q.settle = e, h.clock.Add(1)
		}),
	}
	if atMostOnce {
		opts = append(opts, idempotency.WithAtMostOnce())
	}
	s := faulty{store, network}
	if tx, ok := store.(idempotency.TxStore); ok {
		return idempotency.New(faultyTx{s, tx}, idempotency.SharedKeys, opts...)
	}
	return idempotency.New(s, idempotency.SharedKeys, opts...)
}

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
	if q.ran {
		return
	}
	out := outcome{what: "replayed", text: q.answer}
	if !q.replay {
		var problem struct {
			Error idempotency.Code `json:"error"`
		}
		_ = json.Unmarshal(rec.Body.Bytes(), &problem)
		out = outcome{what: map[idempotency.Code]string{
			idempotency.CodeInProgress: "busy",
			idempotency.CodeKeyReused:  "mismatch",
		}[problem.Error]}
		if problem.Error == idempotency.CodeStoreUnavailable {
			h.lostClaim(q)
			return
		}
	}
	h.add(q, "answer", q.began, h.clock.Add(1), out)
}

// lostClaim is a claim that may have been made, and may be freed at any time.
func (h *history) lostClaim(q *request) {
	h.add(q, "lost claim made", q.began, forever, outcome{})
	h.add(q, "lost claim freed", q.began, forever, outcome{})
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
	if h.ledger != nil {
		if err := h.ledger.write(r.Context(), h.key, q.id); err != nil {
			h.problem("the handler of request %d cannot write: %v", q.id, err)
		}
	}
	time.Sleep(q.takes)
	q.mu.Lock()
	q.end = h.clock.Add(1)
	q.mu.Unlock()
	if q.ending == 0 {
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(q.ending)
	_, _ = w.Write([]byte(q.text()))
}
