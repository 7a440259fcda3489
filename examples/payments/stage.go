package main

import (
	"context"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retrysafe/idempotency"
)

// stage is what a crowd plays on: a bank, and the processes of the service.
type stage struct {
	config
	store  idempotency.Store // nil: the service runs without the middleware
	ledger ledger
	orders map[string]*order
	sorted []*order        // by arrival
	stop   <-chan struct{} // closed when the play is broken off

	counts counts // of the crowd
	audit  counts // of the questions afterwards

	mu        sync.Mutex
	attempts  map[string]int64 // by order
	runs      map[string]int64 // by order
	processes []*process
}

// counts is what happened, as the service sees it.
type counts struct {
	attempts, runs, replays, reconciled atomic.Int64
	inProgress, mismatches, refused     atomic.Int64
}

type countsKey struct{}

func countsOf(ctx context.Context) *counts { return ctx.Value(countsKey{}).(*counts) }

// observe is the idempotency.Observer.
func observe(ctx context.Context, e idempotency.Event) {
	c := countsOf(ctx)
	switch {
	case e.Outcome == idempotency.OutcomeReplayed:
		c.replays.Add(1)
	case e.Outcome == idempotency.OutcomeReconciled:
		c.reconciled.Add(1)
	case e.Outcome != idempotency.OutcomeRefused:
	case e.Code == idempotency.CodeInProgress:
		c.inProgress.Add(1)
	case e.Code == idempotency.CodeKeyReused:
		c.mismatches.Add(1)
	default:
		c.refused.Add(1)
	}
}

func newStage(ctx context.Context, cfg config, store idempotency.Store, orders []*order) *stage {
	s := &stage{
		config: cfg, store: store, stop: ctx.Done(), sorted: orders,
		orders:   make(map[string]*order, len(orders)),
		attempts: make(map[string]int64), runs: make(map[string]int64),
	}
	for _, o := range orders {
		s.orders[o.Order] = o
	}
	return s
}

// process is one instance of the service.
type process struct {
	address string
	server  *http.Server
	guard   *idempotency.Middleware // nil: without
	ended   chan error
}

// start starts one more instance, on a port of its own. They share the store and
// the bank, as instances do. A doomed one dies in the first run that is to kill
// its process.
//
// A lease belongs to the instance that claims, and lease changes it. Most
// instances have the default of 30 seconds: a handler that has charged is only
// safe while its process does not stand still for longer than its lease, and a
// busy machine may well do so for a second or two. So those payments alone get a
// short lease that show what becomes of it.
func (s *stage) start(ctx context.Context, doomed bool, lease ...idempotency.Option) (*process, error) {
	p := &process{ended: make(chan error, 1)}
	b := &troubledBank{bank: &s.ledger, stage: s, die: func() {}}
	guard := func(next http.Handler) http.Handler { return next }
	var store mortalStore
	if s.store != nil {
		store.Store = s.store
		p.guard = newGuard(&store, append(s.options(), lease...)...)
		guard = p.guard.Handler
	}
	p.server = &http.Server{
		Handler:           s.network(newAPI(b, guard)),
		ConnContext:       withConn,
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          log.New(io.Discard, "", 0), // panics are part of the play
	}
	if doomed {
		b.die = func() {
			store.dead.Store(true)
			_ = p.server.Close()
			panic(http.ErrAbortHandler) // a dead process does not go on
		}
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p.address = listener.Addr().String()
	go func() { p.ended <- p.server.Serve(cuttableListener{listener}) }()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.processes = append(s.processes, p)
	return p, nil
}

func (s *stage) options() []idempotency.Option {
	opts := []idempotency.Option{
		idempotency.WithTTL(10 * time.Minute),
		idempotency.WithRetryAfter(time.Second),
		idempotency.WithObserver(observe),
		idempotency.WithLogger(slog.New(slog.DiscardHandler)),
	}
	if s.atMostOnce || s.reconcile {
		opts = append(opts, idempotency.WithAtMostOnce())
	}
	if s.reconcile {
		opts = append(opts, idempotency.WithReconciler(reconcile(&s.ledger)))
	}
	return opts
}

// close ends all instances in the order that a service should end in: first no
// more requests, then what is still being recorded.
func (s *stage) close(ctx context.Context) error {
	var errs []error
	for _, p := range s.processes {
		errs = append(errs, p.server.Shutdown(ctx))
		if p.guard != nil {
			errs = append(errs, p.guard.Drain(ctx))
		}
		if err := <-p.ended; !errors.Is(err, http.ErrServerClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// tally counts one more of something about an order.
func (s *stage) tally(m map[string]int64, order string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	m[order]++
	return m[order]
}

// pause waits for d, unless ctx ends or the play is broken off.
func (s *stage) pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	case <-s.stop:
	}
}
