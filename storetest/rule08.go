package storetest

func rule08() []testCase {
	return []testCase{
		{name: "a longer lease", on: leaseStore, timed: true, run: extendLonger},
		{name: "a shorter lease", on: leaseStore, timed: true, run: extendShorter},
		{name: "again and again", on: leaseStore, timed: true, run: extendOften},
		{name: "sets a Hold", on: leaseStore, timed: true, run: extendSetsHold},
		{name: "takes the Hold away", on: leaseStore, timed: true, run: extendDropsHold},
		{name: "makes a lapsed claim live again", on: leaseStore, timed: true, run: extendRevives},
		{name: "an absent key", on: leaseStore, run: extendAbsent},
		{name: "a lapsed claim without a Hold", on: leaseStore, timed: true, run: extendLapsed},
		{name: "a claim past its Hold", on: leaseStore, timed: true, run: extendPastHold},
		{name: "a released claim", on: leaseStore, run: extendReleased},
		{name: "another's running claim", on: leaseStore, timed: true, run: extendOthers},
		{name: "another's lapsed claim", on: leaseStore, timed: true, run: extendOthersLapsed},
		{name: "another's claim after the lease", on: leaseStore, timed: true, run: extendAfterTakeover},
		{name: "another's record", on: leaseStore, timed: true, run: extendOthersRecord},
		{name: "a token that begins like the holder's", on: leaseStore, run: extendByPrefix},
		{name: "after the own complete", on: leaseStore, timed: true, run: extendOwnRecord},
		{name: "after the own record has expired", on: leaseStore, timed: true, run: extendOwnExpired},
		{name: "in a transaction, it does nothing", on: txStore, timed: true, run: extendInTx},
	}
}

func extendLonger(p *probe) {
	c := p.claim()
	start := p.now()
	p.within(p.tick, func() {
		p.take(c, p.tick)
		p.ok("Extend", p.extend(c, long))
	})
	p.wantRunning(c, start, long)
	p.outlive()
	p.wantRunning(c, start, long)
}

func extendShorter(p *probe) {
	c := p.claim()
	p.take(c, long)
	p.ok("Extend", p.extend(c, p.tick))
	p.outlive()
	p.wantFree(c.Key)
}

// extendOften is a heartbeat: the lease counts from the last call.
func extendOften(p *probe) {
	c := p.claim()
	lease := 2 * p.tick
	start := p.now()
	p.take(c, lease)
	for range 4 {
		former := start
		start = p.now()
		p.before(former, lease, func() { p.ok("Extend", p.extend(c, lease)) })
		p.before(start, lease, func() {
			p.sleep(p.tick)
			p.checkRunning(p.lose(rival(c), lease), c, c)
		})
	}
	p.sleep(lease + p.tick/2)
	p.wantFree(c.Key)
}

func extendSetsHold(p *probe) {
	c := p.claim()
	p.take(c, long)
	c.Hold = long
	start := p.now()
	p.ok("Extend", p.extend(c, p.tick))
	p.outlive()
	p.wantLapsed(c, start, long)
}

func extendDropsHold(p *probe) {
	c := p.claim()
	c.Hold = long
	p.take(c, long)
	c.Hold = 0
	p.ok("Extend", p.extend(c, p.tick))
	p.outlive()
	p.wantFree(c.Key)
}

func extendRevives(p *probe) {
	c := p.claim()
	c.Hold = long
	p.take(c, p.tick)
	p.outlive()
	c.Hold = 0
	start := p.now()
	p.ok("Extend of the own claim that has lapsed into its Hold", p.extend(c, 2*long))
	p.wantRunning(c, start, 2*long)
	p.ok("Extend", p.extend(c, p.tick))
	p.outlive()
	p.wantFree(c.Key)
}

func extendAbsent(p *probe) {
	c := p.claim()
	p.lost("Extend of an absent key", p.extend(c, long))
	p.wantFree(c.Key)
	c.Hold = long
	p.lost("Extend with a Hold of an absent key", p.extend(c, long))
	p.wantFree(c.Key)
}

func extendLapsed(p *probe) {
	c := p.claim()
	p.take(c, p.tick)
	p.outlive()
	c.Hold = long
	p.lost("Extend of a claim that has lapsed", p.extend(c, long))
	p.wantFree(c.Key)
}

func extendPastHold(p *probe) {
	c := p.claim()
	c.Hold = p.tick
	p.take(c, p.tick)
	p.sleep(2*p.tick + p.tick/2)
	p.lost("Extend of a claim past its Hold", p.extend(c, long))
	p.wantFree(c.Key)
}

func extendReleased(p *probe) {
	c := p.claim()
	p.take(c, long)
	p.release(c)
	p.lost("Extend of a released claim", p.extend(c, long))
	p.wantFree(c.Key)
}

func extendOthers(p *probe) {
	c, brief := p.claim(), p.claim()
	start := p.now()
	p.take(c, long)
	p.within(p.tick, func() {
		p.take(brief, p.tick)
		other := rival(brief)
		other.Hold = long
		p.lost("Extend by a stranger", p.extend(other, long))
	})
	p.lost("Extend by a stranger", p.extend(rival(c), p.tick))
	p.wantRunning(c, start, long)
	p.outlive()
	p.wantRunning(c, start, long)
	p.wantFree(brief.Key)
}

func extendOthersLapsed(p *probe) {
	c := p.claim()
	c.Hold = long
	start := p.now()
	p.take(c, p.tick)
	p.outlive()
	other := rival(c)
	other.Replaces = c.Token
	p.lost("Extend by a stranger", p.extend(other, long))
	p.wantLapsed(c, start, long)
}

func extendAfterTakeover(p *probe) {
	former := p.claim()
	p.take(former, p.tick)
	p.outlive()
	c := rival(former)
	start := p.now()
	p.take(c, long)
	p.lost("Extend by the former owner", p.extend(former, p.tick))
	p.wantRunning(c, start, long)
	p.outlive()
	p.wantRunning(c, start, long)
}

func extendOthersRecord(p *probe) {
	c, want := p.claim(), answer("owner")
	start := p.record(c, want, long)
	p.lost("Extend of another's record", p.extend(rival(c), p.tick))
	p.outlive()
	p.wantDone(c, want, start, long)
}

func extendByPrefix(p *probe) {
	c := p.claim()
	start := p.now()
	p.take(c, long)
	for _, other := range prefixed(c) {
		p.lost("Extend by a token that begins like the holder's", p.extend(other, 2*long))
	}
	p.wantRunning(c, start, long)
}

func extendOwnRecord(p *probe) {
	kept, brief, want := p.claim(), p.claim(), answer("mine")
	start := p.record(kept, want, long)
	kept.Hold = long
	p.ok("Extend after the own Complete", p.extend(kept, p.tick))
	p.within(p.tick, func() {
		p.record(brief, want, p.tick)
		brief.Hold = long
		p.ok("Extend after the own Complete", p.extend(brief, long))
	})
	p.wantDone(kept, want, start, long)
	p.outlive()
	p.wantDone(kept, want, start, long)
	p.wantFree(brief.Key)
}

func extendOwnExpired(p *probe) {
	c := p.claim()
	p.record(c, answer("gone"), p.tick)
	p.outlive()
	p.lost("Extend after the own record has expired", p.extend(c, long))
	p.wantFree(c.Key)
}

func extendInTx(p *probe) {
	c, want := p.claim(), answer("owner")
	p.ok("Extend in a TxStore", p.extend(c, long))
	p.wantFree(c.Key)
	p.take(c, long)
	p.ok("Extend in a TxStore", p.extend(c, p.tick))
	p.outlive()
	start := p.now()
	p.wantRunning(c, start, long)
	p.ok("Complete", p.complete(c, want, long))
	p.ok("Extend after the own Complete", p.extend(c, p.tick))
	p.outlive()
	p.wantDone(c, want, start, long)
}
