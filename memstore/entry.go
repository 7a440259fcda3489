package memstore

import (
	"time"

	"github.com/retrysafe/idempotency"
)

// What the limit of bytes counts besides the texts and bodies. The numbers were
// measured on a 64-bit machine, as the most that any number of keys above a few
// hundred came to; a test holds the store to them.
const (
	entryOverhead  = 320 // a key
	answerOverhead = 176 // an answer
	fieldOverhead  = 40  // a header field
	valueOverhead  = 16  // each value of it
)

// entry is a claim, or a record once answer is set. token and fingerprint never
// change, answer changes once and what it points to never does; so whoever has
// copied them under the lock can go on reading without it.
type entry struct {
	token       string
	fingerprint idempotency.Fingerprint
	answer      *answer
	key         idempotency.Key
	lease       time.Duration // until when the claim runs
	end         time.Duration // from when on the entry counts as absent
	size        int64         // what it takes of limits.bytes
	index       int           // its place in the queue
	changed     chan struct{} // closed when a waiter must look again; nil while nobody waits
}

// newEntry returns an entry for c, with texts of its own.
func newEntry(c idempotency.Claim) *entry {
	n := len(c.Key.User) + len(c.Key.Endpoint) + len(c.Key.Value) + len(c.Token)
	var p packer
	p.texts.Grow(n)
	return &entry{
		key:         idempotency.Key{User: p.text(c.Key.User), Endpoint: p.text(c.Key.Endpoint), Value: p.text(c.Key.Value)},
		token:       p.text(c.Token),
		fingerprint: c.Fingerprint,
		size:        entryOverhead + int64(n),
	}
}

// running reports whether e is a claim whose lease is not over.
func (e *entry) running(now time.Duration) bool { return e.answer == nil && now < e.lease }

// wake has those who wait for e look again.
func (e *entry) wake() {
	if e.changed != nil {
		close(e.changed)
		e.changed = nil
	}
}

// view is what an entry was at one moment, for reading without the lock.
type view struct {
	record idempotency.Record // without its Response
	answer *answer
}

func (e *entry) view(now time.Duration) view {
	v := view{answer: e.answer}
	v.record.Token = e.token
	v.record.Fingerprint = e.fingerprint
	v.record.ExpiresIn = e.end - now
	if e.running(now) {
		v.record.ExpiresIn = e.lease - now
	} else {
		v.record.Lapsed = e.answer == nil
	}
	return v
}

// beats reports whether c must leave the key to the holder v.
func (v view) beats(c idempotency.Claim) bool {
	if v.answer != nil {
		return true
	}
	mayReplace := v.record.Lapsed && c.Replaces != "" && c.Replaces == v.record.Token
	return v.record.Token != c.Token && !mayReplace
}

// copy returns the record with a Response of its own, in one allocation.
func (v view) copy() *idempotency.Record {
	if v.answer == nil {
		rec := v.record
		return &rec
	}
	var own struct {
		record   idempotency.Record
		response idempotency.Response
	}
	own.record = v.record
	own.record.Response = &own.response
	v.answer.restore(&own.response)
	return &own.record
}
