package main

import (
	"bytes"
	"context"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/memstore"
)

// TestCrowds plays the crowds at the same time, whatever -parallel says, since
// slow handlers and leases take real seconds. Then it looks for what they have
// left running.
func TestCrowds(t *testing.T) {
	before := runtime.NumGoroutine()
	plain := playing{cfg: config{seed: 1, payments: 62, customers: 7}}
	died := playing{cfg: config{seed: 2, payments: 12, customers: 3, dieAfterCharge: true}}
	atMostOnce, reconciled := died, died
	atMostOnce.cfg.atMostOnce, reconciled.cfg.reconcile = true, true

	var all sync.WaitGroup
	for _, p := range []*playing{&plain, &died, &atMostOnce, &reconciled} {
		all.Go(func() { p.play(t.Context()) })
	}
	// The first line of progress comes after a second, the slow handler takes six.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := &watcher{text: "guarded [", then: cancel}
	status := -1
	all.Go(func() { status = run(ctx, []string{"-payments", "50"}, out, io.Discard) })
	all.Wait()

	t.Run("exactly once, and doubled without the middleware", func(t *testing.T) {
		with, without := plain.judge(t)
		require.Empty(t, with.Failures)
		require.Equal(t, 62, with.Settled)
		require.Equal(t, 62-with.Declined, with.Wanted)
		require.Equal(t, with.Wanted, with.Made)
		require.Equal(t, 62, with.Asked)
		require.Equal(t, 62, with.Repeated)
		require.Zero(t, with.Doubled+with.Lost+with.Differing+with.Unknown)
		require.NotZero(t, with.Replays)
		require.NotZero(t, with.InProgress)
		require.NotZero(t, with.Mismatches)
		require.NotZero(t, with.Refused)

		require.Equal(t, 62, without.Settled)
		require.Equal(t, with.Wanted, without.Wanted)
		require.Equal(t, without.Wanted+without.Doubled, without.Made)
		require.NotZero(t, without.Doubled)
		require.NotZero(t, without.Differing)
		require.NotEmpty(t, without.Failures)
		requireFaults(t, plain.guarded)
	})
	t.Run("a process that dies after the charge", func(t *testing.T) {
		with, _ := died.judge(t)
		require.Len(t, with.Failures, 1)
		require.Equal(t, "charged 2 times instead of once", with.Failures[0].What)
		require.Contains(t, with.Failures[0].Story, deck[dies].words)
		require.Equal(t, 1, with.Doubled)
	})
	t.Run("the same, at most once", func(t *testing.T) {
		with, _ := atMostOnce.judge(t)
		require.Empty(t, with.Failures)
		require.Equal(t, 2, with.Unknown, "the panic and the death")
		require.Equal(t, 1, with.UnknownMade)
		require.Equal(t, with.Wanted, with.Made)
	})
	t.Run("the same, reconciled", func(t *testing.T) {
		with, _ := reconciled.judge(t)
		require.Empty(t, with.Failures)
		require.Zero(t, with.Unknown)
		require.Equal(t, int64(1), with.Reconciled, "of the panic the bank knows nothing")
		require.Equal(t, 12-with.Declined, with.Made)
		require.Equal(t, 12, with.Repeated)
	})
	t.Run("interrupted", func(t *testing.T) {
		require.Equal(t, 130, status)
		require.Contains(t, out.buf.String(), "Broken off")
		require.Contains(t, out.buf.String(), "OK: ")
	})
	t.Run("nothing goes on", func(t *testing.T) {
		// Connections take a moment to notice that they are closed.
		for deadline := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before+1; <-time.After(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				stacks := make([]byte, 1<<20)
				t.Fatalf("goroutines are left:\n%s", stacks[:runtime.Stack(stacks, true)])
			}
		}
	})
}

// playing is a crowd's play with the middleware and without it.
type playing struct {
	cfg                config
	guarded, unguarded *crowd
	out                bytes.Buffer
	err                error
}

func (p *playing) play(ctx context.Context) {
	p.guarded, p.unguarded, p.err = show(ctx, p.cfg, memstore.New(), &p.out)
}

func (p *playing) judge(t *testing.T) (with, without *result) {
	t.Helper()
	require.NoError(t, p.err)
	require.NotContains(t, p.out.String(), "\r", "this is no terminal")
	return judge(p.guarded.stage, false), judge(p.unguarded.stage, false)
}

// requireFaults checks that each order met what was planned for it: a crowd to
// which nothing happens proves nothing.
func requireFaults(t *testing.T, c *crowd) {
	t.Helper()
	keys := make(map[string]int)
	for _, o := range c.sorted {
		keys[o.key]++
	}
	for _, o := range c.sorted {
		story := strings.Join(o.story, ", ")
		runs, attempts := c.runs[o.Order], c.attempts[o.Order]
		switch o.fault {
		case nothing, sameKey:
			require.Equal(t, o.fault == sameKey, o.fault == sameKey && keys[o.key] > 1, story)
		case cutRequest:
			require.GreaterOrEqual(t, attempts, int64(3), story) // half a one, a whole one, the question afterwards
		case cutBefore, cutAfter, timesOut, cutAnswer, declined:
			require.GreaterOrEqual(t, attempts, int64(3), story)
			require.Contains(t, story, " replayed, asks once more")
		case twins:
			require.GreaterOrEqual(t, attempts, int64(4), story)
		case changedBody:
			require.Contains(t, story, "409 idempotency_key_reused_with_different_params")
		case panics:
			require.Equal(t, int64(2), runs, story)
		case slow:
			require.GreaterOrEqual(t, attempts, int64(3), story)
			// On a machine that stood still the claim may have been lost, which is
			// the only reason to end a handler.
			require.True(t, runs == 1 || strings.Contains(story, idempotency.ErrClaimLost.Error()), story)
		case dies:
			require.GreaterOrEqual(t, attempts, int64(3), story)
			require.Equal(t, int64(2), runs, story)
		}
		if o.fault != panics && o.fault != dies && o.fault != slow {
			require.Equal(t, int64(1), runs, story)
		}
	}
}

// watcher calls a function when a text is written.
type watcher struct {
	buf  bytes.Buffer
	text string
	then func()
}

func (w *watcher) Write(p []byte) (int, error) {
	if strings.Contains(string(p), w.text) {
		w.then()
	}
	return w.buf.Write(p)
}

func TestSamePlanForTheSameSeed(t *testing.T) {
	t.Parallel()
	require.Equal(t, newOrders(7, 300, 10), newOrders(7, 300, 10))
	require.NotEqual(t, newOrders(7, 300, 10), newOrders(8, 300, 10))
}

func TestPlan(t *testing.T) {
	t.Parallel()
	for _, size := range []struct{ payments, customers int }{{1, 1}, {5, 2}, {12, 1}, {13, 2}, {250, 25}, {3000, 3}} {
		type scope struct{ customer, key string }
		scopes := make(map[scope]bool)
		faults := make(map[fault]int)
		orders := newOrders(1, size.payments, size.customers)
		require.Len(t, orders, size.payments)
		for _, o := range orders {
			faults[o.fault]++
			require.False(t, scopes[scope{o.customer, o.key}], "a customer uses a key for one order only")
			scopes[scope{o.customer, o.key}] = true
			require.Positive(t, o.Amount)
		}
		for f := nothing + 1; int(f) < len(deck); f++ {
			require.True(t, size.payments < len(deck)-1 || faults[f] > 0, deck[f].words)
		}
	}
}
