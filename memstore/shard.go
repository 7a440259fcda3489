package memstore

import (
	"hash/maphash"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retrysafe/idempotency"
)

const (
	// shardCount keeps a shard small, so that what is done under one lock is
	// short, and lets many cores work at once.
	shardCount = 256

	// A shard's map is made anew when it holds less than 1/shrinkBelow of what
	// it once held, since a Go map never gives memory back. What is left to be
	// copied then is few. Maps of up to keepMap entries are left alone.
	shrinkBelow = 8
	keepMap     = 16

	never = time.Duration(math.MaxInt64)
)

// shard is a part of the keys, with the order in which they expire. All times
// are durations since the store was made.
type shard struct {
	mu      sync.RWMutex
	entries map[idempotency.Key]*entry
	peak    int          // most entries since the map was made
	queue   queue        // every entry, the next to expire first
	next    atomic.Int64 // when the first in the queue is due, or never
}

// verdict is how a claim ended.
type verdict int

const (
	won verdict = iota
	lost
	full
)

func (s *Store) shard(key idempotency.Key) *shard {
	return &s.shards[maphash.Comparable(s.seed, key)%shardCount]
}

// live returns the entry of key, unless it has expired. The caller holds mu.
func (sh *shard) live(key idempotency.Key, now time.Duration) *entry {
	if e := sh.entries[key]; e != nil && now < e.end {
		return e
	}
	return nil
}

// read returns what key holds, if anything.
func (s *Store) read(sh *shard, key idempotency.Key) (v view, found bool) {
	sh.mu.RLock()
	defer sh.mu.RUnlock()
	now := s.now()
	if e := sh.live(key, now); e != nil {
		return e.view(now), true
	}
	return v, false
}

// take claims c.Key, with fresh as its entry if it needs one, or returns the
// holder that c loses against.
func (s *Store) take(sh *shard, c idempotency.Claim, fresh *entry, lease time.Duration) (holder view, v verdict) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now := s.now()
	fresh.lease = after(now, lease)
	fresh.end = after(fresh.lease, c.Hold)

	e := sh.live(c.Key, now)
	if e == nil {
		s.drop(sh, c.Key)
		if !s.limits.take(fresh.size) {
			return holder, full
		}
		s.insert(sh, fresh)
		return holder, won
	}
	if holder = e.view(now); holder.beats(c) {
		return holder, lost
	}
	if e.token == c.Token { // claimed again: never to an earlier end
		e.lease = max(e.lease, fresh.lease)
		s.setEnd(sh, e, max(e.end, fresh.end))
		return holder, won
	}
	s.remove(sh, e)
	s.limits.add(1, fresh.size)
	s.insert(sh, fresh)
	return holder, won
}

// insert puts e, which has been counted, under a key that holds nothing. The
// caller holds mu.
func (s *Store) insert(sh *shard, e *entry) {
	if sh.entries == nil {
		sh.entries = make(map[idempotency.Key]*entry)
	}
	sh.entries[e.key] = e
	sh.peak = max(sh.peak, len(sh.entries))
	sh.queue.push(e)
	s.requeued(sh)
}

// setEnd sets from when on e counts as absent. Only an earlier end moves e in
// the queue: claims are extended far more often than they end, and a later end
// is seen when the former one comes. The caller holds mu.
func (s *Store) setEnd(sh *shard, e *entry, end time.Duration) {
	e.end = end
	if end < sh.queue[e.index].due {
		sh.queue.move(e.index, end)
		s.requeued(sh)
	}
}

// drop removes whatever there is under key, expired or not. The caller holds mu.
func (s *Store) drop(sh *shard, key idempotency.Key) {
	if e := sh.entries[key]; e != nil {
		s.remove(sh, e)
	}
}

// remove takes e out of the store. The caller holds mu.
func (s *Store) remove(sh *shard, e *entry) {
	delete(sh.entries, e.key)
	sh.queue.remove(e.index)
	s.limits.add(-1, -e.size)
	e.wake()
	if sh.peak > keepMap && len(sh.entries) < sh.peak/shrinkBelow {
		sh.shrink()
	}
	s.requeued(sh)
}

// shrink gives back the memory that the map and the queue had for more entries
// than there are now.
func (sh *shard) shrink() {
	entries := make(map[idempotency.Key]*entry, len(sh.entries))
	for key, e := range sh.entries {
		entries[key] = e
	}
	sh.entries = entries
	sh.peak = len(entries)
	sh.queue = append(make(queue, 0, len(sh.queue)), sh.queue...)
}

// after returns the instant d after t. It stops at the end of time, 292 years on.
func after(t, d time.Duration) time.Duration {
	if d <= 0 {
		return t
	}
	if d > never-t {
		return never
	}
	return t + d
}
