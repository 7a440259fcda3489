package storetest_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/storetest"
)

func smallReference() idempotency.Store {
	s := newReference()
	s.room = 8
	return s
}

func TestRun(t *testing.T) {
	t.Parallel()
	newStore := func(*testing.T) idempotency.Store { return newReference() }
	t.Run("in bubbles", func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, newStore, storetest.WithSynctest(), storetest.WithFull(smallReference), storetest.WithRounds(200))
	})
	t.Run("on the real clock", func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, newStore, storetest.WithFull(smallReference), storetest.WithRounds(200))
	})
}

// brokenRun is set in the process that TestRunPrintsTheRule starts.
const brokenRun = "STORETEST_BROKEN_RUN"

// TestRunOfBrokenStore fails, in a process of its own.
func TestRunOfBrokenStore(t *testing.T) {
	if os.Getenv(brokenRun) == "" {
		return // TestRunPrintsTheRule is the test
	}
	late := completeFaults()[7]
	require.Equal(t, "late complete is refused", late.name)
	storetest.Run(t, func(*testing.T) idempotency.Store { return late.store(0) },
		storetest.WithSynctest(), storetest.WithRounds(10))
}

func TestRunPrintsTheRule(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestRunOfBrokenStore$")
	cmd.Env = append(os.Environ(), brokenRun+"=1")
	out, err := cmd.CombinedOutput()
	require.Error(t, err, "Run has passed a broken store")
	require.Contains(t, string(out), "--- FAIL: TestRunOfBrokenStore/"+
		"rule_07:_complete_only_when_nobody_else_has_the_key/late_complete_after_lapse")
	require.Contains(t, string(out), "rule 7: "+storetest.Rule(7))
	require.NotContains(t, string(out), "--- FAIL: TestRunOfBrokenStore/rule_01")
}
