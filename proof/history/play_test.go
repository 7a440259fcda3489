package history_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/proof/internal/wire"
)

const (
	// storeTimeout is for requests that reach the store directly: longer than a
	// call ever takes.
	storeTimeout = 10 * time.Second

	// wireTimeout is for those that go through a proxy, and may wait in vain; more
	// on a machine that is busy. A call that only takes so long because of that is
	// one more call whose reply is lost.
	wireTimeout = 150 * time.Millisecond
)

// history is what happened in a scenario that is being played.
type history struct {
	place
	key     string
	running signal // the first request's handler runs, or never will
	first   signal // the first request is answered
	struck  signal // a fault of the wire has come to pass, or never will
	wired   signal // a request through a proxy is answered, or there is none

	clock    atomic.Int64
	mu       sync.Mutex
	quiet    int64 // when nothing went on behind requests any more
	actions  []porcupine.Operation
	problems []string
}

// request is a request that is being played.
type request struct {
	plan
	first bool
	proxy *wire.Proxy // nil: none

	mu     sync.Mutex
	calls  []string
	began  int64 // in the history's clock
	ran    bool
	end    int64
	settle int64
	event  idempotency.Event
	status int
	code   idempotency.Code // of a refusal
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

func (q *request) tries() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.calls)
}

func (h *history) add(q *request, what string, from, to int64, out outcome) {
	h.addAs(q, q.id, what, from, to, out)
}

func (h *history) addAs(q *request, id int, what string, from, to int64, out outcome) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.actions = append(h.actions, porcupine.Operation{
		ClientId: id, Input: action{what, id, q.body}, Call: from, Output: out, Return: to,
	})
}

func (h *history) problem(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.problems = append(h.problems, fmt.Sprintf(format, args...))
}

// play plays the scenario over p, with key, and returns what is wrong with the
// history, or "", and the requests as they were played; the last one is that
// which the scenario does not name.
func (s scenario) play(p place, key string) (wrong string, played []*request) {
	h := &history{
		place: p, key: key,
		running: newSignal(), first: newSignal(), struck: newSignal(), wired: newSignal(),
	}
	var network sync.WaitGroup
	var processes [2]*idempotency.Middleware
	for i := range processes {
		processes[i] = h.process(p.store, &network, s.atMostOnce, storeTimeout)
	}
	all, ways, leave := h.requests(s, processes, &network)
	var clients sync.WaitGroup
	for i, q := range all {
		clients.Go(func() { h.client(ways[i], q) })
	}
	clients.Wait()
	for _, mw := range slices.Concat(ways, processes[:]) {
		h.drain(mw)
	}
	network.Wait()
	for _, end := range leave {
		end()
	}
	h.quiet = h.clock.Add(1)
	last := &request{plan: s.last()}
	h.send(processes[0], last)
	all = append(all, last)
	for _, q := range all {
		h.judge(q, s.atMostOnce)
	}
	h.audit()
	return h.verdict(s, all), all
}

// requests returns the requests of the scenario, the process that each comes to,
// and what is to be done when nothing goes on any more.
func (h *history) requests(
	s scenario, processes [2]*idempotency.Middleware, network *sync.WaitGroup,
) (all []*request, ways []*idempotency.Middleware, leave []func()) {
	for i, plan := range s.plans {
		q := &request{plan: plan, first: i == 0}
		way := processes[plan.process]
		if plan.wire != nil {
			mw, end := h.throughProxy(q, network, s.atMostOnce)
			way, leave = mw, append(leave, end)
		}
		all, ways = append(all, q), append(ways, way)
	}
	if leave == nil {
		h.struck.give()
		h.wired.give()
	}
	return all, ways, leave
}

// client sends one request when its time has come.
func (h *history) client(mw *idempotency.Middleware, q *request) {
	if q.first {
		defer h.first.give()
		defer h.running.give()
	} else {
		h.await(q)
	}
	h.send(mw, q)
	if q.proxy != nil { // a fault that has not come to pass never will
		h.struck.give()
		h.wired.give()
	}
}

// await waits until q is to be sent.
func (h *history) await(q *request) {
	switch q.waits {
	case running:
		<-h.running.given
	case answered:
		<-h.first.given
	case struck:
		if q.proxy == nil { // else it might wait for itself
			<-h.struck.given
		}
	}
	time.Sleep(q.after)
}

func (h *history) drain(mw *idempotency.Middleware) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute) // longer than a lease
	defer cancel()
	if err := mw.Drain(ctx); err != nil {
		h.problem("Drain: %v", err)
	}
}

// process returns a Middleware over store whose calls go wrong as their requests
// say.
func (h *history) process(
	store idempotency.Store, network *sync.WaitGroup, atMostOnce bool, timeout time.Duration,
) *idempotency.Middleware {
	opts := []idempotency.Option{
		idempotency.WithLogger(slog.New(slog.DiscardHandler)),
		idempotency.WithStoreTimeout(timeout),
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

// throughProxy returns a Middleware for q alone, whose store reaches the server
// through a proxy of its own, and what closes these when nothing goes on any more.
func (h *history) throughProxy(
	q *request, network *sync.WaitGroup, atMostOnce bool,
) (mw *idempotency.Middleware, leave func()) {
	proxy, err := wire.Start(h.network, h.server, q.wire)
	if err != nil {
		panic(err) // no port is left on this machine
	}
	store, closeStore := h.through(proxy.Addr(), h.patience)
	q.proxy = proxy
	gone := make(chan struct{})
	go func() {
		select {
		case <-proxy.Struck():
		case <-gone:
		}
		h.struck.give()
	}()
	return h.process(store, network, atMostOnce, h.patience), func() {
		close(gone)
		closeStore()
		proxy.Close()
	}
}
