package storetest

func rule02() []testCase {
	return []testCase{
		{name: "own claim again", run: ownClaimAgain},
		{name: "own claim again, at the same time", on: leaseStore, run: ownClaimTogether},
		{name: "own claim again does not shorten the lease", on: leaseStore, timed: true, run: ownClaimKeepsLease},
		{name: "own claim again after the lease has lapsed", on: leaseStore, timed: true, run: ownClaimAfterLapse},
		{name: "own claim of a lapsed claim makes it live again", on: leaseStore, timed: true, run: ownClaimRevives},
		{name: "own claim after a release", run: ownClaimAfterRelease},
		{name: "own claim after completing returns the record", run: ownClaimAfterComplete},
		{name: "in a transaction, own claim again keeps the transaction", on: txStore, run: ownClaimInTx},
	}
}

func ownClaimAgain(p *probe) {
	c := p.claim()
	start := p.now()
	p.take(c, long)
	for range 3 {
		p.take(c, long)
	}
	p.wantRunning(c, start, long)
	c.Replaces = c.Token
	p.take(c, long)
	c.Replaces = rival(c).Token
	p.take(c, long)
	p.wantRunning(c, start, long)
}

func ownClaimTogether(p *probe) {
	for range p.race(10) {
		c := p.claim()
		start := p.now()
		p.together(crowd, func(int) { p.take(c, long) })
		p.wantRunning(c, start, long)
	}
}

func ownClaimKeepsLease(p *probe) {
	c := p.claim()
	start := p.now()
	p.take(c, long)
	p.take(c, p.tick)
	p.wantRunning(c, start, long)
	p.outlive()
	p.wantRunning(c, start, long)
}

func ownClaimAfterLapse(p *probe) {
	c := p.claim()
	p.take(c, p.tick)
	p.outlive()
	start := p.now()
	p.take(c, long)
	p.wantRunning(c, start, long)
}

func ownClaimRevives(p *probe) {
	c := p.claim()
	c.Hold = long
	start := p.now()
	p.take(c, p.tick)
	p.outlive()
	p.wantLapsed(c, start, long)
	start = p.now()
	p.take(c, 2*long)
	p.wantRunning(c, start, 2*long)
	p.ok("Complete", p.complete(c, answer("revived"), long))
	p.wantDone(c, answer("revived"), start, long)
}

func ownClaimAfterRelease(p *probe) {
	c := p.claim()
	p.take(c, long)
	p.release(c)
	start := p.now()
	p.take(c, long)
	p.wantRunning(c, start, long)
}

func ownClaimAfterComplete(p *probe) {
	c, want := p.claim(), answer("mine")
	start := p.record(c, want, long)
	for range 2 {
		rec := p.ask(c, long)
		if rec == nil {
			p.failf("Claim of the token that completed the key got nil: it would run again")
		}
		p.checkDone(rec, c, want)
		p.checkLeft(rec, "TTL", start, long)
	}
	p.wantDone(c, want, start, long)
}

func ownClaimInTx(p *probe) {
	c, want := p.claim(), answer("same transaction")
	p.take(c, long)
	p.take(c, long)
	start := p.now()
	p.ok("Complete", p.complete(c, want, long))
	p.wantDone(c, want, start, long)
}
