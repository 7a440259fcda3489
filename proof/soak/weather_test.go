package soak_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/retrysafe/idempotency"
)

var errDown = errors.New("the store cannot be reached")

// fault is what goes wrong with one call of the store.
type fault int

const (
	fine      fault = iota
	down            // it is not done
	hanging         // it is not done, which is known only when its time is up
	replyLost       // it is done, and fails
	overdue         // it is done when the lease is over, whatever its context says
	late            // it fails, and is done when the lease is over
	faultKinds
)

// weather decides what goes wrong: now and then with one call, and during an
// outage with all.
type weather struct {
	*tally
	problem func(format string, args ...any)
	rough   atomic.Bool  // single calls go wrong
	outage  atomic.Int64 // the fault of all calls
}

func (w *weather) next() fault {
	if f := fault(w.outage.Load()); f != fine {
		return f
	}
	if w.rough.Load() && rand.IntN(60) == 0 {
		w.add(faults)
		return 1 + rand.N(faultKinds-1)
	}
	return fine
}

// blow lets the weather be rough until ctx ends. cut cuts the connections of the
// store, where there are any.
func (w *weather) blow(ctx context.Context, cut func(context.Context) error) error {
	w.rough.Store(true)
	defer w.rough.Store(false)
	for n, calm := 0, lease/2; pause(ctx, calm); n, calm = n+1, lease+rand.N(3*lease) {
		if n%3 == 2 && cut != nil {
			w.add(cuts)
			if err := cut(context.WithoutCancel(ctx)); err != nil {
				return err
			}
			continue
		}
		w.add(outages)
		w.outage.Store(int64([...]fault{down, hanging}[n%2]))
		pause(ctx, rand.N(lease*3/2))
		w.outage.Store(int64(fine))
	}
	return nil
}

// pause waits for d, and reports whether ctx still lasts.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// shaky is a Store that is out in the weather. It notes its calls in their keys'
// entries.
type shaky struct {
	store   idempotency.Store
	weather *weather
	ordered bool // calls cannot overtake one another
}

// exposed returns store in the weather, with what else it can do.
func exposed(store idempotency.Store, w *weather) idempotency.Store {
	s := &shaky{store: store, weather: w}
	if tx, ok := store.(idempotency.TxStore); ok {
		s.ordered = true
		return shakyTx{s, tx}
	}
	if waiter, ok := store.(idempotency.Waiter); ok {
		return shakyWaiter{s, waiter}
	}
	return s
}

// shakyTx keeps to what a TxStore is held to in whatever weather: a Claim that
// fails, every Complete and every Release have given their connection back.
type shakyTx struct {
	*shaky
	tx idempotency.TxStore
}

func (s shakyTx) Bind(ctx context.Context, c idempotency.Claim) context.Context {
	return s.tx.Bind(ctx, c)
}

func (s shakyTx) Claim(ctx context.Context, c idempotency.Claim, lease time.Duration) (*idempotency.Record, error) {
	rec, err := s.shaky.Claim(ctx, c, lease)
	if err != nil {
		_ = s.Release(ctx, c)
	}
	return rec, err
}

func (s shakyTx) Complete(ctx context.Context, c idempotency.Claim, resp *idempotency.Response, ttl time.Duration) error {
	err := s.shaky.Complete(ctx, c, resp, ttl)
	if err != nil {
		_ = s.Release(ctx, c)
	}
	return err
}

func (s shakyTx) Release(ctx context.Context, c idempotency.Claim) error {
	e := visitOf(ctx).entry
	e.enter()
	defer e.leave()
	return s.tx.Release(ctx, c)
}

type shakyWaiter struct {
	*shaky
	waiter idempotency.Waiter
}

func (s shakyWaiter) Wait(ctx context.Context, key idempotency.Key) error {
	if s.weather.outage.Load() != int64(fine) {
		return errDown
	}
	return s.waiter.Wait(ctx, key)
}

// keep is a call that makes, extends or completes a claim. None may begin once
// its request has settled, or a key would be held for nobody.
func (s *shaky) keep(ctx context.Context, method string, do func(context.Context) error) error {
	if v := visitOf(ctx); v.settled.Load() {
		s.weather.problem("key %s (%s): %s is called after its request has settled", v.id, v.ending, method)
	}
	return s.call(ctx, do)
}

func (s *shaky) call(ctx context.Context, do func(context.Context) error) error {
	e := visitOf(ctx).entry
	e.enter()
	defer e.leave()
	f := s.weather.next()
	if f == late && s.ordered {
		f = down
	}
	switch f {
	case down:
		return errDown
	case hanging:
		<-ctx.Done()
		return ctx.Err()
	case replyLost:
		_ = do(ctx)
		return errDown
	case overdue:
		return s.afterLease(ctx, do)
	case late:
		e.enter()
		go func() {
			defer e.leave()
			_ = s.afterLease(ctx, do)
		}()
		return errDown
	}
	return do(ctx)
}

func (s *shaky) afterLease(ctx context.Context, do func(context.Context) error) error {
	ctx = context.WithoutCancel(ctx)
	pause(ctx, lease+lease/10)
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	return do(ctx)
}

func (s *shaky) Claim(ctx context.Context, c idempotency.Claim, lease time.Duration) (*idempotency.Record, error) {
	var held atomic.Pointer[idempotency.Record]
	err := s.keep(ctx, "Claim", func(ctx context.Context) error {
		rec, err := s.store.Claim(ctx, c, lease)
		held.Store(rec)
		return err
	})
	if err != nil {
		return nil, err
	}
	return held.Load(), nil
}

func (s *shaky) Extend(ctx context.Context, c idempotency.Claim, lease time.Duration) error {
	return s.keep(ctx, "Extend", func(ctx context.Context) error { return s.store.Extend(ctx, c, lease) })
}

func (s *shaky) Complete(ctx context.Context, c idempotency.Claim, resp *idempotency.Response, ttl time.Duration) error {
	return s.keep(ctx, "Complete", func(ctx context.Context) error { return s.store.Complete(ctx, c, resp, ttl) })
}

func (s *shaky) Release(ctx context.Context, c idempotency.Claim) error {
	return s.call(ctx, func(ctx context.Context) error { return s.store.Release(ctx, c) })
}
