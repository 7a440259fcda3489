package storetest

import (
	"context"
	"time"

	"github.com/retrysafe/idempotency"
)

func rule11() []testCase {
	return []testCase{
		{name: "claim of an absent key", run: doneClaim},
		{name: "claim again does not take a lapsed claim up", on: leaseStore, timed: true, run: doneClaimOfLapsed},
		{name: "claim does not take a lapsed claim over", on: leaseStore, timed: true, run: doneTakeover},
		{name: "extend", on: leaseStore, timed: true, run: doneExtend},
		{name: "complete", on: leaseStore, run: doneComplete},
		{name: "complete of an absent key", on: leaseStore, run: doneCompleteAbsent},
		{name: "release", on: leaseStore, run: doneRelease},
		{name: "in a transaction, complete records nothing", on: txStore, run: doneCompleteInTx},
		{name: "in a transaction, release leaves no record", on: txStore, run: doneReleaseInTx},
	}
}

// doneContexts calls f with contexts that are done already.
func (p *probe) doneContexts(f func(ctx context.Context)) {
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	f(cancelled)
	late, cancel := context.WithDeadline(context.Background(), time.Now().Add(-time.Second))
	defer cancel()
	f(late)
}

// refused stops the case if err is nil: the call cannot have been made.
func (p *probe) refused(what string, err error) {
	if err == nil {
		p.failf("%s with a context that was already done returned nil, want an error", what)
	}
}

func doneClaim(p *probe) {
	c := p.claim()
	p.doneContexts(func(ctx context.Context) {
		rec, err := p.store.Claim(ctx, c, long)
		if rec != nil {
			p.failf("Claim of an absent key with a done context returned the record of %s", describe(rec))
		}
		p.refused("Claim", err)
		p.wantFree(c.Key)
	})
	p.take(c, long) // the caller may repeat the call
}

func doneClaimOfLapsed(p *probe) {
	start := p.now()
	c := p.lapsed()
	p.doneContexts(func(ctx context.Context) {
		_, err := p.store.Claim(ctx, c, long)
		p.refused("Claim", err)
		p.wantLapsed(c, start, long)
	})
}

func doneTakeover(p *probe) {
	start := p.now()
	c := p.lapsed()
	h := heir(c)
	p.doneContexts(func(ctx context.Context) {
		_, _ = p.store.Claim(ctx, h, long)
		p.wantLapsed(c, start, long)
	})
	p.take(h, long)
}

func doneExtend(p *probe) {
	c := p.claim()
	start := p.now()
	p.take(c, long)
	p.doneContexts(func(ctx context.Context) {
		p.refused("Extend", p.store.Extend(ctx, c, p.tick))
		p.wantRunning(c, start, long)
	})
	p.outlive()
	p.wantRunning(c, start, long)
	p.ok("Extend", p.extend(c, 2*long))
}

func doneComplete(p *probe) {
	c, want := p.claim(), answer("done")
	start := p.now()
	p.take(c, long)
	p.doneContexts(func(ctx context.Context) {
		p.refused("Complete", p.store.Complete(ctx, c, answer("too late"), long))
		p.wantRunning(c, start, long)
	})
	p.ok("Complete", p.complete(c, want, long))
	p.wantDone(c, want, start, long)
}

func doneCompleteAbsent(p *probe) {
	c := p.claim()
	p.doneContexts(func(ctx context.Context) {
		p.refused("Complete", p.store.Complete(ctx, c, answer("too late"), long))
		p.wantFree(c.Key)
	})
}

func doneRelease(p *probe) {
	c := p.claim()
	start := p.now()
	p.take(c, long)
	p.doneContexts(func(ctx context.Context) {
		p.refused("Release", p.store.Release(ctx, c))
		p.wantRunning(c, start, long)
	})
	p.release(c)
	p.wantFree(c.Key)
}

// doneCompleteInTx leaves it to the store whether the transaction is still open:
// any error of its Complete may mean that the work was undone.
func doneCompleteInTx(p *probe) {
	p.doneContexts(func(ctx context.Context) {
		c := p.claim()
		p.take(c, long)
		p.refused("Complete", p.store.Complete(p.bind(ctx, c), c, answer("too late"), long))
		p.settled(c)
	})
}

func doneReleaseInTx(p *probe) {
	p.doneContexts(func(ctx context.Context) {
		c := p.claim()
		p.take(c, long)
		_ = p.store.Release(ctx, c)
		p.settled(c)
	})
}

// settled releases c, after which nothing may be left of it.
func (p *probe) settled(c idempotency.Claim) {
	p.release(c)
	p.wantFree(c.Key)
}
