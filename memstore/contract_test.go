package memstore_test

import (
	"testing"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/memstore"
	"github.com/retrysafe/idempotency/storetest"
)

func newFull() idempotency.Store { return memstore.New(memstore.WithMaxEntries(8)) }

func newStore(*testing.T) idempotency.Store { return memstore.New() }

// TestContract runs the store contract on a fake clock.
func TestContract(t *testing.T) {
	storetest.Run(t, newStore, storetest.WithSynctest(), storetest.WithFull(newFull))
}

// TestContractOnTheRealClock runs it once more with nothing faked.
func TestContractOnTheRealClock(t *testing.T) {
	t.Parallel()
	storetest.Run(t, newStore, storetest.WithFull(newFull), storetest.WithRounds(200))
}

func BenchmarkStore(b *testing.B) {
	storetest.Bench(b, func(*testing.B) idempotency.Store { return memstore.New() })
}
