package idempotency

import (
	"context"
	"errors"
	"sync"
	"time"
)

// keeper keeps the claim of a run alive: it extends the lease every third of it,
// and ends the run's context when the claim is lost or the run takes too long.
// Between its beats it is a timer, not a goroutine.
type keeper struct {
	store   Store
	claim   *Claim
	lease   time.Duration // 0: there is none to be kept, only a longest execution
	timeout time.Duration
	values  context.Context
	lose    context.CancelCauseFunc

	mu      sync.Mutex
	end     time.Time // of the longest execution
	leased  time.Time // the start of the last call that gave the lease
	timer   *time.Timer
	stopped bool
	abort   context.CancelFunc // ends the beat in flight
	flying  chan struct{}      // closed when the beat in flight is over; nil: none is
}

// start begins keeping. leased is when the call that gave the lease was begun.
func (k *keeper) start(leased, end time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.leased, k.end = leased, end
	k.timer = time.AfterFunc(k.until(leased.Add(k.lease/3)), k.beat)
}

// until returns how long it is from now until t, or until the end if that is
// sooner or there is no lease.
func (k *keeper) until(t time.Time) time.Duration {
	if k.lease == 0 || t.After(k.end) {
		t = k.end
	}
	return time.Until(t)
}

// stop ends the keeping and waits for a beat in flight, so that nothing extends
// the claim once it has been settled.
func (k *keeper) stop() {
	k.mu.Lock()
	k.stopped = true
	if k.timer != nil {
		k.timer.Stop()
	}
	if k.abort != nil {
		k.abort()
	}
	flying := k.flying
	k.mu.Unlock()
	if flying != nil {
		<-flying
	}
}

// beat extends the lease once and sets the timer for the next time.
func (k *keeper) beat() {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	lapse := k.leased.Add(k.lease)
	switch {
	case k.stopped:
		return
	case !now.Before(k.end):
		k.lose(ErrMaxExecution)
		return
	case !now.Before(lapse):
		k.lose(ErrClaimLost)
		return
	case k.flying != nil:
		return // the timer had fired before the beat in flight set it
	}
	limit := now.Add(k.timeout)
	for _, t := range [...]time.Time{lapse, k.end} {
		if t.Before(limit) {
			limit = t // what ends the context must not wait for the beat
		}
	}
	var ctx context.Context
	ctx, k.abort = context.WithDeadline(k.values, limit)
	k.flying = make(chan struct{})
	k.timer.Reset(k.until(lapse)) // for a store that does not heed its context
	k.mu.Unlock()

	err := k.renew(ctx)

	k.mu.Lock()
	k.abort()
	close(k.flying)
	k.flying, k.abort = nil, nil
	switch {
	case k.stopped:
	case err == nil:
		k.leased = now
		k.timer.Reset(k.until(now.Add(k.lease / 3)))
	case errors.Is(err, ErrClaimLost):
		k.lose(ErrClaimLost)
	default:
		again := time.Now().Add(k.lease/30 + time.Millisecond)
		if lapse.Before(again) {
			again = lapse
		}
		k.timer.Reset(k.until(again))
	}
}

// renew extends the lease. A claim that is gone may only have lapsed: it is made
// once more, with its own token.
func (k *keeper) renew(ctx context.Context) error {
	err := k.store.Extend(ctx, *k.claim, k.lease)
	if !errors.Is(err, ErrClaimLost) {
		return err
	}
	held, err := k.store.Claim(ctx, *k.claim, k.lease)
	if err != nil || held == nil || held.Token == k.claim.Token && held.Response == nil {
		return err
	}
	return ErrClaimLost
}
