package idempotency

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"sync"
	"time"
)

// Execution is the running request, for its handler: what it is known by, and
// what is to become of its answer. It may be used by many goroutines. A nil
// *Execution is usable: its setters do nothing, Key is zero, and Derive gives a
// random UUID, so that a handler works unguarded, too.
type Execution struct {
	key    Key
	behind *background // of the Middleware that runs it

	mu        sync.Mutex
	wish      wish
	ttl       time.Duration
	reference string
}

// wish is what the handler wants to become of its answer.
type wish int8

const (
	byPolicy wish = iota
	toKeep
	toDiscard
)

type executionKey struct{}

// FromContext returns the Execution that ctx belongs to, or nil outside of one.
func FromContext(ctx context.Context) *Execution {
	e, _ := ctx.Value(executionKey{}).(*Execution)
	return e
}

// executionContext has the values of a request's context and an Execution. It
// does not end.
type executionContext struct {
	context.Context // context.WithoutCancel of the request's
	execution       *Execution
}

func (c *executionContext) Value(key any) any {
	if key == (executionKey{}) {
		return c.execution
	}
	return c.Context.Value(key)
}

// Key returns the scope of the running request.
func (e *Execution) Key() Key {
	if e == nil {
		return Key{}
	}
	return e.key
}

// Derive returns a UUID for a purpose of this execution, such as "charge": the
// idempotency key for a call to another system. It is the same in every run of
// the same Key, in every process and in every release of this package, and
// different for different Keys and purposes.
//
// It is a UUID of version 8 (RFC 9562) made of the first bytes of the SHA-256 of
// user, endpoint, value and purpose, each preceded by its length in bytes as a
// big-endian 64-bit number.
func (e *Execution) Derive(purpose string) string {
	var id [16]byte
	version := byte(8)
	if e == nil {
		version = 4
		_, _ = rand.Read(id[:]) // never fails
	} else {
		h := sha256.New()
		for _, part := range []string{e.key.User, e.key.Endpoint, e.key.Value, purpose} {
			h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
			h.Write([]byte(part))
		}
		copy(id[:], h.Sum(nil))
	}
	id[6] = id[6]&0x0f | version<<4
	id[8] = id[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}

// Keep has the answer recorded whatever the [Policy] says. A panic still wins.
// The later of Keep and Discard counts.
func (e *Execution) Keep() { e.set(func() { e.wish = toKeep }) }

// Discard has the answer not recorded and the key freed, whatever the [Policy]
// says: for a handler that knows that nothing was done.
func (e *Execution) Discard() { e.set(func() { e.wish = toDiscard }) }

// SetTTL sets how long this answer is replayed, instead of [WithTTL]. d <= 0 is
// ignored.
func (e *Execution) SetTTL(d time.Duration) {
	if d > 0 {
		e.set(func() { e.ttl = d })
	}
}

// SetReference keeps the application's own id for the operation, such as that of
// a charge, with the record, for audits.
func (e *Execution) SetReference(reference string) { e.set(func() { e.reference = reference }) }

func (e *Execution) set(f func()) {
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	f()
}

// wishes returns what the handler has set.
func (e *Execution) wishes() (w wish, ttl time.Duration, reference string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.wish, e.ttl, e.reference
}
