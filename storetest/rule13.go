package storetest

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/retrysafe/idempotency"
)

func rule13() []testCase {
	return []testCase{
		{name: "a running claim survives many others", on: leaseStore, run: floodRunning},
		{name: "a live record survives many others", run: floodRecord},
		{name: "a lapsed claim within its Hold survives many others", on: leaseStore, timed: true, run: floodLapsed},
		{name: "distinct keys have distinct claims", on: leaseStore, run: keysApartRunning},
		{name: "distinct keys have distinct records", run: keysApart},
		{name: "full of claims", on: leaseStore, full: true, run: fullOfClaims},
		{name: "full of records", on: leaseStore, full: true, run: fullOfRecords},
		{name: "full, complete succeeds with a large answer", on: leaseStore, full: true, run: fullCompletes},
		{name: "full, room again after a release", on: leaseStore, full: true, run: roomAfterRelease},
		{name: "full, room again when claims have lapsed", on: leaseStore, full: true, timed: true, run: roomAfterLapse},
		{name: "full, room again when records have expired", on: leaseStore, full: true, timed: true, run: roomAfterTTL},
		{name: "full, concurrent claims are refused or kept", on: leaseStore, full: true, run: fullRace},
	}
}

// flood claims and completes many other keys, until the store is full.
func (p *probe) flood() {
	for range p.race(1) {
		c := p.claim()
		rec, err := p.try(c, long)
		if errors.Is(err, idempotency.ErrStoreFull) {
			return
		}
		p.ok("Claim", err)
		if rec != nil {
			p.failf("Claim of a new key got the record of %s", describe(rec))
		}
		p.ok("Complete", p.complete(c, answer("flood"), long))
	}
}

func floodRunning(p *probe) {
	c := p.claim()
	start := p.now()
	p.take(c, long)
	p.flood()
	p.wantRunning(c, start, long)
	p.ok("Complete", p.complete(c, answer("survivor"), long))
	p.wantDone(c, answer("survivor"), start, long)
}

func floodRecord(p *probe) {
	c, want := p.claim(), answer("survivor")
	start := p.record(c, want, long)
	p.flood()
	p.wantDone(c, want, start, long)
}

func floodLapsed(p *probe) {
	start := p.now()
	c := p.lapsed()
	p.flood()
	p.wantLapsed(c, start, long)
}

// hostileKeys returns keys that a careless encoding takes for one another.
func hostileKeys() []idempotency.Key {
	wide := strings.Repeat("x", 255)
	keys := []idempotency.Key{
		{},
		{User: "a"}, {Endpoint: "a"}, {Value: "a"},
		{User: "a", Endpoint: "b", Value: "c"},
		{User: "ab", Endpoint: "", Value: "c"},
		{User: "a", Endpoint: "", Value: "bc"},
		{User: "a", Endpoint: "b", Value: "c "},
		{User: " a", Endpoint: "b", Value: "c"},
		{User: "A", Endpoint: "b", Value: "c"},
		{User: "a", Endpoint: "b", Value: "C"},
		{User: "a", Endpoint: "b", Value: "cc"},
		{User: "a", Endpoint: "b", Value: "c*"},
		{User: "a", Endpoint: "b", Value: "?"},
		{User: "a", Endpoint: "b", Value: "[c]"},
		{User: "%", Endpoint: "_", Value: "%"},
		{User: "a", Endpoint: "/é", Value: "支払"},
		{User: "a", Endpoint: "/e\u0301", Value: "支払"},
		{User: "a", Endpoint: "\xff", Value: "\xfe"},
		{User: "a", Endpoint: "\xfe", Value: "\xff"},
		{User: wide, Endpoint: wide, Value: wide},
		{User: wide, Endpoint: wide, Value: wide[1:] + "y"},
		{User: "y" + wide[1:], Endpoint: wide, Value: wide},
	}
	// A separator in one part or the other.
	for _, sep := range []string{"|", ":", "/", "\x00", "\n", "{", "}", "%7C", "%00", "\\", "'", "\"", "$1", "\r\n", "~"} {
		keys = append(keys,
			idempotency.Key{User: "a" + sep + "b", Endpoint: "c", Value: "d"},
			idempotency.Key{User: "a", Endpoint: "b" + sep + "c", Value: "d"},
			idempotency.Key{User: "a", Endpoint: "b", Value: "c" + sep + "d"},
			idempotency.Key{User: "a" + sep, Endpoint: "b", Value: "c"},
			idempotency.Key{User: "a", Endpoint: sep + "b", Value: "c"},
			idempotency.Key{User: sep, Endpoint: sep, Value: sep},
		)
	}
	// Shortened by NewKey, and the same text as somebody would send it.
	long1 := idempotency.NewKey("u", "/e", strings.Repeat("k", 300)+"1")
	long2 := idempotency.NewKey("u", "/e", strings.Repeat("k", 300)+"2")
	return append(keys, long1, long2, idempotency.NewKey("u", "/e", long1.Value),
		idempotency.NewKey("\x00", "\n", "%00"), idempotency.NewKey("%00", "%0A", "%00"))
}

func keysApartRunning(p *probe) {
	keys := hostileKeys()
	claims := make([]idempotency.Claim, len(keys))
	start := p.now()
	for i, key := range keys {
		claims[i] = claimFor(key)
		if rec := p.ask(claims[i], long); rec != nil {
			p.failf("Claim of the key %.80q, which nobody holds, got the record of %s", key.String(), describe(rec))
		}
	}
	for _, c := range claims {
		p.wantRunning(c, start, long)
	}
	for i, c := range claims {
		p.release(c)
		p.wantFree(c.Key)
		for _, other := range claims[i+1 : min(i+4, len(claims))] {
			p.wantRunning(other, start, long)
		}
	}
}

func keysApart(p *probe) {
	keys := hostileKeys()
	claims := make([]idempotency.Claim, len(keys))
	start := p.now()
	for i, key := range keys {
		claims[i] = claimFor(key)
		if rec := p.ask(claims[i], long); rec != nil {
			p.failf("Claim of the key %.80q, which nobody holds, got the record of %s", key.String(), describe(rec))
		}
		p.ok("Complete", p.complete(claims[i], answer(fmt.Sprint("key ", i)), long))
	}
	for i, c := range claims {
		p.wantDone(c, answer(fmt.Sprint("key ", i)), start, long)
	}
}

// maxFill is how many entries the store of WithFull may have room for.
const maxFill = 4096

// fill claims keys until the store is full, and calls each on every claim. It
// returns the claims and the one that was refused.
func (p *probe) fill(lease time.Duration, each func(c idempotency.Claim)) ([]idempotency.Claim, idempotency.Claim) {
	var held []idempotency.Claim
	for range maxFill {
		c := p.claim()
		rec, err := p.try(c, lease)
		switch {
		case errors.Is(err, idempotency.ErrStoreFull):
			return held, c
		case err != nil:
			p.failf("Claim of a new key failed with %v after %d entries, want ErrStoreFull when there is no room",
				err, len(held))
		case rec != nil:
			p.failf("Claim of a new key got the record of %s", describe(rec))
		}
		held = append(held, c)
		each(c)
	}
	p.failf("Claim has not returned ErrStoreFull after %d entries", maxFill)
	return nil, idempotency.Claim{}
}

// wantFull claims new keys until one is refused: a bound on bytes may leave room
// for one more claim. It returns the claims that there was room for.
func (p *probe) wantFull() []idempotency.Claim {
	more, _ := p.fill(long, keep)
	return more
}

func keep(idempotency.Claim) {}

func fullOfClaims(p *probe) {
	done, want := p.claim(), answer("record")
	start := p.record(done, want, long)
	held, refused := p.fill(long, keep)
	for range 10 {
		held = append(held, p.wantFull()...)
	}
	for _, c := range held {
		p.wantRunning(c, start, long)
		p.take(c, long) // a lost reply may be repeated
		p.ok("Extend in a full store", p.extend(c, long))
	}
	p.wantDone(done, want, start, long)
	for _, c := range held {
		p.ok("Complete in a full store", p.complete(c, answer(c.Token), long))
	}
	p.ok("Complete of an unclaimed key in a full store", p.complete(refused, answer("refused"), long))
	for _, c := range held {
		p.wantDone(c, answer(c.Token), start, long)
	}
	p.wantDone(refused, answer("refused"), start, long)
	p.wantDone(done, want, start, long)
}

func fullOfRecords(p *probe) {
	running := p.claim()
	start := p.now()
	p.take(running, long)
	done, _ := p.fill(long, func(c idempotency.Claim) {
		p.ok("Complete", p.complete(c, answer(c.Token), long))
	})
	for range 10 {
		for _, c := range p.wantFull() {
			p.wantRunning(c, start, long)
		}
	}
	for _, c := range done {
		p.wantDone(c, answer(c.Token), start, long)
	}
	p.wantRunning(running, start, long)
	p.ok("Complete in a full store", p.complete(running, answer("last"), long))
	p.wantDone(running, answer("last"), start, long)
	for _, c := range done {
		p.wantDone(c, answer(c.Token), start, long)
	}
}

func fullCompletes(p *probe) {
	start := p.now()
	held, _ := p.fill(long, keep)
	want := answer("large")
	want.Body = randomBytes(1 << 20)
	n := min(len(held), 8)
	for _, c := range held[:n] {
		p.ok("Complete with 1 MiB in a full store", p.complete(c, want, long))
	}
	for _, c := range held[:n] {
		p.wantDone(c, want, start, long)
	}
	for _, c := range held[n:] {
		p.wantRunning(c, start, long)
	}
}

func roomAfterRelease(p *probe) {
	held, refused := p.fill(long, keep)
	p.release(held[0])
	start := p.now()
	p.take(refused, long) // the refusal has left nothing behind
	p.wantRunning(refused, start, long)
	p.wantFull()
}

func roomAfterLapse(p *probe) {
	var held []idempotency.Claim
	var refused idempotency.Claim
	p.within(2*p.tick, func() { held, refused = p.fill(2*p.tick, keep) })
	p.outlive()
	p.outlive()
	p.take(refused, long)
	for _, c := range held[1:] {
		p.take(rival(c), long)
	}
	p.wantFull()
}

func roomAfterTTL(p *probe) {
	var done []idempotency.Claim
	p.within(2*p.tick, func() {
		done, _ = p.fill(long, func(c idempotency.Claim) {
			p.ok("Complete", p.complete(c, answer("brief"), 2*p.tick))
		})
	})
	p.outlive()
	p.outlive()
	for _, c := range done {
		p.take(rival(c), long)
	}
	p.wantFull()
}

// fullRace lets many goroutines claim until the store is full, and each must
// still hold what it was given.
func fullRace(p *probe) {
	held := make([][]idempotency.Claim, crowd/2)
	start := p.now()
	p.together(len(held), func(i int) { held[i], _ = p.fill(long, keep) })
	for _, claims := range held {
		for _, c := range claims {
			p.wantRunning(c, start, long)
		}
	}
	p.wantFull()
}
