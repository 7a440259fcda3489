package history_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retrysafe/idempotency"
)

var errDown = errors.New("the store cannot be reached")

// fault is what goes wrong with one call of the store.
type fault int

const (
	fine       fault = iota
	failBefore       // it is not done
	failAfter        // it is done, its reply is lost
	slow             // it is done later
	twice            // it is done two times, one after the other
	late             // it fails, and is done behind later calls
	faultKinds
)

func (f fault) String() string {
	return [...]string{"fine", "fails before", "fails after", "slow", "twice", "late"}[f]
}

// lateness is how much later a late call is done: behind the next call, before
// the library, which pauses for 10 ms at least, has given the key up.
const lateness = 3 * time.Millisecond

// inVain is how many calls a request through a proxy may make before one gets more
// time than the store timeout, which is short: where more fail than there are faults
// the machine is busy.
const inVain = 5

// faulty is a Store whose calls go wrong as their requests say.
type faulty struct {
	idempotency.Store
	network *sync.WaitGroup // the calls that are still on their way
}

// faultyTx is faulty for a store whose claim is a transaction.
type faultyTx struct {
	faulty
	tx idempotency.TxStore
}

func (s faultyTx) Bind(ctx context.Context, c idempotency.Claim) context.Context {
	return s.tx.Bind(ctx, c)
}

func (s faulty) call(ctx context.Context, method string, do func(context.Context) error) error {
	q := ctx.Value(requestKey{}).(*request)
	f := q.next(method)
	if q.proxy != nil && q.tries() > inVain {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
		defer cancel()
	}
	switch f {
	case failBefore:
		return errDown
	case failAfter:
		_ = do(ctx)
		return errDown
	case slow:
		time.Sleep(lateness)
	case twice:
		_ = do(ctx)
	case late:
		s.network.Go(func() {
			time.Sleep(lateness)
			far, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
			defer cancel()
			_ = do(far)
		})
		return errDown
	}
	return do(ctx)
}

func (s faulty) Claim(ctx context.Context, c idempotency.Claim, lease time.Duration) (*idempotency.Record, error) {
	var held atomic.Pointer[idempotency.Record]
	err := s.call(ctx, "Claim", func(ctx context.Context) error {
		rec, err := s.Store.Claim(ctx, c, lease)
		held.Store(rec)
		return err
	})
	if err != nil {
		return nil, err
	}
	return held.Load(), nil
}

func (s faulty) Extend(ctx context.Context, c idempotency.Claim, lease time.Duration) error {
	return s.call(ctx, "Extend", func(ctx context.Context) error { return s.Store.Extend(ctx, c, lease) })
}

func (s faulty) Complete(ctx context.Context, c idempotency.Claim, resp *idempotency.Response, ttl time.Duration) error {
	return s.call(ctx, "Complete", func(ctx context.Context) error { return s.Store.Complete(ctx, c, resp, ttl) })
}

func (s faulty) Release(ctx context.Context, c idempotency.Claim) error {
	return s.call(ctx, "Release", func(ctx context.Context) error { return s.Store.Release(ctx, c) })
}
