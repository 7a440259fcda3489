package storetest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"sync"
	"time"

	"github.com/retrysafe/idempotency"
)

const (
	// long is for what must not run out during a case.
	long = time.Hour

	// callTimeout bounds every call to the store, and patience how long a Wait
	// may take to notice; both are far above what a store needs.
	callTimeout = 30 * time.Second
	patience    = 10 * time.Second

	// raceBudget ends the cases that race goroutines on a slow store.
	raceBudget = time.Second / 2
)

// probe is one case at work on one store. Its methods stop the case, by a panic
// with an abort in it, at the first thing that is wrong; they may be used from
// the goroutines that together starts.
type probe struct {
	store     idempotency.Store
	tx        idempotency.TxStore
	waiter    idempotency.Waiter
	inspector idempotency.Inspector
	tick      time.Duration
	rounds    int

	base   context.Context
	cancel context.CancelFunc
	pass   func(time.Duration)
	skew   time.Duration // how far the store's clock was put ahead of ours
	limit  time.Time     // set inside within: later than this there is no verdict

	mu      sync.Mutex
	holding map[string]idempotency.Claim // transactions to give back
	running sync.WaitGroup               // goroutines of start
}

type abort struct{ err error }

func newProbe(s idempotency.Store, cfg *config, tick time.Duration) *probe {
	p := &probe{store: s, tick: tick, rounds: cfg.rounds, pass: cfg.sleep}
	p.tx, _ = s.(idempotency.TxStore)
	p.waiter, _ = s.(idempotency.Waiter)
	p.inspector, _ = s.(idempotency.Inspector)
	p.holding = map[string]idempotency.Claim{}
	p.base, p.cancel = context.WithCancel(context.Background())
	return p
}

// close ends what the case has left open.
func (p *probe) close() {
	p.cancel()
	idle := make(chan struct{})
	go func() { p.running.Wait(); close(idle) }()
	select {
	case <-idle:
	case <-time.After(patience): // a Wait that does not end with its context
	}
	for _, c := range p.holding {
		ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
		_ = p.store.Release(ctx, c) // the connection goes back, whatever it says
		cancel()
	}
}

// failf stops the case. Where the case is inside within and the time for it is
// over, nothing can be said, and the case is to be begun anew.
func (p *probe) failf(format string, args ...any) {
	if !p.limit.IsZero() && p.now().After(p.limit) {
		panic(abort{errTooSlow})
	}
	panic(abort{fmt.Errorf(format, args...)})
}

// now is the latest time that the store's clock can show, up to a constant.
func (p *probe) now() time.Time { return time.Now().Add(p.skew) }

// sleep lets d pass on the store's clock.
func (p *probe) sleep(d time.Duration) {
	start := time.Now()
	p.pass(d)
	if ahead := d - time.Since(start); ahead > 0 {
		p.skew += ahead
	}
}

// outlive lets a lease, Hold or TTL of one tick lapse.
func (p *probe) outlive() { p.sleep(p.tick + p.tick/2) }

// within calls f, which must be done before a lease of d, begun in f, is over.
// If it was not, the case is begun anew with a longer tick.
func (p *probe) within(d time.Duration, f func()) { p.before(p.now(), d, f) }

// before is within for a lease that began at start or later.
func (p *probe) before(start time.Time, d time.Duration, f func()) {
	p.limit = start.Add(d - d/10)
	f()
	if p.now().After(p.limit) {
		panic(abort{errTooSlow})
	}
	p.limit = time.Time{}
}

// race yields the rounds of a case that races goroutines, one n-th of the number
// that WithRounds sets, or until the budget is used up.
func (p *probe) race(n int) iter.Seq[int] {
	return func(yield func(int) bool) {
		start := time.Now()
		for i := range max(1, p.rounds/n) {
			if !yield(i) || time.Since(start) > raceBudget {
				return
			}
		}
	}
}

// together calls f n times at once, and stops the case if one of them failed.
func (p *probe) together(n int, f func(i int)) {
	var wg sync.WaitGroup
	gate := make(chan struct{})
	failed := make(chan any, n)
	for i := range n {
		wg.Go(func() {
			defer func() {
				if v := recover(); v != nil {
					failed <- v
				}
			}()
			<-gate
			f(i)
		})
	}
	close(gate)
	wg.Wait()
	select {
	case v := <-failed:
		panic(v)
	default:
	}
}

// start calls f in a goroutine of its own and returns the channel of its result.
func (p *probe) start(f func(ctx context.Context) error) <-chan error {
	done := make(chan error, 1)
	p.running.Go(func() {
		defer func() {
			switch v := recover().(type) {
			case nil:
			case abort:
				done <- v.err
			default:
				done <- fmt.Errorf("panic: %v", v)
			}
		}()
		done <- f(p.base)
	})
	return done
}

// key returns a key nobody has used.
func (p *probe) key() idempotency.Key {
	return idempotency.NewKey("storetest", "/payments", rand.Text())
}

// claimFor returns a claim on key with a token and fingerprint of its own.
func claimFor(key idempotency.Key) idempotency.Claim {
	c := idempotency.Claim{Key: key, Token: rand.Text()}
	_, _ = rand.Read(c.Fingerprint[:]) // never fails
	return c
}

// claim returns a claim on a key nobody has used.
func (p *probe) claim() idempotency.Claim { return claimFor(p.key()) }

// rival returns another claim on the key of c.
func rival(c idempotency.Claim) idempotency.Claim { return claimFor(c.Key) }

// answer returns a response that is recognised by its text.
func answer(text string) *idempotency.Response {
	return &idempotency.Response{
		Status: http.StatusCreated,
		Header: http.Header{"Content-Type": {"text/plain"}, "X-Answer": {text}},
		Body:   []byte(text),
		Time:   time.Date(2026, 5, 17, 12, 34, 56, 789_012_345, time.UTC),
	}
}

// call runs f with a context that ends.
func (p *probe) call(f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(p.base, callTimeout)
	defer cancel()
	return f(ctx)
}

// try calls Claim and returns what it returned.
func (p *probe) try(c idempotency.Claim, lease time.Duration) (rec *idempotency.Record, err error) {
	err = p.call(func(ctx context.Context) error {
		rec, err = p.store.Claim(ctx, c, lease)
		return err
	})
	switch {
	case err != nil && rec != nil:
		p.failf("Claim returned both a record and the error %v", err)
	case err == nil && rec == nil:
		p.hold(c)
	}
	return rec, err
}

// ask calls Claim, which must not fail.
func (p *probe) ask(c idempotency.Claim, lease time.Duration) *idempotency.Record {
	rec, err := p.try(c, lease)
	if err != nil {
		p.failf("Claim failed: %v", err)
	}
	return rec
}

// extend calls Extend and returns what it returned.
func (p *probe) extend(c idempotency.Claim, lease time.Duration) error {
	return p.call(func(ctx context.Context) error { return p.store.Extend(ctx, c, lease) })
}

// complete calls Complete as a handler's middleware does, in a transaction if the
// store has them, and returns what it returned.
func (p *probe) complete(c idempotency.Claim, resp *idempotency.Response, ttl time.Duration) error {
	p.drop(c)
	return p.call(func(ctx context.Context) error {
		return p.store.Complete(p.bind(ctx, c), c, resp, ttl)
	})
}

// bind puts the transaction of c into ctx, if there is one.
func (p *probe) bind(ctx context.Context, c idempotency.Claim) context.Context {
	if p.tx == nil {
		return ctx
	}
	return p.tx.Bind(ctx, c)
}

// release calls Release, which must not fail.
func (p *probe) release(c idempotency.Claim) {
	p.drop(c)
	if err := p.call(func(ctx context.Context) error { return p.store.Release(ctx, c) }); err != nil {
		p.failf("Release returned %v, want nil", err)
	}
}

// hold and drop keep account of the transactions that are open.
func (p *probe) hold(c idempotency.Claim) {
	if p.tx == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holding[c.Token] = c
}

func (p *probe) drop(c idempotency.Claim) {
	if p.tx == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.holding, c.Token)
}

// lost stops the case unless err is ErrClaimLost.
func (p *probe) lost(what string, err error) {
	if !errors.Is(err, idempotency.ErrClaimLost) {
		p.failf("%s returned %v, want ErrClaimLost", what, errText(err))
	}
}

// ok stops the case if err is not nil.
func (p *probe) ok(what string, err error) {
	if err != nil {
		p.failf("%s returned %v, want nil", what, err)
	}
}

func errText(err error) string {
	if err == nil {
		return "nil"
	}
	return err.Error()
}
