package memstore

import (
	"context"
	"time"

	"github.com/retrysafe/idempotency"
)

// Wait returns when the claim that runs on key has ended: completed, released,
// forgotten, or its lease over. An extended lease is waited for to its new end.
// It returns nil at once if no claim is running, and ctx.Err() when ctx ends.
func (s *Store) Wait(ctx context.Context, key idempotency.Key) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	at := s.spot(key)
	claim, changed, left := s.watch(at)
	if claim == nil {
		return nil
	}
	lapse := time.NewTimer(left)
	defer lapse.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		case <-lapse.C:
		}
		var now *entry
		if now, changed, left = s.watch(at); now != claim {
			return nil
		}
		lapse.Reset(left)
	}
}

// watch returns the claim that runs on the key, or nil, with a channel that is
// closed when to look again and what is left of its lease.
func (s *Store) watch(at spot) (claim *entry, changed <-chan struct{}, left time.Duration) {
	at.mu.Lock()
	defer at.mu.Unlock()
	now := s.now()
	e := at.live(now)
	if e == nil || !e.running(now) {
		return nil, nil, 0
	}
	if e.changed == nil {
		e.changed = make(chan struct{})
	}
	return e, e.changed, e.lease - now
}
