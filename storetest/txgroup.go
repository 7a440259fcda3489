package storetest

import "context"

const textTx = "TxStore: Claim begins the transaction and takes the key, Bind puts the transaction into the handler's " +
	"context, Complete writes the record and commits, Release rolls back. Complete of a claim that was never bound " +
	"is an error. A Claim that returned a Record has given its connection back."

func txGroup() group {
	return group{name: "transaction", text: textTx, cases: []testCase{
		{name: "complete without Bind is an error", on: txStore, run: completeUnbound},
		{name: "complete without Bind leaves nothing behind", on: txStore, run: completeUnboundFrees},
		{name: "release of a bound claim", on: txStore, run: releaseBound},
		{name: "many in a row give their connections back", on: txStore, run: manyInARow},
	}}
}

// unbound completes without Bind, which must fail, and then lets go of c.
func (p *probe) unbound(what string) {
	c := p.claim()
	p.take(c, long)
	err := p.call(func(ctx context.Context) error { return p.store.Complete(ctx, c, answer("unbound"), long) })
	if err == nil {
		p.failf("%s returned nil, want an error", what)
	}
	p.settled(c)
}

func completeUnbound(p *probe) { p.unbound("Complete with a context that Bind has not been called on") }

func completeUnboundFrees(p *probe) {
	for range 2 * crowd {
		p.unbound("Complete without Bind")
	}
}

func releaseBound(p *probe) {
	for range 2 * crowd {
		c := p.claim()
		p.take(c, long)
		p.ok("Release", p.call(func(ctx context.Context) error { return p.store.Release(p.bind(ctx, c), c) }))
		p.drop(c)
		p.wantFree(c.Key)
	}
}

// manyInARow would run out of connections if one way out kept them.
func manyInARow(p *probe) {
	for range 2 * crowd {
		c, want := p.claim(), answer("done")
		p.take(c, long)
		p.lose(rival(c), long)
		start := p.now()
		p.ok("Complete", p.complete(c, want, long))
		p.wantDone(c, want, start, long)
		_ = p.complete(c, want, long)
		p.release(c)
	}
}
