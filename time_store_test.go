package idempotency_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/retrysafe/idempotency"
)

var errBubbleDown = errors.New("the store cannot be reached")

// bubbleFault is what goes wrong with one call of a store. The zero value is a
// call that goes well.
type bubbleFault struct {
	delay  time.Duration // before the call is done; the end of its context ends it, too
	deaf   bool          // the delay does not listen to the context
	refuse error         // the call is not done
	lose   error         // the call is done, but this is its reply
	hang   bool          // the call is not done and returns when its context ends
}

// bubbleCall is one call that a store has seen. Two calls with the same order
// in fake time are told apart by their sequence numbers.
type bubbleCall struct {
	method       string
	claim        idempotency.Claim
	lease        time.Duration // or the TTL
	began, ended int64         // sequence numbers; ended is 0 while it runs
	at, until    time.Duration // since the test began
	err          error
}

// bubbleStore is the store as one process reaches it: every call is logged, and
// can be made to go wrong. It hides that the store below can wait.
type bubbleStore struct {
	inner idempotency.Store
	world *bubbleWorld

	mu     sync.Mutex
	dead   bool
	script map[string]func(nth int) bubbleFault
	calls  []*bubbleCall
}

// on has f say what goes wrong with the nth call of a method, counted from 1.
func (s *bubbleStore) on(method string, f func(nth int) bubbleFault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.script == nil {
		s.script = make(map[string]func(int) bubbleFault)
	}
	nth := 0
	s.script[method] = func(int) bubbleFault {
		nth++
		return f(nth)
	}
}

// always has every call of a method go wrong in the same way from now on; the
// zero fault mends it.
func (s *bubbleStore) always(method string, fault bubbleFault) {
	s.on(method, func(int) bubbleFault { return fault })
}

// once has the next call of a method go wrong.
func (s *bubbleStore) once(method string, fault bubbleFault) {
	s.on(method, func(nth int) bubbleFault {
		if nth == 1 {
			return fault
		}
		return bubbleFault{}
	})
}

// die is the death of the process, seen from the store: nothing of it arrives
// from now on.
func (s *bubbleStore) die() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dead = true
}

func (s *bubbleStore) isDead() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dead
}

// log returns the calls of the methods named so far, of all without a name.
func (s *bubbleStore) log(methods ...string) []bubbleCall {
	s.mu.Lock()
	defer s.mu.Unlock()
	var calls []bubbleCall
	for _, c := range s.calls {
		if len(methods) == 0 || slices.Contains(methods, c.method) {
			calls = append(calls, *c)
		}
	}
	return calls
}

// times returns when the calls of the methods named began.
func (s *bubbleStore) times(methods ...string) []time.Duration {
	var at []time.Duration
	for _, c := range s.log(methods...) {
		at = append(at, c.at)
	}
	return at
}

// call makes one call, and has go wrong what is to.
func (s *bubbleStore) call(ctx context.Context, method string, c idempotency.Claim, lease time.Duration, do func() error) (err error) {
	call := &bubbleCall{method: method, claim: c, lease: lease, began: s.world.seq.Add(1), at: s.world.now()}
	s.mu.Lock()
	s.calls = append(s.calls, call)
	var fault bubbleFault
	if f := s.script[method]; f != nil {
		fault = f(0)
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		call.ended, call.until, call.err = s.world.seq.Add(1), s.world.now(), err
	}()

	switch {
	case fault.hang:
		<-ctx.Done()
	case fault.deaf:
		time.Sleep(fault.delay)
	case fault.delay > 0:
		select {
		case <-time.After(fault.delay):
		case <-ctx.Done():
		}
	}
	switch {
	case s.isDead():
		return errBubbleDown
	case ctx.Err() != nil && !fault.deaf:
		return ctx.Err()
	case fault.refuse != nil:
		return fault.refuse
	}
	err = do()
	if fault.lose != nil {
		return fault.lose
	}
	return err
}

func (s *bubbleStore) Claim(ctx context.Context, c idempotency.Claim, lease time.Duration) (held *idempotency.Record, err error) {
	err = s.call(ctx, "Claim", c, lease, func() (err error) {
		held, err = s.inner.Claim(context.WithoutCancel(ctx), c, lease)
		return err
	})
	if err != nil {
		held = nil
	}
	return held, err
}

func (s *bubbleStore) Extend(ctx context.Context, c idempotency.Claim, lease time.Duration) error {
	return s.call(ctx, "Extend", c, lease, func() error { return s.inner.Extend(context.WithoutCancel(ctx), c, lease) })
}

func (s *bubbleStore) Complete(ctx context.Context, c idempotency.Claim, resp *idempotency.Response, ttl time.Duration) error {
	return s.call(ctx, "Complete", c, ttl, func() error { return s.inner.Complete(context.WithoutCancel(ctx), c, resp, ttl) })
}

func (s *bubbleStore) Release(ctx context.Context, c idempotency.Claim) error {
	return s.call(ctx, "Release", c, 0, func() error { return s.inner.Release(context.WithoutCancel(ctx), c) })
}

// bubbleWaiter is a bubbleStore that can wait, too.
type bubbleWaiter struct{ *bubbleStore }

func (s bubbleWaiter) Wait(ctx context.Context, key idempotency.Key) error {
	return s.call(ctx, "Wait", idempotency.Claim{Key: key}, 0, func() error {
		return s.inner.(idempotency.Waiter).Wait(ctx, key)
	})
}
