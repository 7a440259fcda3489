package main

import (
	"bytes"
	"context"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency/memstore"
)

// TestCrowds plays the crowds at the same time, since the slow handlers and the
// leases take real seconds, and then looks for what they have left running.
func TestCrowds(t *testing.T) {
	before := runtime.NumGoroutine()
	t.Run("all", func(t *testing.T) {
		t.Run("exactly once, and doubled without the middleware", func(t *testing.T) {
			t.Parallel()
			guarded, unguarded := playCrowd(t, config{seed: 1, payments: 62, customers: 7})
			with, without := judge(guarded.stage, false), judge(unguarded.stage, false)
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
			require.Len(t, without.Failures, countFailing(unguarded))
			requireFaults(t, guarded)
		})
		t.Run("a process that dies after the charge", func(t *testing.T) {
			t.Parallel()
			guarded, _ := playCrowd(t, config{seed: 2, payments: 12, customers: 3, dieAfterCharge: true})
			with := judge(guarded.stage, false)
			require.Len(t, with.Failures, 1)
			require.Equal(t, "charged 2 times instead of once", with.Failures[0].What)
			require.Contains(t, with.Failures[0].Story, deck[dies].words)
			require.Equal(t, 1, with.Doubled)
		})
		t.Run("the same, at most once", func(t *testing.T) {
			t.Parallel()
			guarded, _ := playCrowd(t, config{seed: 2, payments: 12, customers: 3, dieAfterCharge: true, atMostOnce: true})
			with := judge(guarded.stage, false)
			require.Empty(t, with.Failures)
			require.Equal(t, 2, with.Unknown, "the panic and the death")
			require.Equal(t, 1, with.UnknownMade)
			require.Equal(t, with.Wanted, with.Made)
		})
		t.Run("the same, reconciled", func(t *testing.T) {
			t.Parallel()
			guarded, _ := playCrowd(t, config{seed: 2, payments: 12, customers: 3, dieAfterCharge: true, reconcile: true})
			with := judge(guarded.stage, false)
			require.Empty(t, with.Failures)
			require.Zero(t, with.Unknown)
			require.Equal(t, int64(1), with.Reconciled, "of the panic the bank knows nothing")
			require.Equal(t, 12-with.Declined, with.Made)
			require.Equal(t, 12, with.Repeated)
		})
		t.Run("interrupted", func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			// The first line of progress comes after a second, the slow handler
			// takes five.
			out := &watcher{text: "with the middleware [", then: cancel}
			require.Equal(t, 130, run(ctx, []string{"-payments", "50"}, out, io.Discard))
			require.Contains(t, out.String(), "Broken off")
			require.Contains(t, out.String(), "OK: ")
		})
	})
	// The ends of closed connections take a moment to be noticed.
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before }, 10*time.Second, 10*time.Millisecond)
}

func playCrowd(t *testing.T, cfg config) (guarded, unguarded *crowd) {
	t.Helper()
	var out bytes.Buffer
	guarded, unguarded, err := show(t.Context(), cfg, memstore.New(), &out)
	require.NoError(t, err)
	require.NotContains(t, out.String(), "\r", "this is no terminal")
	return guarded, unguarded
}

func countFailing(c *crowd) (n int) {
	charges := c.ledger.byOrder()
	for _, o := range c.sorted {
		if (o.fault == declined) != (len(charges[o.Order]) == 0) || len(charges[o.Order]) > 1 || o.accepted ||
			slices.ContainsFunc(o.answers, func(a finalAnswer) bool { return a != o.answers[0] }) {
			n++
		}
	}
	return n
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
			require.Contains(t, story, "201 replayed", story)
		case twins:
			require.GreaterOrEqual(t, attempts, int64(4), story)
		case changedBody:
			require.Contains(t, story, "409 idempotency_key_reused_with_different_params")
		case panics:
			require.Equal(t, int64(2), runs, story)
		case slow:
			require.Contains(t, story, "409 request_in_progress")
		case dies:
			require.Contains(t, story, "409 request_in_progress")
			require.Equal(t, int64(2), runs, story)
		}
		if o.fault != panics && o.fault != dies {
			require.Equal(t, int64(1), runs, story)
		}
	}
}

// watcher calls a function when a text is written.
type watcher struct {
	mu   sync.Mutex
	buf  bytes.Buffer
	text string
	then func()
}

func (w *watcher) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if strings.Contains(string(p), w.text) {
		w.then()
	}
	return w.buf.Write(p)
}

func (w *watcher) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.String()
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
