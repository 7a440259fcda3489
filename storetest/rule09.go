package storetest

import "github.com/retrysafe/idempotency"

func rule09() []testCase {
	return []testCase{
		{name: "the own running claim", run: releaseOwn},
		{name: "the own lapsed claim", on: leaseStore, timed: true, run: releaseOwnLapsed},
		{name: "an absent key", run: releaseAbsent},
		{name: "twice", run: releaseTwice},
		{name: "twice, when another has the key since", run: releaseAfterOther},
		{name: "another's running claim", run: releaseOthers},
		{name: "another's lapsed claim", on: leaseStore, timed: true, run: releaseOthersLapsed},
		{name: "another's claim after the lease", on: leaseStore, timed: true, run: releaseAfterTakeover},
		{name: "another's record", run: releaseOthersRecord},
		{name: "after the own complete", run: releaseOwnRecord},
		{name: "after the own lease has lapsed", on: leaseStore, timed: true, run: releaseOwnGone},
		{name: "a token that begins like the holder's", run: releaseByPrefix},
		{name: "naming the holder in Replaces", on: leaseStore, timed: true, run: releaseWithReplaces},
		{name: "in a transaction, it rolls back and gives the connection back", on: txStore, run: releaseInTx},
	}
}

func releaseOwn(p *probe) {
	c := p.claim()
	c.Hold = long
	p.take(c, long)
	p.release(c)
	next, want := rival(c), answer("next")
	start := p.now()
	p.take(next, long)
	p.wantRunning(next, start, long)
	p.ok("Complete", p.complete(next, want, long))
	p.wantDone(next, want, start, long)
}

func releaseOwnLapsed(p *probe) {
	c := p.claim()
	c.Hold = long
	p.take(c, p.tick)
	p.outlive()
	p.release(c)
	p.wantFree(c.Key)
}

func releaseAbsent(p *probe) {
	c := p.claim()
	p.release(c)
	p.wantFree(c.Key)
}

func releaseTwice(p *probe) {
	c := p.claim()
	p.take(c, long)
	p.release(c)
	p.release(c)
	p.wantFree(c.Key)
}

func releaseAfterOther(p *probe) {
	c := p.claim()
	p.take(c, long)
	p.release(c)
	next := rival(c)
	start := p.now()
	p.take(next, long)
	p.release(c)
	p.wantRunning(next, start, long)
}

func releaseOthers(p *probe) {
	c := p.claim()
	start := p.now()
	p.take(c, long)
	p.release(rival(c))
	p.wantRunning(c, start, long)
}

func releaseOthersLapsed(p *probe) {
	c := p.claim()
	c.Hold = long
	start := p.now()
	p.take(c, p.tick)
	p.outlive()
	p.release(rival(c))
	p.wantLapsed(c, start, long)
}

func releaseAfterTakeover(p *probe) {
	former := p.claim()
	p.take(former, p.tick)
	p.outlive()
	c := rival(former)
	start := p.now()
	p.take(c, long)
	p.release(former)
	p.wantRunning(c, start, long)
}

func releaseOthersRecord(p *probe) {
	c, want := p.claim(), answer("owner")
	start := p.record(c, want, long)
	p.release(rival(c))
	p.wantDone(c, want, start, long)
}

func releaseOwnRecord(p *probe) {
	c, want := p.claim(), answer("mine")
	start := p.record(c, want, long)
	p.release(c)
	p.wantDone(c, want, start, long)
}

func releaseOwnGone(p *probe) {
	c := p.claim()
	p.take(c, p.tick)
	p.outlive()
	p.release(c)
	p.wantFree(c.Key)
}

func releaseByPrefix(p *probe) {
	c := p.claim()
	start := p.now()
	p.take(c, long)
	for _, other := range prefixed(c) {
		p.release(other)
	}
	p.wantRunning(c, start, long)
}

func releaseWithReplaces(p *probe) {
	running, lapsed := p.claim(), p.claim()
	lapsed.Hold = long
	start := p.now()
	p.take(running, long)
	p.take(lapsed, p.tick)
	p.outlive()
	for _, c := range []idempotency.Claim{running, lapsed} {
		other := rival(c)
		other.Replaces = c.Token
		p.release(other)
	}
	p.wantRunning(running, start, long)
	p.wantLapsed(lapsed, start, long)
}

func releaseInTx(p *probe) {
	for range 4 * crowd {
		c := p.claim()
		p.take(c, long)
		p.release(c)
		p.wantFree(c.Key)
	}
}
