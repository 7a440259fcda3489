package idempotency

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"time"
)

// The errors of the store contract and of a run.
var (
	// ErrClaimLost says that the claim belongs to somebody else now: a Store
	// returns it from Extend and Complete, and it is the cause with which a
	// handler's context ends when its claim is lost.
	ErrClaimLost = errors.New("idempotency: the claim is lost, another owner holds the key")

	// ErrStoreFull is returned by Store.Claim when there is no room for a new
	// claim. Nothing was claimed. The request is refused with 503, or runs
	// unguarded under [WithFailOpen].
	ErrStoreFull = errors.New("idempotency: the store is full")

	// ErrCorrupt is returned by a Store whose record cannot be read. The
	// request is refused with 500 and the code record_corrupt, the handler does
	// not run, and the record is left for an operator to look at.
	ErrCorrupt = errors.New("idempotency: the record cannot be read")

	// ErrMaxExecution is the cause with which a handler's context ends when the
	// run takes longer than [WithMaxExecution] allows.
	ErrMaxExecution = errors.New("idempotency: the run took longer than the longest execution allowed")

	// ErrNotExecuted is returned by a [Reconciler] that has found out that the
	// operation never took place: the handler then runs.
	ErrNotExecuted = errors.New("idempotency: the operation was not executed")
)

// Store keeps claims and records. memstore, redisstore and pgstore are the
// stores of this module; package storetest tests any other against the rules
// below, one case a rule.
//
// The contract:
//
//  1. Of concurrent Claims for one key with different tokens exactly one gets
//     nil.
//  2. Claim again with the token that holds the key returns nil (a lost reply
//     may be repeated) and does not shorten the lease; a lapsed claim within
//     its Hold counts as held by its token, and its own Claim makes it live
//     again. Claim with the token that completed the key returns the record.
//  3. A losing Claim returns the holder's token, fingerprint, response if there
//     is one, and the time left, and changes nothing.
//  4. A lapsed claim without a Hold (or past it) and an expired record are
//     absent. Leases, Holds and TTLs run on the store's clock and are the
//     writer's, kept with the record: no reader computes them from its own
//     settings.
//  5. Complete replaces the claim in one atomic step: there is no instant at
//     which the key looks absent or half done. Later Claims get exactly the
//     bytes that were stored: empty, nil, binary, invalid UTF-8.
//  6. Complete by the same token again succeeds and changes nothing (a lost
//     reply may be repeated).
//  7. Complete returns ErrClaimLost if, and only if, another token holds the
//     key or has completed it. A claim that lapsed and that nobody took is
//     completed late: its answer is true, and a second run is the worse
//     outcome.
//  8. Extend sets the lease, and the Hold, of the caller's running claim, also
//     of one that has lapsed into its Hold. It never creates: if the claim is
//     gone or another's it returns ErrClaimLost. After the caller's own
//     Complete it returns nil and changes nothing.
//  9. Release removes a running or lapsed claim of that token; in every other
//     case it changes nothing and returns nil.
//  10. A lapsed claim within its Hold is returned with Lapsed set. Only a Claim
//     whose Replaces is its token takes it over, atomically, one of n.
//  11. A context that is already done makes no change. Any other error means
//     "unknown, maybe done"; the caller may repeat the call.
//  12. A Store is safe for concurrent use. What it is given and what it gives
//     shares no memory with what it keeps.
//  13. Neither a running claim nor a live record is ever evicted to make room;
//     a full store refuses new claims with ErrStoreFull, and Complete never
//     fails for want of room. Distinct Keys never meet, whatever is in them.
//
// Contexts carry the values of the request and a deadline ([WithStoreTimeout]);
// a client that hangs up does not cancel them.
type Store interface {
	// Claim takes c.Key for c.Token. It returns nil, nil when c holds the key
	// now, and the record of whoever holds it otherwise. The claim lives for
	// lease, counted from now on the store's clock, and for c.Hold after that
	// blocks its key as lapsed. It returns ErrStoreFull when there is no room,
	// ErrCorrupt when the record cannot be read.
	//
	// When c.Replaces is not empty and is the token of a lapsed claim within its
	// Hold, c takes that claim over; a claim in any other state is treated as if
	// Replaces were empty.
	Claim(ctx context.Context, c Claim, lease time.Duration) (*Record, error)

	// Extend gives the claim of c.Token a fresh lease, counted from now, and the
	// Hold c.Hold. It returns ErrClaimLost if c.Token holds no claim on c.Key.
	Extend(ctx context.Context, c Claim, lease time.Duration) error

	// Complete makes resp the record of c.Key for ttl, counted from now. It
	// returns ErrClaimLost if another token holds the key or has completed it.
	Complete(ctx context.Context, c Claim, resp *Response, ttl time.Duration) error

	// Release frees c.Key if c.Token holds it and has not completed it.
	Release(ctx context.Context, c Claim) error
}

// Claim is one attempt at a key.
type Claim struct {
	Key         Key
	Token       string        // unique to this attempt at the key
	Fingerprint Fingerprint   // of the request
	Hold        time.Duration // how long the key stays blocked after the lease has lapsed; 0: not at all
	Replaces    string        // token of a lapsed, held claim that this one may take over
}

// Record is what a store holds for a key: a claim in progress, a lapsed claim
// that still blocks its key, or a completed answer.
type Record struct {
	Token       string        // the owner's; "" where the holder cannot be seen (TxStore)
	Fingerprint Fingerprint   // of the request that claimed the key
	Response    *Response     // nil while in progress or lapsed
	Lapsed      bool          // the lease is over and only the Hold still blocks the key
	ExpiresIn   time.Duration // what is left of the lease, the Hold or the TTL, whichever is running; > 0
}

// Response is a recorded answer.
type Response struct {
	Status int

	// Header is what the handler set, less the unrecorded headers (see
	// [WithUnrecordedHeaders]). A name without values is one the handler took
	// away: a header of an outer layer that it deleted, or one it kept net/http
	// from adding, such as a nil Content-Type. A store keeps such names.
	Header http.Header

	Trailer   http.Header
	Body      []byte
	BodyLost  bool      // the body was larger than the limit and was not kept
	Reference string    // the application's own id for the operation, see Execution.SetReference
	Time      time.Time // when the handler finished, by its host's clock; for people, never for expiry
}

// Clone returns a copy that shares no memory with r. Stores that keep a
// Response in memory need it for rule 12; nil gives nil.
func (r *Response) Clone() *Response {
	if r == nil {
		return nil
	}
	c := *r
	c.Header = r.Header.Clone()
	c.Trailer = r.Trailer.Clone()
	c.Body = bytes.Clone(r.Body)
	return &c
}

// Waiter is what a Store may have besides: a way to be told that a claim has
// ended, so that twins that wait ([WithWait]) need not poll. Wait returns nil
// when the record of key may have changed, at once if no claim is running, and
// at the latest when the claim's lease lapses. It returns an error when ctx
// ends, or when it cannot watch the key; the caller then polls.
type Waiter interface {
	Wait(ctx context.Context, key Key) error
}

// Inspector is for operators: it finds out about a key, and frees it.
type Inspector interface {
	// Lookup returns what the store holds for key, and nil, nil when it holds
	// nothing. Nobody's claim or record is changed by it.
	Lookup(ctx context.Context, key Key) (*Record, error)

	// Forget removes whatever the store holds for key, a running claim included:
	// the next request with that key runs the handler. A handler that is still
	// running takes the key again at its next heartbeat, unless another request
	// has it by then; make sure that it is dead. Forgetting an absent key is no
	// error.
	Forget(ctx context.Context, key Key) error
}

// TxStore is a Store whose claim is a database transaction that the handler
// writes its own rows in, so that the record and those rows become visible
// together or not at all.
//
// Claim begins the transaction and takes the key, Bind puts the transaction
// into the handler's context, Complete writes the record and commits, Release
// rolls back. A crash rolls back by itself, so there is no lease: Extend touches
// no connection and returns nil. What follows from that:
//
//   - A holder that has not committed cannot be seen. A twin gets a Record with
//     an empty Token and the twin's own fingerprint, which reads "in progress".
//   - Any error of Complete means that the work may have been undone. The answer
//     is withheld, the client gets 503 not_committed, and the same key can be
//     tried again and finds the truth. Complete of a claim that was never bound
//     is an error, so that a decorator which hides Bind cannot turn the promise
//     off silently.
//   - The handler cannot commit or roll back the transaction itself.
//   - A Claim that returned a Record, or failed, has given its connection back;
//     Complete and Release give it back on every way out.
//   - An answer larger than [WithMaxResponseBytes] is buffered whole, committed,
//     sent, and recorded without its body. The handler's writer cannot flush.
//   - [WithAtMostOnce], [WithReconciler] and [WithFailOpen] make no sense with a
//     TxStore and panic in [New].
type TxStore interface {
	Store

	// Bind returns ctx with the transaction of c in it.
	Bind(ctx context.Context, c Claim) context.Context
}
