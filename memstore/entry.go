package memstore

import (
	"strings"
	"time"

	"github.com/retrysafe/idempotency"
)

// entryOverhead is what the limit of bytes counts for a key besides its texts and
// its answer. It was measured on a 64-bit machine, as the most that any number of
// keys above a few thousand came to; a test holds the store to it.
const entryOverhead = 324

// entry is a claim, or a record once it is done. First comes what a replay reads
// first. The texts of key and token and the fingerprint never change, and answer
// never does once the entry is done; so whoever has copied the token and seen that
// under the lock can go on reading without it.
type entry struct {
	key         idempotency.Key
	token       string
	fingerprint idempotency.Fingerprint
	lease       time.Duration // until when the claim runs
	end         time.Duration // from when on the entry counts as absent
	done        bool
	answer      answer

	next    *entry        // of those whose keys have the same hash
	hash    uint64        // of the key
	size    int64         // what it takes of limits.bytes
	index   int           // its place in the queue
	changed chan struct{} // closed when a waiter must look again; nil while nobody waits
}

// newEntry returns an entry for c, with texts of its own.
func newEntry(c idempotency.Claim, hash uint64) *entry {
	var texts strings.Builder
	texts.Grow(textSize(c))
	writeTexts(&texts, c)
	e := &entry{fingerprint: c.Fingerprint, hash: hash, size: entryOverhead + int64(texts.Cap())}
	e.key, e.token, _ = cutTexts(texts.String(), c)
	return e
}

// textSize is the length of what writeTexts writes.
func textSize(c idempotency.Claim) int {
	return len(c.Key.User) + len(c.Key.Endpoint) + len(c.Key.Value) + len(c.Token)
}

func writeTexts(b *strings.Builder, c idempotency.Claim) {
	b.WriteString(c.Key.User)
	b.WriteString(c.Key.Endpoint)
	b.WriteString(c.Key.Value)
	b.WriteString(c.Token)
}

// cutTexts cuts what writeTexts has written for c off the front of s.
func cutTexts(s string, c idempotency.Claim) (key idempotency.Key, token, rest string) {
	cut := func(n int) (text string) {
		text, s = s[:n], s[n:]
		return text
	}
	key.User, key.Endpoint, key.Value = cut(len(c.Key.User)), cut(len(c.Key.Endpoint)), cut(len(c.Key.Value))
	token = cut(len(c.Token))
	return key, token, s
}

// running reports whether e is a claim whose lease is not over.
func (e *entry) running(now time.Duration) bool { return !e.done && now < e.lease }

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
	var v view
	if e.done {
		v.answer = &e.answer
	}
	v.record.Token = e.token
	v.record.Fingerprint = e.fingerprint
	v.record.ExpiresIn = e.end - now
	if e.running(now) {
		v.record.ExpiresIn = e.lease - now
	} else {
		v.record.Lapsed = !e.done
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
