package storetest

import "github.com/retrysafe/idempotency"

func rule07() []testCase {
	return []testCase{
		{name: "another token holds the key", on: leaseStore, run: completeOthers},
		{name: "another token has completed the key", on: leaseStore, run: completeOthersRecord},
		{name: "another token's claim has lapsed into its Hold", on: leaseStore, timed: true, run: completeOthersLapsed},
		{name: "another token took the key after the lease", on: leaseStore, timed: true, run: completeAfterTakeover},
		{name: "another token took the lapsed claim over", on: leaseStore, timed: true, run: completeAfterReplace},
		{name: "late complete after lapse", on: leaseStore, timed: true, run: completeLate},
		{name: "late complete within the Hold", on: leaseStore, timed: true, run: completeInHold},
		{name: "late complete past the Hold", on: leaseStore, timed: true, run: completePastHold},
		{name: "late complete after another's record has expired", on: leaseStore, timed: true, run: completeAfterOthersTTL},
		{name: "late complete after another's release", on: leaseStore, timed: true, run: completeAfterOthersRelease},
		{name: "complete of an absent key", on: leaseStore, run: completeAbsent},
		{name: "a token that begins like the holder's", on: leaseStore, run: completeByPrefix},
		{name: "late completes of two tokens at once", on: leaseStore, run: completeRace},
		{name: "in a transaction, another token holds the key", on: txStore, run: completeOthersInTx},
		{name: "in a transaction, another token has completed the key", on: txStore, run: completeOthersRecordInTx},
		{name: "in a transaction, complete of an absent key", on: txStore, run: completeAbsentInTx},
	}
}

// completeMustLose tries to complete for c, which must be refused.
func (p *probe) completeMustLose(c idempotency.Claim) {
	p.lost("Complete by a token that does not have the key", p.complete(c, answer("intruder"), 2*long))
}

func completeOthers(p *probe) {
	c := p.claim()
	c.Hold = long
	start := p.now()
	p.take(c, long)
	p.completeMustLose(rival(c))
	p.wantRunning(c, start, long)
	p.ok("Complete", p.complete(c, answer("owner"), long))
	p.wantDone(c, answer("owner"), start, long)
}

func completeOthersRecord(p *probe) {
	c, want := p.claim(), answer("owner")
	start := p.record(c, want, long)
	p.completeMustLose(rival(c))
	p.wantDone(c, want, start, long)
}

func completeOthersLapsed(p *probe) {
	c := p.claim()
	c.Hold = long
	start := p.now()
	p.take(c, p.tick)
	p.outlive()
	p.completeMustLose(rival(c))
	other := rival(c)
	other.Replaces = c.Token
	p.completeMustLose(other)
	p.wantLapsed(c, start, long)
}

func completeAfterTakeover(p *probe) {
	former := p.claim()
	p.take(former, p.tick)
	p.outlive()
	c, want := rival(former), answer("new owner")
	start := p.now()
	p.take(c, long)
	p.completeMustLose(former)
	p.wantRunning(c, start, long)
	p.ok("Complete", p.complete(c, want, long))
	p.completeMustLose(former)
	p.wantDone(c, want, start, long)
}

func completeAfterReplace(p *probe) {
	former := p.claim()
	former.Hold = long
	p.take(former, p.tick)
	p.outlive()
	c := rival(former)
	c.Replaces = former.Token
	start := p.now()
	p.take(c, long)
	p.completeMustLose(former)
	p.wantRunning(c, start, long)
}

func completeLate(p *probe) {
	c, want := p.claim(), answer("late")
	p.take(c, p.tick)
	p.outlive()
	start := p.now()
	p.ok("late Complete of a key nobody took", p.complete(c, want, long))
	p.wantDone(c, want, start, long)
	p.ok("late Complete again", p.complete(c, answer("again"), long))
	p.wantDone(c, want, start, long)
}

func completeInHold(p *probe) {
	c, want := p.claim(), answer("late")
	c.Hold = long
	p.take(c, p.tick)
	p.outlive()
	start := p.now()
	p.ok("Complete of the own claim that has lapsed into its Hold", p.complete(c, want, 2*long))
	p.wantDone(c, want, start, 2*long)
}

func completePastHold(p *probe) {
	c, want := p.claim(), answer("late")
	c.Hold = p.tick
	p.take(c, p.tick)
	p.sleep(2*p.tick + p.tick/2)
	start := p.now()
	p.ok("Complete past the Hold of a key nobody took", p.complete(c, want, long))
	p.wantDone(c, want, start, long)
}

func completeAfterOthersTTL(p *probe) {
	c, want := p.claim(), answer("late")
	p.take(c, p.tick)
	p.outlive()
	p.record(rival(c), answer("other"), p.tick)
	p.outlive()
	start := p.now()
	p.ok("Complete of a key that is absent again", p.complete(c, want, long))
	p.wantDone(c, want, start, long)
}

func completeAfterOthersRelease(p *probe) {
	c, want := p.claim(), answer("late")
	p.take(c, p.tick)
	p.outlive()
	other := rival(c)
	p.take(other, long)
	p.release(other)
	start := p.now()
	p.ok("Complete of a key that is absent again", p.complete(c, want, long))
	p.wantDone(c, want, start, long)
}

func completeAbsent(p *probe) {
	c, want := p.claim(), answer("unclaimed")
	start := p.now()
	p.ok("Complete of an absent key", p.complete(c, want, long))
	p.wantDone(c, want, start, long)
}

// prefixed returns claims on the key of c with tokens that are like its token.
func prefixed(c idempotency.Claim) []idempotency.Claim {
	longer, shorter := rival(c), rival(c)
	longer.Token = c.Token + "A"
	shorter.Token = c.Token[:len(c.Token)-1]
	return []idempotency.Claim{longer, shorter}
}

func completeByPrefix(p *probe) {
	c := p.claim()
	start := p.now()
	p.take(c, long)
	for _, other := range prefixed(c) {
		p.completeMustLose(other)
	}
	p.wantRunning(c, start, long)
}

// completeRace lets tokens complete one absent key at once: one answer stands,
// and the others learn that theirs does not.
func completeRace(p *probe) {
	for range p.race(10) {
		key := p.key()
		claims := make([]idempotency.Claim, crowd)
		errs := make([]error, crowd)
		for i := range claims {
			claims[i] = claimFor(key)
		}
		p.together(crowd, func(i int) { errs[i] = p.complete(claims[i], answer(claims[i].Token), long) })
		stored := 0
		for i, err := range errs {
			if err != nil {
				p.lost("Complete after another's", err)
				continue
			}
			stored++
			p.checkDone(p.lose(claimFor(key), long), claims[i], answer(claims[i].Token))
		}
		if stored != 1 {
			p.failf("of %d concurrent Completes of an absent key %d succeeded, want 1", crowd, stored)
		}
	}
}

// refusedInTx tries to complete a claim that has no transaction.
func (p *probe) refusedInTx(c idempotency.Claim) {
	if err := p.complete(c, answer("intruder"), long); err == nil {
		p.failf("Complete of a token that has begun no transaction returned nil, want an error")
	}
}

func completeOthersInTx(p *probe) {
	c, want := p.claim(), answer("owner")
	p.take(c, long)
	p.refusedInTx(rival(c))
	start := p.now()
	p.ok("Complete", p.complete(c, want, long))
	p.wantDone(c, want, start, long)
}

func completeOthersRecordInTx(p *probe) {
	c, want := p.claim(), answer("owner")
	start := p.record(c, want, long)
	p.refusedInTx(rival(c))
	p.wantDone(c, want, start, long)
}

func completeAbsentInTx(p *probe) {
	c := p.claim()
	p.refusedInTx(c)
	p.wantFree(c.Key)
}
