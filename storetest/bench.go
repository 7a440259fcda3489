package storetest

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retrysafe/idempotency"
)

// A benchmark goes round so many keys, fewer with large bodies. Their records are
// made to expire before their turn comes again, so that the store does not grow
// and the garbage collector does not measure the heap.
const (
	benchKeys      = 1 << 14
	benchKeysLarge = 1 << 10
)

// Bench measures the calls that make up a request's way, each as a
// sub-benchmark that reports allocations:
//
//   - claim+complete: a first run, with bodies of 1 KiB and 64 KiB
//   - replay: a Claim that gets the record, with bodies of 1 KiB and 64 KiB
//   - conflict: a Claim of a key that another token holds
//   - extend: the heartbeat of a running claim
//   - release: a Claim and its Release
//
// each one after the other (serial) and on all processors (parallel). newStore
// is called once for each. A Claim includes making its token. The records have a TTL of a millisecond in
// claim+complete, so a store that takes longer to give a key back claims it
// again until it is free, and that counts.
func Bench(b *testing.B, newStore func(b *testing.B) idempotency.Store) {
	for _, size := range []int{1 << 10, 64 << 10} {
		b.Run(fmt.Sprintf("claim+complete/%dKiB", size>>10), func(b *testing.B) {
			benchBoth(b, newStore, func(f *bench) func() { f.response(size); return f.firstRun })
		})
	}
	for _, size := range []int{1 << 10, 64 << 10} {
		b.Run(fmt.Sprintf("replay/%dKiB", size>>10), func(b *testing.B) {
			benchBoth(b, newStore, func(f *bench) func() {
				f.response(size)
				f.prepare(64, true)
				return f.lose
			})
		})
	}
	b.Run("conflict", func(b *testing.B) {
		benchBoth(b, newStore, func(f *bench) func() { f.prepareHeld(); return f.lose })
	})
	b.Run("extend", func(b *testing.B) {
		benchBoth(b, newStore, func(f *bench) func() { f.prepareHeld(); return f.extend })
	})
	b.Run("release", func(b *testing.B) {
		benchBoth(b, newStore, func(f *bench) func() { return f.release })
	})
}

// benchBoth measures the function that prepare returns, serial and parallel.
func benchBoth(b *testing.B, newStore func(b *testing.B) idempotency.Store, prepare func(f *bench) func()) {
	b.Run("serial", func(b *testing.B) {
		do := prepare(newBench(b, newStore(b)))
		b.ReportAllocs()
		for b.Loop() {
			do()
		}
	})
	b.Run("parallel", func(b *testing.B) {
		do := prepare(newBench(b, newStore(b)))
		b.ReportAllocs()
		b.ResetTimer()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				do()
			}
		})
	})
}

// bench is one benchmark at work on one store.
type bench struct {
	b     *testing.B
	ctx   context.Context
	store idempotency.Store
	tx    idempotency.TxStore
	keys  []idempotency.Key
	next  atomic.Uint64
	held  []idempotency.Claim
	resp  *idempotency.Response
}

func newBench(b *testing.B, s idempotency.Store) *bench {
	f := &bench{b: b, ctx: b.Context(), store: s, keys: make([]idempotency.Key, benchKeys)}
	f.tx, _ = s.(idempotency.TxStore)
	user := rand.Text()
	for i := range f.keys {
		f.keys[i] = idempotency.NewKey(user, "/payments", fmt.Sprintf("key-%d", i))
	}
	return f
}

// response sets the answer to record, with a body of size bytes.
func (f *bench) response(size int) {
	if size > 1<<10 {
		f.keys = f.keys[:benchKeysLarge]
	}
	f.resp = &idempotency.Response{
		Status: http.StatusCreated,
		Header: http.Header{
			"Content-Type": {"application/json"},
			"Location":     {"/payments/pay_123456789"},
			"Etag":         {`"33a64df551425fcc55e4d42a148795d9"`},
		},
		Body: randomBytes(size),
		Time: time.Now(),
	}
}

// turn returns the number of this call, for the choice of a key.
func (f *bench) turn() uint64 { return f.next.Add(1) }

// claim returns a fresh claim on the key whose turn it is.
func (f *bench) claim() idempotency.Claim {
	return idempotency.Claim{Key: f.keys[f.turn()%uint64(len(f.keys))], Token: rand.Text()}
}

// prepare claims n keys, and completes them if asked to.
func (f *bench) prepare(n int, complete bool) {
	for i := range n {
		c := claimFor(f.keys[i])
		if rec, err := f.store.Claim(f.ctx, c, long); err != nil || rec != nil {
			f.b.Fatalf("Claim of a new key returned %s, %v", describe(rec), err)
		}
		if complete {
			f.completeFor(c, long)
		}
		f.held = append(f.held, c)
	}
}

// prepareHeld claims the keys of a benchmark on running claims. In a transaction
// each holds a connection, so there it is one.
func (f *bench) prepareHeld() {
	if f.tx == nil {
		f.prepare(64, false)
		return
	}
	f.prepare(1, false)
	f.b.Cleanup(func() { _ = f.store.Release(context.Background(), f.held[0]) })
}

func (f *bench) completeFor(c idempotency.Claim, ttl time.Duration) {
	ctx := f.ctx
	if f.tx != nil {
		ctx = f.tx.Bind(ctx, c)
	}
	if err := f.store.Complete(ctx, c, f.resp, ttl); err != nil {
		f.b.Errorf("Complete: %v", err)
	}
}

// take claims until the key is free. It is, at once, unless the benchmark has
// gone round its keys in less than a record's millisecond.
func (f *bench) take(c idempotency.Claim) {
	rec, err := f.store.Claim(f.ctx, c, long)
	for start := time.Now(); rec != nil && err == nil && time.Since(start) < patience; {
		rec, err = f.store.Claim(f.ctx, c, long)
	}
	if rec != nil || err != nil {
		f.b.Errorf("Claim of a key whose record has expired returned %s, %v", describe(rec), err)
	}
}

func (f *bench) firstRun() {
	c := f.claim()
	f.take(c)
	f.completeFor(c, time.Millisecond)
}

func (f *bench) lose() {
	c := f.held[f.turn()%uint64(len(f.held))]
	c.Token = rand.Text()
	if rec, err := f.store.Claim(f.ctx, c, long); err != nil || rec == nil {
		f.b.Errorf("Claim of a key that is taken returned %s, %v", describe(rec), err)
	}
}

func (f *bench) extend() {
	c := f.held[f.turn()%uint64(len(f.held))]
	if err := f.store.Extend(f.ctx, c, long); err != nil {
		f.b.Errorf("Extend: %v", err)
	}
}

func (f *bench) release() {
	c := f.claim()
	f.take(c)
	if err := f.store.Release(f.ctx, c); err != nil {
		f.b.Errorf("Release: %v", err)
	}
}
