package storetest_test

import (
	"testing"

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
