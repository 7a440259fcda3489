// Package storetest tests implementations of [idempotency.Store] against the
// store contract: its 13 rules, one group of cases each, and what a store may
// have besides ([idempotency.Waiter], [idempotency.Inspector],
// [idempotency.TxStore]).
//
// A store of your own is tested in a few lines:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) idempotency.Store {
//			return mystore.New(openDatabase(t))
//		})
//	}
//
// Each case is a subtest with a name that says what is tried, such as
//
//	rule 07: complete only when nobody else has the key/late complete after lapse
//
// and a failure prints the sentence of the rule and what was seen instead. Run
// the tests with -race: rule 12 is about memory that is shared.
//
// # Time
//
// Leases, Holds and TTLs must run out, so time has to pass. There are three ways:
//
//   - The real clock, by default. Short leases are one tick long ([WithTick],
//     50 ms), and everything together takes some seconds. A case in which the
//     machine stalled for longer than a lease gives no verdict and is begun anew
//     with a longer tick, so a slow machine does not fail a store.
//   - A clock of the store's that can be set: [WithSleep].
//   - The fake clock of testing/synctest, for stores that live in the process:
//     [WithSynctest] runs each case in a bubble. Run itself cannot be called
//     inside one, since subtests cannot be started there; [Check] can.
//
// # Stores with a transaction
//
// A TxStore has no leases, and a holder that has not committed cannot be seen.
// The cases that need these are left out, the log of their rule names them, and
// the cases whose names begin with "in a transaction" test what holds instead.
//
// # Bounded stores
//
// What rule 13 says of a full store can be tested only on a small one; hand one
// over with [WithFull].
package storetest
