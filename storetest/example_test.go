package storetest_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/memstore"
	"github.com/retrysafe/idempotency/storetest"
)

// A test of a store that lives in the process: each case runs in a bubble of
// testing/synctest, where waiting takes no time.
func ExampleRun() {
	var t *testing.T // the T of your test
	storetest.Run(t, func(*testing.T) idempotency.Store {
		return memstore.New()
	}, storetest.WithSynctest(), storetest.WithFull(func() idempotency.Store {
		return memstore.New(memstore.WithMaxEntries(8))
	}))
}

// Check may be called inside a bubble, where the whole of it takes no time.
func ExampleCheck() {
	var t *testing.T // the T of your test
	synctest.Test(t, func(t *testing.T) {
		err := storetest.Check(func() idempotency.Store { return memstore.New() })
		if err != nil {
			t.Error(err)
		}
	})
}

// Without package testing, on a store whose clock is moved by a function.
func ExampleCheck_fakeClock() {
	var store *reference // a store with a clock that can be set
	err := storetest.Check(func() idempotency.Store {
		store = newReference()
		return store
	}, storetest.WithSleep(func(d time.Duration) { store.advance(d) }), storetest.WithRounds(100))
	fmt.Println(err)
	// Output: <nil>
}
