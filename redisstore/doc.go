// Package redisstore keeps the claims and records of package idempotency in
// Redis 6.2 and newer or Valkey: one server, a master that Sentinels name, or a
// Cluster.
//
//	store := redisstore.New(client)
//	if err := store.Check(ctx); err != nil {
//		log.Fatal(err) // says what is wrong with the server, and why it matters
//	}
//	mw := idempotency.New(store, currentUser)
//
// A first request takes two round trips, a replay and a conflict one. A reply
// that gets lost on the way does no harm: go-redis repeats a command whose reply
// it has not seen, and the Store knows its own claim by its token. Every call
// returns when its context ends, whatever the time-outs and retries of the
// client are; it is a little cheaper with a client whose ContextTimeoutEnabled is
// set. All times are the server's.
//
// # What the server must be like
//
// A claim that the server forgets can be given out again, and the handler runs
// twice. So the promise of package idempotency holds as far as the server keeps
// what it has acknowledged:
//
//   - Eviction. With any maxmemory-policy but noeviction a server that is full
//     throws away claims and records, with volatile-ttl the running claims
//     first. Give the Store a server, or at least a policy, of its own: one that
//     is shared with a cache will evict. With noeviction a full server refuses
//     new claims (ErrStoreFull), goes on replaying, extending and releasing, and
//     cannot record; the record is tried again until there is room.
//   - Restart. Without an append-only file a restart forgets everything, or
//     everything since the last snapshot. With appendonly yes and the default
//     appendfsync everysec a killed process or a failed machine loses up to the
//     last two seconds: while a flush is under way Redis acknowledges what it has
//     not yet written. appendfsync always loses nothing, at about a tenth of the
//     throughput.
//   - Failover. Replication is asynchronous. What a master has acknowledged and
//     not yet sent when it dies is lost when a replica takes over: a claim, so
//     that a twin may run beside the first run, or a record, so that a later
//     retry runs again. This is normally the last few milliseconds, and as long
//     as the replica lags. It cannot be closed, only made rarer, by
//     min-replicas-to-write and min-replicas-max-lag, with which a master that
//     has lost its replicas refuses claims. The Store has no option for WAIT: it
//     makes a claim take half as long again to three times as long, does not
//     undo the write when the replica does not answer, and does not oblige
//     Sentinel or Cluster to promote the replica that did. Where a second run is
//     not to be borne, use pgstore.NewTx.
//   - Replicas. Claims, replays and waits are decided by the master, also with a
//     client built with ReadOnly, RouteRandomly or RouteByLatency.
//   - A redis.Ring moves the keys of a server that does not answer to another
//     one, which knows nothing of their claims. Check refuses it.
//
// After the death of a master a go-redis ClusterClient by itself asks for the new
// one only once a minute; the Store makes it ask whenever nobody has answered.
//
// [Store.Check] looks at all of this at start-up, as far as the server lets it.
//
// # What is stored
//
// A key reads
//
//	idempotency:{3f1c22ab}alice|POST /payments|4711
//
// prefix, a hash tag made of what follows, user, endpoint, key. The tag alone
// decides the slot in a cluster, whatever braces a user may send. The value is a
// string that begins with P (in progress) or C (completed) and the owner's
// token; then come a version, the fingerprint, and the answer, header names and
// values and the body as they were sent. GETRANGE key 0 300 shows it to an
// operator; [Store.Lookup] reads it and [Store.Forget] removes it. The expiry is
// the key's own. A record larger than 4 KiB lies for an instant under the same
// key with "|new|" and the token behind it; what a crash leaves there goes after
// a minute.
//
// A value that cannot be read, or another type under the key, gives
// [idempotency.ErrCorrupt], and is left alone.
//
// # Rolling deploys
//
// Each release reads what the one before it wrote, and writes only what the one
// before it can read: a new form of the value is read one release before it is
// written. So the processes of two neighbouring releases can share a server,
// during a deploy and after one that was rolled back. Two releases apart, go
// through the one between.
//
// # Permissions
//
// A user with access to the keys of the prefix (~idempotency:*) needs the
// commands
//
//	set get getrange pttl pexpire del exists rename eval evalsha
//
// besides what the client itself sends (hello, auth, select, client; in a
// cluster also cluster and command). Waiting twins hear at once with
// publish, subscribe and the channel &idempotency:hints, and poll without. Check
// reads more with info and config|get, and asks for nothing if it may not.
// Redis 7 notes a refused publish in its ACL log.
//
// # Waiting
//
// Under idempotency.WithWait all twins that wait for one key in one process
// share one poller, which asks every 20 ms at first and every 200 ms in the end.
// With a *redis.Client a subscription, one for the Store and only while somebody
// waits, tells them within a millisecond; polling goes on beside it, every 500
// ms in the end, so a subscription that is slow or dead costs no more than that.
// With a Cluster there is no subscription, since every message would go to every
// node.
package redisstore
