package storetest

func rule06() []testCase {
	return []testCase{
		{name: "again with the same response", on: leaseStore, run: completeAgain},
		{name: "again with another response", on: leaseStore, run: completeAgainOther},
		{name: "again does not shorten the TTL", on: leaseStore, timed: true, run: completeAgainShorter},
		{name: "again does not lengthen the TTL", on: leaseStore, timed: true, run: completeAgainLonger},
		{name: "again at the same time", on: leaseStore, run: completeTogether},
		{name: "in a transaction, again changes nothing", on: txStore, run: completeAgainInTx},
	}
}

func completeAgain(p *probe) {
	c, want := p.claim(), answer("same")
	start := p.record(c, want, long)
	for range 2 {
		p.ok("Complete again", p.complete(c, want, long))
	}
	p.wantDone(c, want, start, long)
}

func completeAgainOther(p *probe) {
	c, want := p.claim(), answer("first")
	start := p.record(c, want, long)
	again := c
	again.Hold = long
	p.ok("Complete again", p.complete(again, answer("second"), 2*long))
	p.wantDone(c, want, start, long)
}

func completeAgainShorter(p *probe) {
	c, want := p.claim(), answer("first")
	start := p.record(c, want, long)
	p.ok("Complete again", p.complete(c, answer("second"), p.tick))
	p.wantDone(c, want, start, long)
	p.outlive()
	p.wantDone(c, want, start, long)
}

func completeAgainLonger(p *probe) {
	c := p.claim()
	p.within(p.tick, func() {
		p.record(c, answer("first"), p.tick)
		p.ok("Complete again", p.complete(c, answer("second"), long))
	})
	p.outlive()
	p.wantFree(c.Key)
}

// completeTogether repeats a call whose first try is still under way.
func completeTogether(p *probe) {
	for range p.race(20) {
		c, want := p.claim(), answer("once")
		p.take(c, long)
		start := p.now()
		p.together(crowd, func(int) { p.ok("Complete", p.complete(c, want, long)) })
		p.wantDone(c, want, start, long)
	}
}

// completeAgainInTx does not ask what Complete returns: the transaction is over,
// and a store need not remember it.
func completeAgainInTx(p *probe) {
	c, want := p.claim(), answer("committed")
	start := p.record(c, want, long)
	_ = p.complete(c, answer("second"), p.tick)
	p.wantDone(c, want, start, long)
	p.outlive()
	p.wantDone(c, want, start, long)
}
