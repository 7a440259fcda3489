package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retrysafe/idempotency"
)

// This file is what can go wrong on the server's side: the network in front of
// the service, the bank behind it, and the process itself.

const (
	patience   = 600 * time.Millisecond  // of a customer, for one attempt
	tooLong    = 1300 * time.Millisecond // for that patience
	giveUp     = time.Minute             // of a customer, for good: something is out of order
	shortLease = 2500 * time.Millisecond // where a lease is to be outlived, or to lapse
	muchLater  = 6 * time.Second         // more than two of those
)

// cuttable is the server's end of a connection that can be cut.
type cuttable struct {
	net.Conn
	mu    sync.Mutex
	cut   bool
	cutAt float64
}

type cuttableListener struct{ net.Listener }

func (l cuttableListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &cuttable{Conn: c}, nil
}

// cutNext cuts the next answer on the connection at a part of it.
func (c *cuttable) cutNext(cut bool, at float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut, c.cutAt = cut, at
}

// Write is called once for an answer as small as ours.
func (c *cuttable) Write(p []byte) (int, error) {
	c.mu.Lock()
	cut, at := c.cut, c.cutAt
	c.mu.Unlock()
	if !cut {
		return c.Conn.Write(p)
	}
	n, _ := c.Conn.Write(p[:1+int(at*float64(len(p)-1))])
	_ = c.Close()
	return n, errCut
}

var errCut = errors.New("the connection is cut")

type connKey struct{}

// withConn is for http.Server.ConnContext.
func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// hangUp cuts the connection of the request that ctx belongs to.
func hangUp(ctx context.Context) { _ = ctx.Value(connKey{}).(net.Conn).Close() }

// network is what stands before the service: it counts requests, and cuts the
// answers to those whose plan says so, the replayed ones as well.
func (s *stage) network(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		counts := &s.counts
		if r.Header.Get("X-Audit") != "" {
			counts = &s.audit
		}
		counts.attempts.Add(1)
		if o := s.orders[r.Header.Get("X-Order")]; o != nil {
			attempt := s.tally(s.attempts, o.Order)
			cut := (o.fault == cutAnswer || o.fault == declined) && attempt <= int64(o.cuts)
			r.Context().Value(connKey{}).(*cuttable).cutNext(cut, o.cutAt)
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), countsKey{}, counts)))
	})
}

// troubledBank is the bank on a bad day: the first run of an order meets what
// its plan says, later ones meet nothing.
type troubledBank struct {
	bank
	stage *stage
	die   func() // ends the process that calls, and does not return; of one that is to live it does nothing
}

// Charge charges in the bank, with trouble before or after.
//
// A panic, and the death of the process, come before the charge. A panic frees
// the key, since nothing has been answered, and so does a dead process when its
// lease is over: the retry then runs the handler. Had the money been taken
// already, it would be taken twice, and a store outside of the bank's own book
// cannot know. That is the limit of this middleware. -die-after-charge shows it,
// -at-most-once leaves the outcome unknown instead, and -reconcile asks the bank.
func (b *troubledBank) Charge(ctx context.Context, reference, customer string, p payment) (string, error) {
	countsOf(ctx).runs.Add(1)
	s := b.stage
	o := s.orders[p.Order]
	if o == nil || s.tally(s.runs, p.Order) > 1 {
		return b.bank.Charge(ctx, reference, customer, p)
	}
	switch {
	case o.fault == cutBefore:
		hangUp(ctx)
	case o.fault == panics:
		panic("the handler panics, as planned")
	case o.fault == dies && !s.dieAfterCharge:
		b.die()
	case o.fault == slow:
		// It ends with its context, as a handler must: were its claim lost, somebody
		// else could be charging by now.
		if s.pause(ctx, muchLater); ctx.Err() != nil {
			o.note("(the handler was told to end: %v)", context.Cause(ctx))
			return "", context.Cause(ctx)
		}
	}
	id, err := b.bank.Charge(ctx, reference, customer, p)
	switch o.fault {
	case cutAfter:
		hangUp(ctx)
	case timesOut:
		s.pause(context.WithoutCancel(ctx), tooLong)
	case dies:
		b.die()
	}
	return id, err
}

// mortalStore is the store as seen by a process that dies: from then on nothing
// of what the process does reaches it, so its lease is not extended and its
// claim is neither completed nor released.
type mortalStore struct {
	idempotency.Store
	dead atomic.Bool
}

func (s *mortalStore) Claim(ctx context.Context, c idempotency.Claim, lease time.Duration) (*idempotency.Record, error) {
	if s.dead.Load() {
		return nil, errDead
	}
	return s.Store.Claim(ctx, c, lease)
}

// The others succeed, as far as the dead can tell: their code goes on for an
// instant in this simulation, and is not to think of retrying.

func (s *mortalStore) Extend(ctx context.Context, c idempotency.Claim, lease time.Duration) error {
	if s.dead.Load() {
		return nil
	}
	return s.Store.Extend(ctx, c, lease)
}

func (s *mortalStore) Complete(ctx context.Context, c idempotency.Claim, resp *idempotency.Response, ttl time.Duration) error {
	if s.dead.Load() {
		return nil
	}
	return s.Store.Complete(ctx, c, resp, ttl)
}

func (s *mortalStore) Release(ctx context.Context, c idempotency.Claim) error {
	if s.dead.Load() {
		return nil
	}
	return s.Store.Release(ctx, c)
}

var errDead = errors.New("the process is dead")
