package soak_test

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// entry is what is known of one key, from its first request until it has been
// probed.
type entry struct {
	id     string
	ending string // of its first run

	mu      sync.Mutex
	open    int       // requests that have not settled, and calls of the store under way
	arrived int       // requests that have reached a process
	since   time.Time // when open last changed
	runs    int       // of the handler
	asked   int       // how often the Reconciler was
	derived string
	cause   error // of the last refusal that had one
}

func newEntry(id, ending string) *entry { return &entry{id: id, ending: ending, since: time.Now()} }

func (e *entry) enter() { e.change(1) }
func (e *entry) leave() { e.change(-1) }

func (e *entry) change(by int) {
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.open += by
	e.since = time.Now()
}

func (e *entry) arrive() {
	e.enter()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.arrived++
}

// arrivals is how many requests have reached a process.
func (e *entry) arrivals() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.arrived
}

// awaitQuiet waits until nothing has gone on for d: no request, nothing behind
// one, no call of the store. It reports whether that came within the patience.
func (e *entry) awaitQuiet(d, patience time.Duration) bool {
	for end := time.Now().Add(patience); ; {
		left := e.unquiet(d)
		if left <= 0 {
			return true
		}
		if time.Now().After(end) {
			return false
		}
		time.Sleep(left)
	}
}

// unquiet returns how long to wait before e may have been quiet for d.
func (e *entry) unquiet(d time.Duration) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.open > 0 {
		return d / 8
	}
	return d - time.Since(e.since)
}

// refused notes the cause of a refusal.
func (e *entry) refused(cause error) {
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cause = cause
}

func (e *entry) lastCause() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.cause
}

// run counts a run, and returns its number from 1.
func (e *entry) run() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.runs++
	return e.runs
}

// ask counts a question to the Reconciler, and returns its number from 1.
func (e *entry) ask() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked++
	return e.asked
}

// derives notes a derived key, and reports whether it is the one of before.
func (e *entry) derives(id string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.derived == "" {
		e.derived = id
	}
	return e.derived == id
}

// book has the entries of the keys in use.
type book struct {
	mu      sync.Mutex
	entries map[string]*entry
}

func (b *book) add(e *entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.entries[e.id] = e
}

func (b *book) remove(e *entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.entries, e.id)
	if len(b.entries) == 0 {
		b.entries = make(map[string]*entry) // a map does not shrink
	}
}

func (b *book) find(id string) *entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.entries[id]
}

// visit is one request for a key.
type visit struct {
	*entry
	settled atomic.Bool // its Event has come
}

type visitKey struct{}

func withVisit(ctx context.Context, e *entry) context.Context {
	return context.WithValue(ctx, visitKey{}, &visit{entry: e})
}

// visitOf returns the visit that a request's context belongs to, or an empty one.
func visitOf(ctx context.Context) *visit {
	if v, ok := ctx.Value(visitKey{}).(*visit); ok {
		return v
	}
	return new(visit)
}
