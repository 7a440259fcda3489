package storetest_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/storetest"
)

// store returns a new store with the fault.
func (f fault) store(room int) *broken {
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
			storetest.WithRounds(200), storetest.OnlyRule(f.rule),
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
// and that the finding prints that rule.
func TestCatches(t *testing.T) {
	t.Parallel()
	groups := map[string][]fault{
		"claim": claimFaults(), "loser": loserFaults(), "time": timeFaults(), "record": recordFaults(),
		"complete": completeFaults(), "extend": extendFaults(), "release": releaseFaults(),
		"takeover": takeoverFaults(), "context": contextFaults(), "memory": memoryFaults(),
		"room": roomFaults(), "full": fullFaults(), "waiter": waiterFaults(), "inspector": inspectorFaults(),
	}
	for name, faults := range groups {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, f := range faults {
				t.Run(f.name, func(t *testing.T) {
					found := brokenRules(t, f)
					require.NotEmpty(t, found, "rule %d has not caught it", f.rule)
					for _, broken := range found {
						require.Equal(t, f.rule, broken.Rule)
						require.Contains(t, broken.Error(), storetest.Rule(f.rule))
						require.NotContains(t, broken.Error(), "panic")
						t.Log(broken)
					}
				})
			}
		})
	}
}
