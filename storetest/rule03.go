package storetest

import "time"

func rule03() []testCase {
	return []testCase{
		{name: "a running claim", run: loseToRunning},
		{name: "a running claim keeps its lease", on: leaseStore, timed: true, run: loseKeepsLease},
		{name: "a running claim is not kept alive", on: leaseStore, timed: true, run: loseKeepsEnd},
		{name: "a running claim keeps its Hold", on: leaseStore, timed: true, run: loseKeepsHold},
		{name: "a running claim gets no Hold", on: leaseStore, timed: true, run: loseGivesNoHold},
		{name: "a lapsed claim", on: leaseStore, timed: true, run: loseToLapsed},
		{name: "a completed record", run: loseToRecord},
		{name: "a completed record keeps its TTL", timed: true, run: loseKeepsTTL},
		{name: "a completed record is not kept alive", timed: true, run: loseKeepsExpiry},
		{name: "a lost claim leaves nothing behind", run: loseLeavesNothing},
		{name: "in a transaction, the holder cannot be seen", on: txStore, run: loseInTx},
	}
}

// losers are the settings that a losing claim must not put upon the key.
func (p *probe) losers() []time.Duration {
	return []time.Duration{time.Millisecond, p.tick, long, 3 * long}
}

func loseToRunning(p *probe) {
	c := p.claim()
	start := p.now()
	p.take(c, long)
	for _, lease := range p.losers() {
		other := rival(c)
		other.Hold = lease
		p.checkRunning(p.lose(other, lease), c, other)
		p.wantRunning(c, start, long)
	}
	p.ok("Complete after losing claims", p.complete(c, answer("winner"), long))
	p.wantDone(c, answer("winner"), start, long)
}

func loseKeepsLease(p *probe) {
	c := p.claim()
	start := p.now()
	p.take(c, long)
	p.lose(rival(c), p.tick)
	p.outlive()
	p.wantRunning(c, start, long)
}

func loseKeepsEnd(p *probe) {
	c := p.claim()
	p.within(p.tick, func() {
		p.take(c, p.tick)
		p.lose(rival(c), long)
	})
	p.outlive()
	p.wantFree(c.Key)
}

func loseKeepsHold(p *probe) {
	c := p.claim()
	c.Hold = long
	start := p.now()
	p.within(p.tick, func() {
		p.take(c, p.tick)
		p.lose(rival(c), long) // without a Hold
	})
	p.outlive()
	p.wantLapsed(c, start, long)
}

func loseGivesNoHold(p *probe) {
	c := p.claim()
	p.within(p.tick, func() {
		p.take(c, p.tick)
		other := rival(c)
		other.Hold = long
		p.lose(other, long)
	})
	p.outlive()
	p.wantFree(c.Key)
}

func loseToLapsed(p *probe) {
	c := p.claim()
	c.Hold = long
	start := p.now()
	p.take(c, p.tick)
	p.outlive()
	for _, lease := range p.losers() {
		other := rival(c)
		other.Hold = lease
		p.lose(other, lease)
		p.wantLapsed(c, start, long)
	}
}

func loseToRecord(p *probe) {
	c, want := p.claim(), answer("kept")
	start := p.record(c, want, long)
	for _, lease := range p.losers() {
		other := rival(c)
		other.Hold = lease
		p.checkDone(p.lose(other, lease), c, want)
		p.wantDone(c, want, start, long)
	}
}

func loseKeepsTTL(p *probe) {
	c, want := p.claim(), answer("kept")
	start := p.record(c, want, long)
	p.lose(rival(c), p.tick)
	p.outlive()
	p.wantDone(c, want, start, long)
}

func loseKeepsExpiry(p *probe) {
	c := p.claim()
	p.within(p.tick, func() {
		p.record(c, answer("brief"), p.tick)
		p.lose(rival(c), long)
	})
	p.outlive()
	p.wantFree(c.Key)
}

func loseLeavesNothing(p *probe) {
	c := p.claim()
	p.take(c, long)
	for range 2 * crowd {
		p.lose(rival(c), long)
	}
	p.release(c)
	p.wantFree(c.Key)
}

func loseInTx(p *probe) {
	c := p.claim()
	p.take(c, long)
	for range 4 * crowd { // each gives its connection back
		other := rival(c)
		p.checkRunning(p.lose(other, long), c, other)
	}
}
