package storetest_test

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/storetest"
)

// faults returns all the ways to break the contract.
func faults() map[string][]fault {
	return map[string][]fault{
		"claim": claimFaults(), "token": tokenFaults(), "loser": loserFaults(), "time": timeFaults(),
		"record": recordFaults(), "field": fieldFaults(), "complete": completeFaults(),
		"extend": extendFaults(), "heartbeat": heartbeatFaults(), "release": releaseFaults(),
		"takeover": takeoverFaults(), "context": contextFaults(), "memory": memoryFaults(), "scratch": scratchFaults(),
		"room": roomFaults(), "full": fullFaults(), "roomless": roomlessFaults(),
		"waiter": waiterFaults(), "lookup": lookupFaults(), "forget": forgetFaults(), "transaction": txFaults(),
	}
}

// store returns a new store with the fault, with so much room; 0 is no limit.
func (f fault) store(room int) idempotency.Store {
	if f.makeTx != nil {
		b := &brokenTx{referenceTx: newReferenceTx()}
		f.makeTx(b)
		return b
	}
	b := &broken{reference: newReference()}
	b.room = room
	f.make(b)
	return b
}

// brokenRules runs the rule that the fault breaks on stores with the fault, and
// returns what it found.
func brokenRules(t *testing.T, f fault) []*storetest.RuleError {
	t.Helper()
	var err error
	synctest.Test(t, func(*testing.T) {
		err = storetest.Check(
			func() idempotency.Store { return f.store(0) },
			storetest.WithFull(func() idempotency.Store { return f.store(8) }),
			storetest.WithRounds(120), storetest.OnlyRule(f.rule, f.without...),
		)
	})
	return ruleErrors(t, err)
}

// ruleErrors takes the error of Check apart.
func ruleErrors(t *testing.T, err error) []*storetest.RuleError {
	t.Helper()
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error }) //nolint:errorlint // Check's own join
	require.True(t, ok, "Check returned %T", err)
	var all []*storetest.RuleError
	for _, err := range joined.Unwrap() {
		var broken *storetest.RuleError
		require.True(t, errors.As(err, &broken), "Check returned %v", err)
		all = append(all, broken)
	}
	return all
}

// TestCatches demands that each fault is found by the rule that is meant for it,
// that the finding prints that rule, and that each case finds some fault.
func TestCatches(t *testing.T) {
	t.Parallel()
	total, ran := 0, 0
	var mu sync.Mutex
	found := map[string]bool{}
	t.Run("faults", func(t *testing.T) {
		for name, faults := range faults() {
			total += len(faults)
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				for _, f := range faults {
					t.Run(f.name, func(t *testing.T) {
						for _, broken := range mustCatch(t, f) {
							mu.Lock()
							found[broken.Case] = true
							mu.Unlock()
						}
						mu.Lock()
						ran++
						mu.Unlock()
					})
				}
			})
		}
	})
	if ran < total {
		return // some were not asked for, or failed
	}
	for _, name := range storetest.AllCases() {
		require.True(t, found[name], "no fault is found by the case %q", name)
	}
}

func mustCatch(t *testing.T, f fault) []*storetest.RuleError {
	t.Helper()
	found := brokenRules(t, f)
	require.NotEmpty(t, found, "rule %d has not caught it", f.rule)
	for _, broken := range found {
		require.Equal(t, f.rule, broken.Rule)
		require.Contains(t, broken.Error(), storetest.Rule(f.rule))
		require.NotContains(t, broken.Error(), "panic")
		t.Log(broken)
	}
	return found
}
