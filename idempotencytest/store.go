package idempotencytest

import (
	"context"
	"errors"
	"time"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/memstore"
)

// faultyStore is the store as one process sees it. For each operation it can die by
// itself, at any call: from then on nothing that the process does for it counts.
type faultyStore struct {
	*memstore.Store
	process int
}

var (
	_ idempotency.Store  = (*faultyStore)(nil)
	_ idempotency.Waiter = (*faultyStore)(nil)
)

var (
	errDead    = errors.New("idempotencytest: the process has died")
	errStalled = errors.New("idempotencytest: the process has stalled")
)

// crash says at which call of the store a process dies.
type crash struct {
	call  int  // from 0
	after bool // the call took effect, and its reply did not arrive
}

func (s *faultyStore) Claim(ctx context.Context, c idempotency.Claim, lease time.Duration) (held *idempotency.Record, err error) {
	op := attemptOf(ctx).op
	err = op.call(s.process, "Claim", errDead, func() error {
		held, err = s.Store.Claim(ctx, c, lease)
		if err == nil && held == nil {
			op.claimed(c)
		}
		return err
	})
	if op.onClaim != nil {
		op.onClaim()
	}
	return held, err
}

func (s *faultyStore) Extend(ctx context.Context, c idempotency.Claim, lease time.Duration) error {
	op := attemptOf(ctx).op
	return op.call(s.process, "Extend", idempotency.ErrClaimLost, func() error {
		err := s.Store.Extend(ctx, c, lease)
		if err == nil {
			op.claimed(c)
		}
		return err
	})
}

// Complete of a dead process says that the claim is lost, so that nobody tries
// again.
func (s *faultyStore) Complete(ctx context.Context, c idempotency.Claim, resp *idempotency.Response, ttl time.Duration) error {
	op := attemptOf(ctx).op
	return op.call(s.process, "Complete", idempotency.ErrClaimLost, func() error {
		err := s.Store.Complete(ctx, c, resp, ttl)
		if err == nil {
			op.recorded()
		}
		return err
	})
}

func (s *faultyStore) Release(ctx context.Context, c idempotency.Claim) error {
	op := attemptOf(ctx).op
	return op.call(s.process, "Release", idempotency.ErrClaimLost, func() error { return s.Store.Release(ctx, c) })
}

// call makes a call of the store for the operation, unless the process is dead or
// dies of it.
func (op *operation) call(process int, name string, dead error, f func() error) error {
	op.mu.Lock()
	n := len(op.calls[process])
	op.calls[process] = append(op.calls[process], name)
	dies := process == 0 && op.crash != nil && op.crash.call == n
	switch {
	case process == 0 && op.dead:
		op.mu.Unlock()
		return dead
	case process == 0 && op.stalled: // its heartbeat must not win the key back
		op.mu.Unlock()
		return errStalled
	case dies && !op.crash.after:
		op.dead = true
		op.tell("process 1 died in its call %s, which did not take effect", name)
		op.mu.Unlock()
		return dead
	}
	op.mu.Unlock()
	err := f()
	if dies {
		op.mu.Lock()
		defer op.mu.Unlock()
		op.dead = true
		op.tell("process 1 died in its call %s, which took effect", name)
		return dead
	}
	return err
}

func (op *operation) claimed(c idempotency.Claim) {
	op.mu.Lock()
	defer op.mu.Unlock()
	op.claim = c
}

func (op *operation) recorded() {
	op.mu.Lock()
	defer op.mu.Unlock()
	op.stored = true
}

// lapse ends the lease of the operation's running claim, as if it had not been
// extended in time. Nobody has to wait for a clock, and a machine that stalls
// changes nothing.
func (op *operation) lapse() {
	op.mu.Lock()
	c := op.claim
	op.reasons++
	op.tell("the lease ended")
	op.mu.Unlock()
	// Of a claim that is gone or completed this changes nothing.
	_ = op.suite.store.Extend(context.Background(), c, time.Nanosecond)
}
