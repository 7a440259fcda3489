package memstore

import (
	"context"
	"errors"
	"hash/maphash"
	"time"

	"github.com/retrysafe/idempotency"
)

var (
	_ idempotency.Store     = (*Store)(nil)
	_ idempotency.Waiter    = (*Store)(nil)
	_ idempotency.Inspector = (*Store)(nil)
)

// Store keeps claims and records in the memory of this process. Make one with
// [New]. It is an idempotency.Store, Waiter and Inspector, and safe for
// concurrent use. There is nothing to close: a Store that is no longer
// referenced is garbage, whatever it holds.
type Store struct {
	limits limits
	start  time.Time // the zero of the store's clock
	seed   maphash.Seed
	shards [shardCount]shard
	alarm  alarm
}

// New returns an empty store, limited to 256 MiB unless an option says
// otherwise.
//
// In a test with testing/synctest call New inside the bubble: a store lives by
// the clock it was made under.
func New(opts ...Option) *Store {
	s := &Store{start: time.Now(), seed: maphash.MakeSeed()}
	s.limits.init(opts)
	s.alarm.at.Store(int64(never))
	for i := range s.shards {
		s.shards[i].next.Store(int64(never))
	}
	return s
}

// Len returns how many keys the store holds, claims and records together. Keys
// that have expired count until they are swept, a moment later.
func (s *Store) Len() int { return int(s.limits.entries.Load()) }

// Bytes returns how much of the room given by [WithMaxBytes] is taken. It may be
// above the limit, since a finished answer is never refused.
func (s *Store) Bytes() int64 { return s.limits.bytes.Load() }

// Claim takes the key for c.Token, or returns the record of whoever holds it. It
// returns idempotency.ErrStoreFull when the key is new and there is no room left
// after everything that has expired was dropped. Taking over a lapsed claim, and
// claiming again with the token that holds the key, need no room.
func (s *Store) Claim(ctx context.Context, c idempotency.Claim, lease time.Duration) (*idempotency.Record, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	at := s.spot(c.Key)
	// Retries and twins lose, and change nothing: they only need to read, so any
	// number of them can do so at once.
	if holder, found := s.read(at); found && holder.beats(c) {
		return holder.copy(), nil
	}
	fresh := newEntry(c, at.hash)
	for {
		holder, verdict := s.take(at, c, fresh, lease)
		switch {
		case verdict == won:
			return nil, nil
		case verdict == lost:
			return holder.copy(), nil
		case !s.reclaim():
			return nil, idempotency.ErrStoreFull
		}
	}
}

// Extend gives the running or lapsed claim of c.Token a new lease and the hold
// c.Hold. It returns idempotency.ErrClaimLost if c.Token does not hold the key,
// which includes a claim without a hold whose lease is over.
func (s *Store) Extend(ctx context.Context, c idempotency.Claim, lease time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	at := s.spot(c.Key)
	at.mu.Lock()
	defer at.mu.Unlock()
	now := s.now()
	e := at.live(now)
	if e == nil || e.token != c.Token {
		return idempotency.ErrClaimLost
	}
	if e.done {
		return nil
	}
	until := after(now, lease)
	if until < e.lease {
		e.wake() // who waits must come to know of the earlier end
	}
	e.lease = until
	s.setEnd(at.shard, e, after(until, c.Hold))
	return nil
}

// Complete keeps a copy of resp as the answer of the key for ttl. It never fails
// for want of room, so a store may hold more bytes than [WithMaxBytes] says. It
// returns idempotency.ErrClaimLost if another token holds the key or has
// completed it, and an error if resp is nil.
func (s *Store) Complete(ctx context.Context, c idempotency.Claim, resp *idempotency.Response, ttl time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if resp == nil {
		return errors.New("memstore: Complete needs a response, got nil")
	}
	kept := newRecord(c, resp)
	at := s.spot(c.Key)
	at.mu.Lock()
	defer at.mu.Unlock()
	now := s.now()
	e := at.live(now)
	switch {
	case e == nil: // the claim has lapsed, and nobody took the key since
		e = newEntry(c, at.hash)
		s.drop(at)
		s.limits.add(1, e.size)
		e.end = after(now, ttl)
		s.insert(at.shard, e)
	case e.token != c.Token:
		return idempotency.ErrClaimLost
	case e.done: // this is the repetition of a call whose reply was lost
		return nil
	}
	e.key, e.token, e.answer, e.done = kept.key, kept.token, kept.answer, true
	s.limits.add(0, kept.size-e.size)
	e.size = kept.size
	s.setEnd(at.shard, e, after(now, ttl))
	e.wake()
	return nil
}

// Release frees the key if c.Token holds it and has not completed it, and does
// nothing otherwise.
func (s *Store) Release(ctx context.Context, c idempotency.Claim) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	at := s.spot(c.Key)
	at.mu.Lock()
	defer at.mu.Unlock()
	if e := at.entry(); e != nil && e.token == c.Token && !e.done {
		s.remove(at.shard, e)
	}
	return nil
}

// Lookup returns what the store holds for key, or nil if it holds nothing.
func (s *Store) Lookup(ctx context.Context, key idempotency.Key) (*idempotency.Record, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	holder, found := s.read(s.spot(key))
	if !found {
		return nil, nil
	}
	return holder.copy(), nil
}

// Forget removes whatever the store holds for key, a running claim included.
func (s *Store) Forget(ctx context.Context, key idempotency.Key) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	at := s.spot(key)
	at.mu.Lock()
	defer at.mu.Unlock()
	s.drop(at)
	return nil
}

// now is the store's clock. It is monotonic: setting the host's clock does not
// move it.
func (s *Store) now() time.Duration { return time.Since(s.start) }
