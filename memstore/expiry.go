package memstore

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"weak"
)

const (
	// sliceSize is how many entries are swept under one lock at a time.
	sliceSize = 256

	// Sweeps take place at the ends of periods of 2^26 ns, about 67 ms, so that
	// one sweep serves many expiries. Who asks for a key never sees the
	// difference.
	sweepPeriod = 1 << 26
)

// alarm is the timer of the next sweep. It is set only while there is something
// to expire.
type alarm struct {
	at    atomic.Int64 // when the timer fires, or never
	mu    sync.Mutex   // guards timer, and setting at to an earlier time
	timer *time.Timer
}

// requeued must follow every change of the queue. The caller holds sh.mu.
func (s *Store) requeued(sh *shard) {
	next := never
	if len(sh.queue) > 0 {
		next = sh.queue[0].due
	}
	if former := sh.next.Swap(int64(next)); next < time.Duration(former) {
		s.wakeBy(next)
	}
}

// wakeBy makes sure of a sweep at due, or at most a sweepPeriod later.
func (s *Store) wakeBy(due time.Duration) {
	at := due | (sweepPeriod - 1)
	a := &s.alarm
	if int64(at) >= a.at.Load() {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if int64(at) >= a.at.Load() {
		return
	}
	a.at.Store(int64(at))
	if a.timer != nil {
		a.timer.Reset(at - s.now())
		return
	}
	// The timer may be the last to know of the store: it must not keep its
	// records in memory until they expire.
	store := weak.Make(s)
	a.timer = time.AfterFunc(at-s.now(), func() {
		if s := store.Value(); s != nil {
			s.sweep()
		}
	})
}

// sweep drops all that has expired, one slice of one shard at a time, and sets
// the timer for what is left.
func (s *Store) sweep() {
	// An entry that is queued from here on finds no alarm and sets one. An
	// earlier one is seen below.
	s.alarm.at.Store(int64(never))
	now := s.now()
	for more := true; more; {
		more = false
		for i := range s.shards {
			if sh := &s.shards[i]; sh.isDue(now) {
				s.sweepSlice(sh, now)
				more = more || sh.isDue(now)
				runtime.Gosched() // requests first
			}
		}
	}
	next := never
	for i := range s.shards {
		next = min(next, time.Duration(s.shards[i].next.Load()))
	}
	s.wakeBy(next)
}

// reclaim makes room at once by sweeping a slice. It reports whether there was
// anything to sweep.
func (s *Store) reclaim() bool {
	now := s.now()
	for i := range s.shards {
		if sh := &s.shards[i]; sh.isDue(now) {
			s.sweepSlice(sh, now)
			return true
		}
	}
	return false
}

func (sh *shard) isDue(now time.Duration) bool { return time.Duration(sh.next.Load()) <= now }

// sweepSlice handles up to sliceSize entries that are due: those whose end was
// put off since go back into the queue.
func (s *Store) sweepSlice(sh *shard, now time.Duration) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for range sliceSize {
		if len(sh.queue) == 0 || sh.queue[0].due > now {
			break
		}
		if e := sh.queue[0].entry; e.end <= now {
			s.remove(sh, e)
		} else {
			sh.queue.move(0, e.end)
		}
	}
	s.requeued(sh)
}
