package pgstore

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/retrysafe/idempotency"
)

const defaultBatch = 1000

// Lookup implements [idempotency.Inspector]. It sees what is committed: the
// claims of [NewTx] appear once they are completed.
func (t *table) Lookup(ctx context.Context, key idempotency.Key) (*idempotency.Record, error) {
	if err := ctx.Err(); err != nil {
		return nil, wrap("lookup", err)
	}
	r, err := t.look(ctx, key)
	if err != nil || r.isAbsent() {
		return nil, wrap("lookup", err)
	}
	rec, err := r.record()
	return rec, wrap("lookup", err)
}

// Forget implements [idempotency.Inspector]. With [WithHistory] the row is kept
// there. A claim of [NewTx] that has not been committed cannot be forgotten; it
// ends with its transaction.
func (t *table) Forget(ctx context.Context, key idempotency.Key) error {
	if err := ctx.Err(); err != nil {
		return wrap("forget", err)
	}
	_, err := t.exec(ctx, t.sql.forget, keyArgs(key, 0)...)
	return wrap("forget", err)
}

func (t *table) look(ctx context.Context, key idempotency.Key) (r *row, err error) {
	args := keyArgs(key, 0)
	err = retry(ctx, func() (err error) {
		r, err = scan(t.pool.Query(ctx, t.sql.read, args...))
		return err
	})
	return r, err
}

// Sweep deletes expired records and abandoned claims, or moves them to the
// table of [WithHistory], in statements of at most batch rows each (below 1:
// 1,000) until fewer are found, and returns how many it removed. It never
// touches a running claim, a claim that still blocks its key, or a live record,
// and it skips rows that somebody works on, so any number of sweepers may run.
//
// Nothing but the size of the table depends on it: what is expired counts as
// absent, swept or not. On an error it returns what it had removed until then.
func (t *table) Sweep(ctx context.Context, batch int) (int64, error) {
	if batch < 1 {
		batch = defaultBatch
	}
	var total int64
	for {
		if err := ctx.Err(); err != nil {
			return total, wrap("sweep", err)
		}
		n, err := t.exec(ctx, t.sql.sweep, int64(batch))
		if err != nil {
			return total, wrap("sweep", err)
		}
		total += n
		if n < int64(batch) {
			return total, nil
		}
	}
}

// SweepEvery sweeps in batches, see [Store.Sweep], about every interval until
// ctx ends, and then returns. Run it in a goroutine of its own, in as many
// processes as there are; the interval varies by a tenth, so that they do not
// go in step. A sweep that fails is reported to onError, which may be nil, and
// the next one comes in its turn. It panics when interval is not above zero.
func (t *table) SweepEvery(ctx context.Context, interval time.Duration, batch int, onError func(error)) {
	if interval <= 0 {
		panic("pgstore: SweepEvery needs an interval above zero")
	}
	for {
		spread := rand.N(interval/5 + 1) //nolint:gosec // spreads the sweeps, guards nothing
		timer := time.NewTimer(interval - interval/10 + spread)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		if _, err := t.Sweep(ctx, batch); err != nil && ctx.Err() == nil && onError != nil {
			onError(err)
		}
	}
}
