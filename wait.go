package idempotency

import (
	"context"
	"math/rand/v2"
	"time"
)

// How a twin looks again where nothing tells it that the first request has
// ended: soon at first, then less and less often.
const (
	firstPause = 10 * time.Millisecond
	maxPause   = 250 * time.Millisecond
)

// waiting is the state of a twin that waits.
type waiting struct {
	until time.Time     // zero before it begins
	token string        // of the claim it waits for
	pause time.Duration // before it looks again without having been told
}

// wait returns true when it is worth claiming again, and false when the twin has
// waited long enough, is not to wait at all, or has nobody to answer any more.
func (q *request) wait(s *waiting, held *Record) bool {
	start := time.Now()
	if q.m.wait == 0 {
		return false
	}
	if s.until.IsZero() {
		s.until, s.pause = start.Add(q.m.wait), firstPause
	}
	if !start.Before(s.until) {
		return false
	}
	defer func() { q.event.Wait += time.Since(start) }()
	// Here the client's hanging up counts: nothing has been claimed for it.
	ctx, cancel := context.WithDeadline(q.r.Context(), s.until)
	defer cancel()

	if s.token != held.Token {
		s.token, s.pause = held.Token, firstPause
	} else if q.m.waiter != nil {
		sleep(ctx, s.step()) // woken for nothing: not at once again
	}
	if !q.watch(ctx) {
		sleep(ctx, s.step())
	}
	return q.r.Context().Err() == nil
}

// watch waits by means of the store, and reports whether the record may have
// changed or the time is up.
func (q *request) watch(ctx context.Context) bool {
	if q.m.waiter == nil {
		return false
	}
	return q.m.waiter.Wait(ctx, q.claim.Key) == nil || ctx.Err() != nil
}

// step returns the next pause: a little under its length, so that twins that
// began together do not look together.
func (s *waiting) step() time.Duration {
	d := s.pause - rand.N(s.pause/2)
	s.pause = min(s.pause*3/2, maxPause)
	return d
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
