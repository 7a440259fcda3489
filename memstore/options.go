package memstore

import (
	"fmt"
	"math"
	"sync/atomic"
)

const defaultMaxBytes = 256 << 20

// Option changes a default of [New].
type Option func(*limits)

// WithMaxEntries limits how many keys the store holds, claims and records
// together. A new key above that is refused with idempotency.ErrStoreFull. By
// default only [WithMaxBytes] limits them. It panics unless n is above zero.
func WithMaxEntries(n int) Option {
	if n <= 0 {
		panic(fmt.Sprintf("memstore: WithMaxEntries(%d) leaves no room for a single key; give a number above zero, or leave the option out", n))
	}
	return func(l *limits) { l.maxEntries = int64(n) }
}

// WithMaxBytes limits the memory that the store's keys, tokens, headers and
// bodies take, with what the store itself needs to keep them (the formula is in
// the package documentation). A new key above that is refused with
// idempotency.ErrStoreFull. The default is 256 MiB. It panics unless n
// is above zero.
func WithMaxBytes(n int64) Option {
	if n <= 0 {
		panic(fmt.Sprintf("memstore: WithMaxBytes(%d) leaves no room for a single key; give a number of bytes above zero, or leave the option out for 256 MiB", n))
	}
	return func(l *limits) { l.maxBytes = n }
}

// limits counts what all shards hold together. Only claims of new keys ask for
// room; a finished answer is counted but never refused.
type limits struct {
	maxEntries, maxBytes int64
	entries, bytes       atomic.Int64
}

func (l *limits) init(opts []Option) {
	l.maxEntries, l.maxBytes = math.MaxInt64, defaultMaxBytes
	for _, opt := range opts {
		opt(l)
	}
}

// take counts one more entry of size bytes, if there is room for it.
func (l *limits) take(size int64) bool {
	if !addBelow(&l.entries, 1, l.maxEntries) {
		return false
	}
	if !addBelow(&l.bytes, size, l.maxBytes) {
		l.entries.Add(-1)
		return false
	}
	return true
}

// add counts entries and bytes whether or not there is room for them.
func (l *limits) add(entries, bytes int64) {
	l.entries.Add(entries)
	l.bytes.Add(bytes)
}

// addBelow adds delta to n unless that takes n above limit. Adding first and
// taking back after would let one large claim that is refused refuse others.
func addBelow(n *atomic.Int64, delta, limit int64) bool {
	for {
		old := n.Load()
		if old > limit-delta {
			return false
		}
		if n.CompareAndSwap(old, old+delta) {
			return true
		}
	}
}
