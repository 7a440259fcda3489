// Package memstore keeps idempotency claims and records in the memory of one
// process. It is the store for tests, for development, and for a service that
// runs as a single process and may forget its records when it restarts:
//
//	mw := idempotency.New(memstore.New(), currentUser)
//	mux.Handle("POST /payments", mw.Handler(payments))
//
// Two processes with a memstore each know nothing of one another, so behind a
// load balancer one key runs once in each of them. A restart forgets every
// record: a retry that comes after it runs the handler again. Where either
// matters, use redisstore or pgstore.
//
// # Capacity
//
// A store is limited to 256 MiB unless [WithMaxBytes] says otherwise, and to a
// number of keys only by [WithMaxEntries]. What counts against the limit of
// bytes, for every key until its record expires:
//
//	324                        for the key
//	+ len(Key) + len(Token)    the parts of the Key; a Token is 26 bytes
//	+ len(Body) + len(Reference) + 3, once there is an answer
//	+ 3 + len(name) + len(value) for every header field (1 + len(value) for
//	                           each further value, and a byte more for a text
//	                           of more than 127)
//
// of which all but the first line is rounded up as Go's allocator does, by an
// eighth at most, and to a multiple of 8 KiB above 32 KiB.
//
// The constants were measured on a 64-bit machine; the heap in use stays within
// about a tenth of the count. The garbage collector needs its share on top: with
// its default setting, plan for twice the limit. So the room a service needs is
//
//	rate of new keys × TTL × size of one
//
// A payment with a Key of 60 bytes, three header fields of 40 bytes and a body
// of 500 takes 324 + 60 + 26 + 500 + 3 + 3 × (3 + 40) = 1,042 bytes, and 1,092
// rounded up. At 5 new keys a second and the usual TTL of 24 hours that is
// 5 × 86,400 × 1,092 bytes = 472 MB: too much for the default, which lasts for
// 2.8 a second. Give such a service WithMaxBytes(512 << 20), or records that live
// for 8 hours.
//
// # When it is full
//
// A claim of a new key first has the store drop what has expired. If that makes
// no room, the claim is refused with idempotency.ErrStoreFull, and the
// middleware answers 503 without running the handler. What is in the store stays
// there: a running claim, a lapsed claim within its hold, and a live record are
// never dropped to make room, since each of them stands between a retry and a
// second execution. Replays go on, and so do claims that run: their answers are
// kept even above the limit, which they exceed by at most the answers of the
// requests that were running when it was reached.
//
// # Expiry
//
// Leases, holds and TTLs run on the monotonic clock of the process, so setting
// the host's clock changes nothing. They are exact for whoever asks for a key.
// The memory of what has expired is given back within a tenth of a second,
// with or without traffic, in slices so short that no request waits for them.
// There is no background goroutine and nothing to close: a store that is no
// longer referenced is garbage at once.
package memstore
