package storetest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/retrysafe/idempotency"
)

const textWaiter = "Waiter: Wait returns nil when the record of key may have changed, at once if no claim is running, " +
	"and at the latest when the claim's lease lapses. It returns an error when ctx ends."

func waiterGroup() group {
	return group{name: "waiter", text: textWaiter, cases: []testCase{
		{name: "returns at once for an absent key", run: waitAbsent},
		{name: "returns at once for a record", run: waitRecord},
		{name: "returns at once for a released claim", run: waitReleased},
		{name: "returns at once for a lapsed claim", on: leaseStore, timed: true, run: waitLapsed},
		{name: "wakes on complete", run: waitComplete},
		{name: "wakes on release", run: waitRelease},
		{name: "wakes when the lease lapses", on: leaseStore, timed: true, run: waitLapse},
		{name: "wakes when the lease lapses into a Hold", on: leaseStore, timed: true, run: waitLapseHold},
		{name: "wakes every waiter", run: waitMany},
		{name: "wakes nobody else's waiter for good", run: waitOtherKey},
		{name: "misses no end", run: waitRace},
		{name: "ends with its context", run: waitContext},
		{name: "does not return while the claim runs", timed: true, run: waitIsNoSpin},
	}}
}

// maxEarly bounds how often a Wait may return early; it is far more than a store
// that polls needs.
const maxEarly = 1000

// wait starts a Wait that goes on until the claim on key has ended, and returns
// the channel of its result. A Wait may return early.
func (p *probe) wait(key idempotency.Key, ended func() bool) <-chan error {
	return p.start(func(ctx context.Context) error {
		for range maxEarly {
			if err := p.waiter.Wait(ctx, key); err != nil || ended() {
				return err
			}
			runtime.Gosched()
		}
		return fmt.Errorf("nil %d times while the claim ran", maxEarly)
	})
}

// woken waits for a result of wait, which must be nil.
func (p *probe) woken(done <-chan error) {
	select {
	case err := <-done:
		p.ok("Wait", err)
	case <-time.After(patience):
		p.failf("Wait has not returned after %v", patience)
	}
}

// atOnce calls Wait, which has nothing to wait for. A machine may stall, so the
// quickest of a few calls counts.
func (p *probe) atOnce(key idempotency.Key) {
	quickest := patience
	for range 5 {
		start := time.Now()
		p.woken(p.start(func(ctx context.Context) error { return p.waiter.Wait(ctx, key) }))
		quickest = min(quickest, time.Since(start))
		if quickest < time.Second {
			return
		}
	}
	p.failf("Wait took %v although no claim is running", quickest)
}

// over returns a function that asks whether the claim on key has ended.
func (p *probe) over(c idempotency.Claim) func() bool {
	return func() bool {
		other := rival(c)
		rec := p.ask(other, long)
		if rec == nil {
			p.release(other)
		}
		return rec == nil || rec.Response != nil || rec.Lapsed
	}
}

func waitAbsent(p *probe) { p.atOnce(p.key()) }

func waitRecord(p *probe) {
	c := p.claim()
	p.record(c, answer("done"), long)
	p.atOnce(c.Key)
}

func waitReleased(p *probe) {
	c := p.claim()
	p.take(c, long)
	p.release(c)
	p.atOnce(c.Key)
}

func waitLapsed(p *probe) { p.atOnce(p.lapsed().Key) }

func waitComplete(p *probe) {
	c := p.claim()
	p.take(c, long)
	done := p.wait(c.Key, p.over(c))
	p.letWait()
	p.ok("Complete", p.complete(c, answer("done"), long))
	p.woken(done)
	p.checkDone(p.lose(rival(c), long), c, answer("done"))
}

func waitRelease(p *probe) {
	c := p.claim()
	p.take(c, long)
	done := p.wait(c.Key, p.over(c))
	p.letWait()
	p.release(c)
	p.woken(done)
}

// letWait gives a waiter the time to begin.
func (p *probe) letWait() {
	for range 100 {
		runtime.Gosched()
	}
}

func waitLapse(p *probe) {
	c := p.claim()
	p.take(c, p.tick)
	done := p.wait(c.Key, p.over(c))
	p.outlive()
	p.woken(done)
}

func waitLapseHold(p *probe) {
	c := p.claim()
	c.Hold = long
	p.take(c, p.tick)
	done := p.wait(c.Key, p.over(c))
	p.outlive()
	p.woken(done)
}

func waitMany(p *probe) {
	c := p.claim()
	p.take(c, long)
	var all []<-chan error
	for range crowd {
		all = append(all, p.wait(c.Key, p.over(c)))
	}
	p.letWait()
	p.ok("Complete", p.complete(c, answer("done"), long))
	for _, done := range all {
		p.woken(done)
	}
}

func waitOtherKey(p *probe) {
	c, other := p.claim(), p.claim()
	p.take(c, long)
	p.take(other, long)
	waiting, done := p.wait(other.Key, p.over(other)), p.wait(c.Key, p.over(c))
	p.letWait()
	p.ok("Complete", p.complete(c, answer("done"), long))
	p.woken(done)
	p.ok("Complete", p.complete(other, answer("done"), long))
	p.woken(waiting)
}

// waitRace ends claims while a Wait for them is just beginning.
func waitRace(p *probe) {
	for i := range p.race(10) {
		c := p.claim()
		p.take(c, long)
		done := p.wait(c.Key, p.over(c))
		if i%2 == 0 {
			p.ok("Complete", p.complete(c, answer("done"), long))
		} else {
			p.release(c)
		}
		p.woken(done)
	}
}

func waitContext(p *probe) {
	c := p.claim()
	p.take(c, long)
	ctx, cancel := context.WithCancel(p.base)
	done := p.start(func(context.Context) error {
		for ctx.Err() == nil {
			if err := p.waiter.Wait(ctx, c.Key); err != nil {
				return err
			}
			runtime.Gosched()
		}
		return p.waiter.Wait(ctx, c.Key)
	})
	p.letWait()
	cancel()
	select {
	case err := <-done:
		if err == nil {
			p.failf("Wait for a running claim with a context that is done returned nil, want an error")
		}
	case <-time.After(patience):
		p.failf("Wait has not returned %v after its context ended", patience)
	}
}

// waitIsNoSpin allows a Wait that polls to return early now and then.
func waitIsNoSpin(p *probe) {
	const most = 50
	c := p.claim()
	p.take(c, long)
	ctx, cancel := context.WithCancel(p.base)
	defer cancel()
	done := p.start(func(context.Context) error {
		for range most {
			if err := p.waiter.Wait(ctx, c.Key); err != nil {
				return nil // the context ended
			}
		}
		return errors.New("returned at once again and again while the claim ran")
	})
	p.outlive()
	cancel()
	p.woken(done)
}
