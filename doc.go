// Package idempotency is net/http middleware that makes retried POST and PATCH
// requests safe. A client sends an Idempotency-Key; the first request with it runs
// the handler and its answer is recorded, and every repeat gets exactly that
// answer, so nothing is charged, mailed or ordered twice.
//
//	mw := idempotency.New(memstore.New(), currentUser)
//	mux.Handle("POST /payments", mw.Handler(payments))
//
// currentUser is a [UserFunc]: it names the authenticated caller, whose keys are
// nobody else's.
//
// # The promise
//
//  1. For one key at most one request runs the handler at a time, over all
//     processes that share the store, as long as the runner can reach the store
//     within its lease, its handler ends with its context, and the store keeps
//     what it acknowledged.
//  2. Once a handler's answer is recorded, every later request with that key gets
//     exactly that status and those body bytes (or, where the body was too large
//     to keep, a refusal), and the handler does not run again until the record
//     expires.
//  3. A finished run is recorded even if the client has gone. The handler itself
//     keeps running when the client hangs up.
//  4. The handler never runs without holding a claim, unless [WithFailOpen] was
//     asked for, and then the answer says so.
//  5. Only the current owner of a claim can extend, complete or release it.
//  6. If recording fails, the first caller still gets the handler's answer and the
//     claim is not released.
//  7. Only complete answers are recorded, and a record never changes once made.
//     Panics pass through unchanged.
//  8. A request whose body cannot be read in full is not executed and leaves
//     nothing behind. The decision is taken after the body has been read, on the
//     store's state at that moment.
//  9. A request carries exactly one key. Different users, endpoints and keys never
//     share a record, whatever characters they hold.
//  10. Every byte the handler sends, by whatever method of the ResponseWriter, is in
//     the record.
//  11. Twins sent by transports and proxies are handled like a client's retries.
//
// # The limit
//
// With a store outside the handler's own database, a process that dies after the
// side effect and before the record leaves an unknown outcome. What happens then
// is yours to choose:
//
//   - The key is free again after one lease, and a retry runs the handler: at least
//     once. This is the default.
//   - The key stays blocked, 409 outcome_unknown, until an operator frees it or a
//     [Reconciler] settles it: [WithAtMostOnce].
//   - Record and business rows commit in one PostgreSQL transaction: a [TxStore].
//     That is exactly once for the rows written in that transaction; calls to other
//     systems carry a key from [Execution.Derive].
//
// # What clients see
//
//   - First request: the handler's answer.
//   - Repeat: the same status, headers and body, and "Idempotent-Replayed: true".
//   - The first request still runs: 409 request_in_progress and Retry-After, or the
//     answer a little later ([WithWait]).
//   - The key was used with another body or query: 409
//     idempotency_key_reused_with_different_params ([WithMismatchStatus]).
//   - A malformed or repeated key header: 400 idempotency_key_invalid.
//   - The store is out of reach: 503 store_unavailable; nothing has run.
//
// Refusals are problem documents of RFC 9457; see [Code] for all of them and
// [WriteProblem] for their members. The key header follows
// draft-ietf-httpapi-idempotency-key-header-07: a String of RFC 9651, which may
// come without its quotation marks.
//
// # Choosing a store
//
// Package memstore keeps records in the memory of one process: for tests,
// development and services of one instance. Package redisstore keeps them in Redis
// or Valkey, for any number of processes. Package pgstore keeps them in PostgreSQL,
// with leases, or in one transaction with the handler's own rows. Whatever else
// keeps the contract of [Store] will do; package storetest tests it.
//
// # Other packages
//
// Package client is the other side: an http.RoundTripper that adds keys and
// repeats what can be repeated. Package idempotencytest tries a service's own
// handlers under retries, hang-ups and crashes. Packages otelobserver and
// slogobserver make metrics and logs of what an [Observer] is told.
//
// # Failure modes
//
// A store that fails before the handler has run refuses the request with 503. One
// that fails after it does not keep the client from the handler's answer:
// recording goes on behind the request, the lease still extended, and
// [Middleware.Drain] waits for it at shut-down. A handler whose lease cannot be
// extended is told by its context, whose cause is then [ErrClaimLost]. All of it is
// logged ([WithLogger]) and reported ([WithObserver]).
//
// # Order among other middleware
//
// Authentication and rate limiting belong outside, so that a replay is given only
// to those who may see it. So do compression, which then fits each client, and
// http.TimeoutHandler: inside, its 503 would be the recorded answer's rival while
// the work still runs. A recovery middleware works on either side; inside, its 500
// is an answer like any other and is recorded.
package idempotency
