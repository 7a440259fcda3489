package storetest

import "github.com/retrysafe/idempotency"

func rule10() []testCase {
	return []testCase{
		{name: "a lapsed claim blocks its key", on: leaseStore, timed: true, run: lapsedBlocks},
		{name: "a running claim is not lapsed", on: leaseStore, run: runningIsNotLapsed},
		{name: "a claim without Replaces does not take over", on: leaseStore, timed: true, run: noTakeoverWithoutReplaces},
		{name: "a claim with a wrong Replaces does not take over", on: leaseStore, timed: true, run: noTakeoverByWrongName},
		{name: "a claim with the right Replaces takes over", on: leaseStore, timed: true, run: takeover},
		{name: "one of many takes over", on: leaseStore, timed: true, run: takeoverRace},
		{name: "Replaces names nobody any more after a takeover", on: leaseStore, timed: true, run: noSecondTakeover},
		{name: "Replaces of a running claim is ignored", on: leaseStore, run: noTakeoverOfRunning},
		{name: "Replaces of a claim that lives again is ignored", on: leaseStore, timed: true, run: noTakeoverOfRevived},
		{name: "Replaces of a completed record is ignored", on: leaseStore, run: noTakeoverOfRecord},
		{name: "Replaces of an absent key is ignored", run: replacesAbsent},
		{name: "the new owner's settings count", on: leaseStore, timed: true, run: takeoverSettings},
		{name: "in a transaction, Hold and Replaces mean nothing", on: txStore, timed: true, run: noTakeoverInTx},
	}
}

// lapsed returns a claim that has lapsed into a Hold that lasts.
func (p *probe) lapsed() idempotency.Claim {
	c := p.claim()
	c.Hold = long
	p.take(c, p.tick)
	p.outlive()
	return c
}

// heir returns a claim that may take c over.
func heir(c idempotency.Claim) idempotency.Claim {
	h := rival(c)
	h.Replaces = c.Token
	return h
}

func lapsedBlocks(p *probe) {
	c := p.claim()
	c.Hold = long
	start := p.now()
	p.take(c, p.tick)
	p.outlive()
	for range 3 {
		p.wantLapsed(c, start, long)
	}
	p.outlive()
	p.wantLapsed(c, start, long)
}

func runningIsNotLapsed(p *probe) {
	c := p.claim()
	c.Hold = long
	start := p.now()
	p.take(c, long)
	p.wantRunning(c, start, long)
}

func noTakeoverWithoutReplaces(p *probe) {
	start := p.now()
	c := p.lapsed()
	p.together(crowd, func(int) {
		if rec := p.lose(rival(c), long); !rec.Lapsed {
			p.failf("the record is %s, want it lapsed", describe(rec))
		}
	})
	p.wantLapsed(c, start, long)
}

func noTakeoverByWrongName(p *probe) {
	start := p.now()
	c := p.lapsed()
	wrong := append(prefixed(c), rival(c))
	for _, named := range wrong {
		rec := p.lose(heir(named), long)
		if !rec.Lapsed {
			p.failf("the record is %s, want it lapsed", describe(rec))
		}
	}
	self := rival(c)
	self.Replaces = self.Token
	p.lose(self, long)
	p.wantLapsed(c, start, long)
}

func takeover(p *probe) {
	c := p.lapsed()
	h, want := heir(c), answer("heir")
	start := p.now()
	p.take(h, long)
	p.wantRunning(h, start, long)
	p.take(h, long) // a lost reply may be repeated
	p.lost("Extend by the former owner", p.extend(c, long))
	p.lost("Complete by the former owner", p.complete(c, answer("former"), long))
	p.release(c)
	if rec := p.lose(c, long); rec.Token != h.Token {
		p.failf("Claim by the former owner got the record of %s, want the heir's", describe(rec))
	}
	p.wantRunning(h, start, long)
	p.ok("Complete", p.complete(h, want, long))
	p.wantDone(h, want, start, long)
}

func takeoverRace(p *probe) {
	var lapsed []idempotency.Claim
	for range p.race(40) {
		c := p.claim()
		c.Hold = long
		p.take(c, p.tick)
		lapsed = append(lapsed, c)
	}
	p.outlive()
	for _, c := range lapsed {
		p.inherit(c)
	}
}

// inherit lets a crowd take c over: one gets it, the others see that one.
func (p *probe) inherit(c idempotency.Claim) {
	heirs := make([]idempotency.Claim, crowd)
	recs := make([]*idempotency.Record, crowd)
	for i := range heirs {
		heirs[i] = heir(c)
		heirs[i].Hold = long
	}
	p.together(crowd, func(i int) { recs[i] = p.ask(heirs[i], long) })
	winner := -1
	for i, rec := range recs {
		if rec == nil && winner >= 0 {
			p.failf("two of %d concurrent Claims took the lapsed claim over", crowd)
		}
		if rec == nil {
			winner = i
		}
	}
	if winner < 0 {
		p.failf("none of %d concurrent Claims took the lapsed claim over; one got %s", crowd, describe(recs[0]))
	}
	for i, rec := range recs {
		if i != winner {
			p.checkRunning(rec, heirs[winner], heirs[i])
		}
	}
}

func noSecondTakeover(p *probe) {
	c := p.lapsed()
	first := heir(c)
	first.Hold = long
	start := p.now()
	p.take(first, p.tick)
	p.outlive()
	p.lose(heir(c), long) // the first owner is no longer the one to replace
	p.wantLapsed(first, start, long)
	second := heir(first)
	start = p.now()
	p.take(second, long)
	p.wantRunning(second, start, long)
}

func noTakeoverOfRunning(p *probe) {
	c := p.claim()
	c.Hold = long
	start := p.now()
	p.take(c, long)
	h := heir(c)
	p.checkRunning(p.lose(h, long), c, h)
	p.wantRunning(c, start, long)
}

func noTakeoverOfRevived(p *probe) {
	c := p.lapsed()
	start := p.now()
	p.ok("Extend", p.extend(c, long))
	p.lose(heir(c), long)
	p.wantRunning(c, start, long)
}

func noTakeoverOfRecord(p *probe) {
	c, want := p.claim(), answer("done")
	c.Hold = long
	start := p.record(c, want, long)
	p.checkDone(p.lose(heir(c), long), c, want)
	p.wantDone(c, want, start, long)
}

func replacesAbsent(p *probe) {
	h := heir(p.claim())
	start := p.now()
	p.take(h, long)
	p.wantRunning(h, start, long)
}

func takeoverSettings(p *probe) {
	held, free := p.lapsed(), p.lapsed()
	h := heir(held)
	h.Hold = long
	start := p.now()
	p.take(h, p.tick)
	p.take(heir(free), p.tick) // without a Hold
	p.outlive()
	p.wantLapsed(h, start, long)
	p.wantFree(free.Key)
}

func noTakeoverInTx(p *probe) {
	c, want := p.claim(), answer("owner")
	c.Hold = long
	p.take(c, p.tick)
	p.outlive()
	h := heir(c)
	p.checkRunning(p.lose(h, long), c, h)
	start := p.now()
	p.ok("Complete", p.complete(c, want, long))
	p.checkDone(p.lose(heir(c), long), c, want)
	p.wantDone(c, want, start, long)
}
