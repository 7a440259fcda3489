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
	entries map[uint64]*entry // by the hash of the key; the first of those that share it
	peak    int               // most entries since the map was made
	queue   queue             // every entry, the next to expire first
	next    atomic.Int64      // when the first in the queue is due, or never
}

// verdict is how a claim ended.
type verdict int

const (
	won verdict = iota
	lost
	full
)

// spot is where a key belongs, whether or not it is there. What it embeds may be
// read and changed by who holds mu.
type spot struct {
	*shard
	key  idempotency.Key
	hash uint64
}

func (s *Store) spot(key idempotency.Key) spot {
	hash := maphash.Comparable(s.seed, key)
	return spot{&s.shards[hash%shardCount], key, hash}
}

// entry returns the entry of the key, expired or not, or nil. The caller holds
// mu. The map holds hashes and not keys, since among a million keys each of the
// three texts of a Key is a wait for memory.
func (at spot) entry() *entry {
	e := at.entries[at.hash]
	for e != nil && e.key != at.key {
		e = e.next
	}
	return e
}

// live returns the entry of the key, unless it has expired. The caller holds mu.
func (at spot) live(now time.Duration) *entry {
	if e := at.entry(); e != nil && now < e.end {
		return e
	}
	return nil
}

// read returns what the key holds, if anything.
func (s *Store) read(at spot) (v view, found bool) {
	at.mu.RLock()
	defer at.mu.RUnlock()
	now := s.now()
	if e := at.live(now); e != nil {
		return e.view(now), true
	}
	return v, false
}

// take claims the key for c, with fresh as its entry if it needs one, or returns
// the holder that c loses against.
func (s *Store) take(at spot, c idempotency.Claim, fresh *entry, lease time.Duration) (holder view, v verdict) {
	at.mu.Lock()
	defer at.mu.Unlock()
	now := s.now()
	fresh.lease = after(now, lease)
	fresh.end = after(fresh.lease, c.Hold)

	e := at.live(now)
	if e == nil {
		s.drop(at)
		if !s.limits.take(fresh.size) {
			return holder, full
		}
		s.insert(at.shard, fresh)
		return holder, won
	}
	if holder = e.view(now); holder.beats(c) {
		return holder, lost
	}
	if e.token == c.Token { // claimed again: never to an earlier end
		e.lease = max(e.lease, fresh.lease)
		s.setEnd(at.shard, e, max(e.end, fresh.end))
		return holder, won
	}
	s.remove(at.shard, e)
	s.limits.add(1, fresh.size)
	s.insert(at.shard, fresh)
	return holder, won
}

// insert puts e, which has been counted, under a key that holds nothing. The
// caller holds mu.
func (s *Store) insert(sh *shard, e *entry) {
	if sh.entries == nil {
		sh.entries = make(map[uint64]*entry)
	}
	e.next = sh.entries[e.hash]
	sh.entries[e.hash] = e
	sh.queue.push(e)
	sh.peak = max(sh.peak, len(sh.queue))
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

// drop removes whatever there is under the key, expired or not. The caller holds
// mu.
func (s *Store) drop(at spot) {
	if e := at.entry(); e != nil {
		s.remove(at.shard, e)
	}
}

// remove takes e out of the store. The caller holds mu.
func (s *Store) remove(sh *shard, e *entry) {
	sh.unlink(e)
	sh.queue.remove(e.index)
	s.limits.add(-1, -e.size)
	e.wake()
	if sh.peak > keepMap && len(sh.queue) < sh.peak/shrinkBelow {
		sh.shrink()
	}
	s.requeued(sh)
}

// unlink takes e out of the map.
func (sh *shard) unlink(e *entry) {
	first := sh.entries[e.hash]
	switch {
	case first != e:
		for first.next != e {
			first = first.next
		}
		first.next = e.next
	case e.next != nil:
		sh.entries[e.hash] = e.next
	default:
		delete(sh.entries, e.hash)
	}
}

// shrink gives back the memory that the map and the queue had for more entries
// than there are now.
func (sh *shard) shrink() {
	entries := make(map[uint64]*entry, len(sh.entries))
	for hash, first := range sh.entries {
		entries[hash] = first
	}
	sh.entries = entries
	sh.peak = len(sh.queue)
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
