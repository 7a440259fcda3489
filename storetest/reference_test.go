package storetest_test

import (
	"context"
	"sync"
	"time"

	"github.com/retrysafe/idempotency"
)

// reference is a correct store, as simple as can be: one lock, one map.
type reference struct {
	mu      sync.Mutex
	entries map[idempotency.Key]*entry
	room    int           // 0: no limit
	changed chan struct{} // closed at the next change
	ahead   time.Duration // how far advance has put the clock
}

type entry struct {
	claim    idempotency.Claim
	response *idempotency.Response
	live     time.Time // end of the lease or the TTL
	gone     time.Time // end of the Hold, if that is later
}

var (
	_ idempotency.Store     = (*reference)(nil)
	_ idempotency.Waiter    = (*reference)(nil)
	_ idempotency.Inspector = (*reference)(nil)
)

func newReference() *reference {
	return &reference{entries: map[idempotency.Key]*entry{}, changed: make(chan struct{})}
}

// now is the store's clock.
func (s *reference) now() time.Time { return time.Now().Add(s.ahead) }

// advance puts the store's clock ahead, as a fake server's can be.
func (s *reference) advance(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ahead += d
	s.signal()
}

// get returns what is there for key, nil if nothing.
func (s *reference) get(key idempotency.Key) *entry {
	e := s.entries[key]
	if e != nil && !s.now().Before(e.gone) {
		delete(s.entries, key)
		return nil
	}
	return e
}

// put stores e, whose lease or TTL is d from now.
func (s *reference) put(e *entry, d time.Duration) {
	e.live = s.now().Add(d)
	e.gone = e.live
	if e.response == nil {
		e.gone = e.live.Add(e.claim.Hold)
	}
	s.entries[e.claim.Key] = e
	s.signal()
}

func (s *reference) signal() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *reference) isFull() bool {
	if s.room == 0 {
		return false
	}
	for key := range s.entries {
		s.get(key)
	}
	return len(s.entries) >= s.room
}

func (s *reference) lapsed(e *entry) bool { return e.response == nil && !s.now().Before(e.live) }

func (s *reference) record(e *entry) *idempotency.Record {
	rec := &idempotency.Record{
		Token: e.claim.Token, Fingerprint: e.claim.Fingerprint, Response: e.response.Clone(),
		Lapsed: s.lapsed(e), ExpiresIn: e.live.Sub(s.now()),
	}
	if rec.Lapsed {
		rec.ExpiresIn = e.gone.Sub(s.now())
	}
	return rec
}

func (s *reference) Claim(ctx context.Context, c idempotency.Claim, lease time.Duration) (*idempotency.Record, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.get(c.Key)
	switch {
	case e == nil && s.isFull():
		return nil, idempotency.ErrStoreFull
	case e == nil, s.lapsed(e) && (e.claim.Token == c.Token || e.claim.Token == c.Replaces):
		s.put(&entry{claim: c}, lease)
		return nil, nil
	case e.claim.Token == c.Token && e.response == nil:
		if e.live.Sub(s.now()) < lease {
			s.put(e, lease)
		}
		return nil, nil
	}
	return s.record(e), nil
}

func (s *reference) Extend(ctx context.Context, c idempotency.Claim, lease time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.get(c.Key)
	switch {
	case e == nil || e.claim.Token != c.Token:
		return idempotency.ErrClaimLost
	case e.response == nil:
		e.claim.Hold = c.Hold
		s.put(e, lease)
	}
	return nil
}

func (s *reference) Complete(
	ctx context.Context, c idempotency.Claim, resp *idempotency.Response, ttl time.Duration,
) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.get(c.Key)
	switch {
	case e != nil && e.claim.Token != c.Token:
		return idempotency.ErrClaimLost
	case e == nil || e.response == nil:
		s.put(&entry{claim: c, response: resp.Clone()}, ttl)
	}
	return nil
}

func (s *reference) Release(ctx context.Context, c idempotency.Claim) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.get(c.Key); e != nil && e.claim.Token == c.Token && e.response == nil {
		delete(s.entries, c.Key)
		s.signal()
	}
	return nil
}

func (s *reference) Wait(ctx context.Context, key idempotency.Key) error {
	for {
		s.mu.Lock()
		e, changed := s.get(key), s.changed
		var left time.Duration
		if e != nil && e.response == nil {
			left = e.live.Sub(s.now())
		}
		s.mu.Unlock()
		if left <= 0 {
			return ctx.Err()
		}
		select {
		case <-changed:
		case <-time.After(left):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *reference) Lookup(ctx context.Context, key idempotency.Key) (*idempotency.Record, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.get(key); e != nil {
		return s.record(e), nil
	}
	return nil, nil
}

func (s *reference) Forget(ctx context.Context, key idempotency.Key) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.entries, key)
	s.signal()
	return nil
}
