package storetest

import (
	"context"

	"github.com/retrysafe/idempotency"
)

const textInspector = "Inspector: Lookup returns what the store holds for key, and nil, nil when it holds nothing; " +
	"nobody's claim or record is changed by it. Forget removes whatever the store holds for key, " +
	"a running claim included. Forgetting an absent key is no error."

func inspectorGroup() group {
	return group{name: "inspector", text: textInspector, cases: []testCase{
		{name: "lookup of an absent key", run: lookupAbsent},
		{name: "lookup of a running claim", on: leaseStore, run: lookupRunning},
		{name: "lookup of a lapsed claim", on: leaseStore, timed: true, run: lookupLapsed},
		{name: "lookup of a record", run: lookupRecord},
		{name: "lookup of what has run out", on: leaseStore, timed: true, run: lookupExpired},
		{name: "lookup while the holder completes", on: leaseStore, run: lookupOneStep},
		{name: "lookup shares no memory", run: lookupSharesNothing},
		{name: "lookup with a done context", run: lookupDone},
		{name: "forget a running claim", on: leaseStore, run: forgetRunning},
		{name: "forget a lapsed claim", on: leaseStore, timed: true, run: forgetLapsed},
		{name: "forget a record", run: forgetRecord},
		{name: "forget an absent key", run: forgetAbsent},
		{name: "forget one key only", run: forgetOne},
		{name: "forget with a done context", run: forgetDone},
	}}
}

// lookup calls Lookup, which must not fail.
func (p *probe) lookup(key idempotency.Key) (rec *idempotency.Record) {
	p.ok("Lookup", p.call(func(ctx context.Context) (err error) {
		rec, err = p.inspector.Lookup(ctx, key)
		return err
	}))
	return rec
}

// found looks key up, and must find something.
func (p *probe) found(key idempotency.Key) *idempotency.Record {
	rec := p.lookup(key)
	if rec == nil {
		p.failf("Lookup found nothing")
	}
	return rec
}

// lookupNothing looks key up, and must find nothing.
func (p *probe) lookupNothing(key idempotency.Key) {
	if rec := p.lookup(key); rec != nil {
		p.failf("Lookup of an absent key found %s, want nil", describe(rec))
	}
}

// forget calls Forget, which must not fail.
func (p *probe) forget(key idempotency.Key) {
	p.ok("Forget", p.call(func(ctx context.Context) error { return p.inspector.Forget(ctx, key) }))
}

func lookupAbsent(p *probe) {
	key := p.key()
	p.lookupNothing(key)
	p.wantFree(key)
	p.lookupNothing(key)
}

func lookupRunning(p *probe) {
	c := p.claim()
	c.Hold = long
	start := p.now()
	p.take(c, long)
	rec := p.found(c.Key)
	p.checkRunning(rec, c, c)
	p.checkLeft(rec, "lease", start, long)
	p.wantRunning(c, start, long)
}

func lookupLapsed(p *probe) {
	start := p.now()
	c := p.lapsed()
	rec := p.found(c.Key)
	if !rec.Lapsed || rec.Response != nil {
		p.failf("Lookup found %s, want a lapsed claim", describe(rec))
	}
	p.checkOwner(rec, c)
	p.checkLeft(rec, "Hold", start, long)
	p.wantLapsed(c, start, long)
}

func lookupRecord(p *probe) {
	c := p.claim()
	start := p.record(c, full(), long)
	rec := p.found(c.Key)
	p.checkDone(rec, c, full())
	p.checkLeft(rec, "TTL", start, long)
	p.wantDone(c, full(), start, long)
}

func lookupExpired(p *probe) {
	lapsed, past, expired := p.claim(), p.claim(), p.claim()
	past.Hold = p.tick
	p.take(lapsed, p.tick)
	p.take(past, p.tick)
	p.record(expired, answer("gone"), p.tick)
	p.sleep(2*p.tick + p.tick/2)
	for _, c := range []idempotency.Claim{lapsed, past, expired} {
		p.lookupNothing(c.Key)
	}
}

func lookupOneStep(p *probe) {
	want := answer("one step")
	for range p.race(1) {
		c := p.claim()
		p.take(c, long)
		p.completeBeside(c, want, func() bool {
			rec := p.lookup(c.Key)
			if rec == nil {
				p.failf("Lookup found nothing while the holder completed")
			}
			return p.halfDone("Lookup", c, c, rec, want)
		})
	}
}

func lookupSharesNothing(p *probe) {
	c := p.claim()
	start := p.record(c, full(), long)
	spoil(p.found(c.Key).Response)
	p.checkDone(p.found(c.Key), c, full())
	p.wantDone(c, full(), start, long)
}

func lookupDone(p *probe) {
	c := p.claim()
	p.record(c, full(), long)
	p.doneContexts(func(ctx context.Context) {
		if rec, err := p.inspector.Lookup(ctx, c.Key); err == nil && rec == nil {
			p.failf("Lookup with a done context said that there is nothing, want an error or the record")
		}
	})
}

func forgetRunning(p *probe) {
	c := p.claim()
	c.Hold = long
	p.take(c, long)
	p.forget(c.Key)
	p.lookupNothing(c.Key)
	p.lost("Extend of a claim that was forgotten", p.extend(c, long))
	p.wantFree(c.Key)
}

func forgetLapsed(p *probe) {
	c := p.lapsed()
	p.forget(c.Key)
	p.lookupNothing(c.Key)
	p.wantFree(c.Key)
}

func forgetRecord(p *probe) {
	c := p.claim()
	p.record(c, full(), long)
	p.forget(c.Key)
	p.lookupNothing(c.Key)
	p.wantFree(c.Key)
}

func forgetAbsent(p *probe) {
	key := p.key()
	p.forget(key)
	p.forget(key)
	p.wantFree(key)
}

func forgetOne(p *probe) {
	kept, gone := p.claim(), p.claim()
	start := p.record(kept, full(), long)
	p.record(gone, full(), long)
	p.forget(gone.Key)
	p.wantFree(gone.Key)
	p.wantDone(kept, full(), start, long)
}

func forgetDone(p *probe) {
	c := p.claim()
	start := p.record(c, full(), long)
	p.doneContexts(func(ctx context.Context) {
		p.refused("Forget", p.inspector.Forget(ctx, c.Key))
		p.wantDone(c, full(), start, long)
	})
}
