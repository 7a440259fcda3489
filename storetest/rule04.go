package storetest

import "time"

func rule04() []testCase {
	return []testCase{
		{name: "a lapsed claim", on: leaseStore, timed: true, run: leaseEnds},
		{name: "a running claim within its lease", on: leaseStore, timed: true, run: leaseLasts},
		{name: "a claim past its Hold", on: leaseStore, timed: true, run: holdEnds},
		{name: "an expired record", timed: true, run: ttlEnds},
		{name: "a record outlives the lease of its claim", timed: true, run: ttlOutlivesLease},
		{name: "a record expires before the lease of its claim", timed: true, run: ttlBeforeLease},
		{name: "a record has no Hold", timed: true, run: recordHasNoHold},
		{name: "a lease of 1 ms", on: leaseStore, timed: true, run: tinyLease},
		{name: "a TTL of 1 ms", timed: true, run: tinyTTL},
		{name: "a lease and a TTL of 400 days", timed: true, run: hugeTimes},
		{name: "a Hold of 400 days", on: leaseStore, timed: true, run: hugeHold},
		{name: "times are no whole seconds", run: oddTimes},
		{name: "the writer's settings, not the reader's", on: leaseStore, timed: true, run: writersSettings},
		{name: "in a transaction, a claim does not lapse", on: txStore, timed: true, run: noLapseInTx},
	}
}

const days400 = 400 * 24 * time.Hour

func leaseEnds(p *probe) {
	c := p.claim()
	p.take(c, p.tick)
	p.outlive()
	next := rival(c)
	start := p.now()
	p.take(next, long)
	p.wantRunning(next, start, long)
}

func leaseLasts(p *probe) {
	c := p.claim()
	lease := 4 * p.tick
	p.within(lease, func() {
		start := p.now()
		p.take(c, lease)
		p.outlive()
		p.wantRunning(c, start, lease)
	})
}

func holdEnds(p *probe) {
	c := p.claim()
	c.Hold = p.tick
	p.take(c, p.tick)
	p.sleep(2*p.tick + p.tick/2)
	p.wantFree(c.Key)
}

func ttlEnds(p *probe) {
	c := p.claim()
	p.record(c, answer("brief"), p.tick)
	p.outlive()
	next, want := rival(c), answer("next")
	start := p.now()
	p.take(next, long)
	p.wantRunning(next, start, long)
	p.ok("Complete", p.complete(next, want, long))
	p.wantDone(next, want, start, long)
}

func ttlOutlivesLease(p *probe) {
	c, want := p.claim(), answer("long")
	start := p.now()
	p.take(c, p.tick)
	p.ok("Complete", p.complete(c, want, long))
	p.outlive()
	p.wantDone(c, want, start, long)
}

func ttlBeforeLease(p *probe) {
	c := p.claim()
	p.take(c, long)
	p.ok("Complete", p.complete(c, answer("brief"), p.tick))
	p.outlive()
	p.wantFree(c.Key)
}

func recordHasNoHold(p *probe) {
	c := p.claim()
	c.Hold = long
	p.take(c, long)
	p.ok("Complete", p.complete(c, answer("brief"), p.tick))
	p.outlive()
	p.wantFree(c.Key)
}

func tinyLease(p *probe) {
	c := p.claim()
	p.take(c, time.Millisecond)
	p.sleep(p.tick)
	p.wantFree(c.Key)
}

func tinyTTL(p *probe) {
	c := p.claim()
	p.record(c, answer("tiny"), time.Millisecond)
	p.sleep(p.tick)
	p.wantFree(c.Key)
}

func hugeTimes(p *probe) {
	c, want := p.claim(), answer("lasting")
	start := p.now()
	p.take(c, days400)
	p.wantRunning(c, start, days400)
	p.outlive()
	p.wantRunning(c, start, days400)
	done := p.now()
	p.ok("Complete", p.complete(c, want, days400))
	p.outlive()
	p.wantDone(c, want, done, days400)
}

func hugeHold(p *probe) {
	c := p.claim()
	c.Hold = days400
	start := p.now()
	p.take(c, p.tick)
	p.outlive()
	p.wantLapsed(c, start, days400)
}

func oddTimes(p *probe) {
	const odd = 90*time.Second + 750*time.Millisecond
	c, want := p.claim(), answer("odd")
	start := p.now()
	p.take(c, odd)
	p.wantRunning(c, start, odd)
	done := p.now()
	p.ok("Complete", p.complete(c, want, odd))
	p.wantDone(c, want, done, odd)
}

// writersSettings has readers ask with other settings than the writer's.
func writersSettings(p *probe) {
	lasting, brief, held := p.claim(), p.claim(), p.claim()
	held.Hold = long
	start := p.now()
	p.take(lasting, long)
	p.take(brief, p.tick)
	p.take(held, p.tick)
	p.outlive()
	reader := rival(lasting)
	p.checkRunning(p.lose(reader, time.Millisecond), lasting, reader)
	p.wantRunning(lasting, start, long)
	p.wantLapsed(held, start, long)
	reader = rival(brief)
	reader.Hold = long
	p.take(reader, long)
}

func noLapseInTx(p *probe) {
	c, want := p.claim(), answer("one transaction")
	c.Hold = p.tick
	start := p.now()
	p.take(c, p.tick)
	p.sleep(2*p.tick + p.tick/2)
	p.wantRunning(c, start, long)
	p.ok("Complete after the lease", p.complete(c, want, long))
	p.wantDone(c, want, start, long)
}
