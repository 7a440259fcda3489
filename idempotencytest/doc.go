// Package idempotencytest tries a service's own handlers: are they fit to be run
// under a package idempotency Middleware, or do they undo its promise?
//
//	func TestPayments(t *testing.T) {
//		bank := newFakeBank()
//		idempotencytest.Hammer(t, newPayments(bank), func(key string) *http.Request {
//			return httptest.NewRequest("POST", "/payments", strings.NewReader(`{"amount":100}`))
//		}, idempotencytest.WithEffects(bank.ChargesFor))
//	}
//
// [Hammer] guards the handler with a store in memory, twice, as two processes do
// that share a store, serves it over the loopback network, and runs these scenarios,
// each with a key of its own:
//
//   - a request, its retries, and another body under its key;
//   - twins: the same request many times at once;
//   - a client that hangs up before its request is complete, before the handler
//     works, or before it is answered;
//   - a process that dies in a call of the store, one scenario for each call that a
//     request makes, before and after the call took effect; the other process takes
//     over when the lease has ended;
//   - a lease that is lost because the process stalled: the other process runs the
//     handler, and then the first one wakes up;
//   - bodies that are empty, cut off or followed by garbage, and invalid requests of
//     the test's own ([WithInvalid]).
//
// No scenario waits for a lease: Hammer ends leases by itself. It takes some
// hundred milliseconds with a quick handler, and a slow machine makes it slower and
// changes nothing else.
//
// # What is a fault
//
//   - The handler ran more often than crashes, lost leases and released keys
//     explain, or ran again although its answer was recorded.
//   - Answers to one key differ.
//   - A run had more than one side effect, or one that came after it had returned.
//   - A side effect, and then a refusal (400 to 499, or 503), a panic, or anything
//     else that frees the key, so that a retry repeats it.
//   - A request was carried out (a status under 400) and its key was freed, or it
//     had no side effect at all.
//   - With [WithOneEffect]: more than one side effect, or two answers, for a key
//     whose handler had to run again.
//
// A crash between the side effect and its record makes the handler run twice. That
// is the limit of every store outside the handler's own database, and no fault,
// unless WithOneEffect says that the handler can cope with it.
//
// # Two faults
//
// This handler has its side effect before it has looked at the request, and another
// one in a goroutine that outlives the request:
//
//	func (s *service) pay(w http.ResponseWriter, r *http.Request) {
//		key := r.Header.Get("Idempotency-Key")
//		s.bank.charge(key)
//		if err := validate(r); err != nil {
//			http.Error(w, err.Error(), http.StatusUnprocessableEntity)
//			return
//		}
//		go s.mail.receipt(key)
//		w.WriteHeader(http.StatusCreated)
//	}
//
// The client of an invalid payment is told that it was refused, and is charged. The
// receipt is mailed, or not, after the answer has been recorded: where it fails, no
// retry will ever mail it. Counting the charges, Hammer reports
//
//	idempotencytest: a body that is cut off: run 1 had its side effect and then refused the request with 422
//		key 0d9ee2a4-6c0b-4c0c-b9a7-6ad1c1b7e3b5:
//		  1. attempt 1, the first, was sent to process 1
//		  2. run 1 of the handler began, for attempt 1 (side effects so far: 0)
//		  3. run 1 returned (side effects so far: 1)
//		  4. attempt 1 was answered 422 "no amount" (the Middleware: executed)
//		...
//
// and counting the receipts
//
//	idempotencytest: twins: the handler went on after it had returned: run 1 had 0 side effects when it returned, and 1 side effect later
//		...
//
// # What it does not find
//
// It sees side effects only if they are counted, and one kind of them at a time. A
// goroutine that has its side effect later than [WithGrace] after the last answer is
// not found. The store is in memory: handlers that write in the transaction of a
// TxStore have to be tried with their database.
package idempotencytest
