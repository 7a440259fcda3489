package idempotency_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
)

// There is no lease in a transaction: one that was begun slowly, or whose store
// says otherwise when asked to extend it, is as good as any.
func TestTxHasNoLease(t *testing.T) {
	bubble(t, func(b *bubbleWorld) {
		b.inserts(func(w http.ResponseWriter, r *http.Request, run int) {
			select {
			case <-r.Context().Done():
				require.Fail(b, "the context ended", "%v", context.Cause(r.Context()))
			case <-time.After(10 * second):
			}
			bubbleCreated(w, run)
		})
		db := new(bubbleDB)
		p := b.transactional(db, idempotency.WithLease(second))
		p.fake.always("Claim", bubbleFault{delay: 1900 * time.Millisecond})
		p.fake.always("Extend", bubbleFault{refuse: errBubbleDown})
		p.send().created(1)
		b.holds(db, 1, 1)
		require.Zero(b, db.extended)
	})
}

// A decorator that hides Bind turns the promise off, which does not go unseen:
// the handler finds no transaction, and an answer that ignored that cannot be
// recorded.
func TestTxHiddenBind(t *testing.T) {
	bubble(t, func(b *bubbleWorld) {
		var inserted error
		b.work = func(w http.ResponseWriter, r *http.Request, run int) {
			inserted = insert(r.Context(), "row")
			bubbleCreated(w, run)
		}
		db := new(bubbleDB)
		fake := &bubbleStore{inner: db, world: b} // has no Bind
		p := b.processOn(fake, fake, idempotency.WithMaxExecution(time.Minute))
		p.send()
		require.Error(b, inserted)
		require.NoError(b, p.mw.Drain(b.Context()))
		e := p.event()
		require.Equal(b, idempotency.OutcomeUnstored, e.Outcome)
		require.Error(b, e.Err)
		b.holds(db, 0, 0)
	})
}

// Options that make no sense with a transaction.
func TestTxOptions(t *testing.T) {
	t.Parallel()
	reconciler := func(context.Context, *idempotency.Execution) (*idempotency.Response, error) { return nil, nil }
	for name, opts := range map[string][]idempotency.Option{
		"WithAtMostOnce": {idempotency.WithAtMostOnce()},
		"WithReconciler": {idempotency.WithAtMostOnce(), idempotency.WithReconciler(reconciler)},
		"WithFailOpen":   {idempotency.WithFailOpen()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Panics(t, func() { idempotency.New(new(bubbleDB), idempotency.SharedKeys, opts...) })
			mw := idempotency.New(new(bubbleDB), idempotency.SharedKeys)
			require.Panics(t, func() { mw.With(opts...) })
		})
	}
	require.Panics(t, func() {
		idempotency.New(new(bubbleDB), idempotency.SharedKeys, idempotency.WithReconciler(reconciler))
	})
}

// The default policy is the transaction's also for a route of its own.
func TestTxDefaultPolicyOfARoute(t *testing.T) {
	bubble(t, func(b *bubbleWorld) {
		b.inserts(func(w http.ResponseWriter, _ *http.Request, _ int) { w.WriteHeader(http.StatusInternalServerError) })
		db := new(bubbleDB)
		p := b.transactional(db)
		p.handler = p.mw.With(idempotency.WithTTL(time.Hour)).Handler(b)
		p.send()
		b.holds(db, 0, 0)
		p.handler = p.mw.With(idempotency.WithPolicy(idempotency.RecordFinal)).Handler(b)
		p.send()
		b.holds(db, 1, 1)
	})
}
