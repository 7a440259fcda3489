// Package pgstore keeps the claims and records of package idempotency in
// PostgreSQL 13 and newer, through pgx.
//
//	store := pgstore.NewTx(pool)
//	if err := store.Migrate(ctx); err != nil { … }
//	mw := idempotency.New(store, currentUser)
//	mux.Handle("POST /payments", mw.Handler(payments))
//
// and in the handler, which must use that transaction for what it writes:
//
//	_, err := pgstore.Tx(r.Context()).Exec(r.Context(), "INSERT INTO ledger …")
//
// # New or NewTx
//
// [NewTx], exactly once: the handler's rows and the record of its answer commit
// in one transaction. A process that dies at any moment leaves both or neither,
// and the retry finds out which. It is for handlers whose effect is rows in this
// database. It holds a connection for as long as a handler runs, so handlers
// should be short, and the pool as large as the number of them that run at once;
// a handler that takes a second connection from the same pool can starve it. A
// 5xx and a panic roll back, every other answer commits, and an answer whose
// commit failed is withheld: 503 not_committed, to be tried again with the same
// key. When the connection breaks, the server rolls back and the key is free,
// while the handler may not know it before its next statement: a retry can run
// beside it then, and one of the two at most commits. A handler cannot flush. A
// handler that also calls other systems gives them a key from
// [idempotency.Execution.Derive], since no transaction reaches there.
//
// [New], at least once, or at most once under [idempotency.WithAtMostOnce]: the
// record is kept beside the handler's work. It is for handlers whose effect is
// elsewhere, and for long ones: no connection is held while they run. A process
// that dies between the work and the record leaves an outcome that nobody knows.
//
// Both may share one table, as when one deployment replaces the other. A key in
// use by NewTx then makes New wait until that transaction ends, or until its own
// context does.
//
// Code that uses database/sql can use New, with a pgx pool beside it. There is no
// NewTx for it: a *sql.Tx cannot be made from a transaction that is open already.
//
// # Table
//
// Migrate makes the table, or [Schema] does in migrations of your own. Its
// columns are for reading; Schema explains them. What became of a key:
//
//	SELECT status, status_code, reference, created_at, completed_at, expires_at, replays, last_replayed_at
//	FROM idempotency_keys WHERE idempotency_key = 'order-1' AND user_id = 'alice';
//
// Claims whose owner is gone. With a hold these block their key until somebody
// has found out what happened; Forget then frees it:
//
//	SELECT idempotency_key, endpoint, user_id, created_at, expires_at AS lapsed_at, free_at
//	FROM idempotency_keys WHERE status = 'in_progress' AND expires_at <= now() ORDER BY expires_at;
//
// Operations that were asked for again and not carried out again, under
// [WithReplayAudit], by the day of the last time:
//
//	SELECT date_trunc('day', last_replayed_at) AS day, count(*) AS operations, sum(replays) AS replays
//	FROM idempotency_keys WHERE replays > 0 GROUP BY day ORDER BY day;
//
// A header that was sent:
//
//	SELECT response_headers->'Location'->>0 FROM idempotency_keys WHERE reference = 'payment-1';
//
// # Sweeping
//
// What has expired counts as absent, but its row stays until it is swept or its
// key is claimed again. Run the sweeper in every process:
//
//	go store.SweepEvery(ctx, time.Minute, 1000, func(err error) { slog.Error("sweep", "err", err) })
//
// or let the server do it, with the extension pg_cron:
//
//	SELECT cron.schedule('idempotency', '* * * * *', $$DELETE FROM idempotency_keys WHERE ctid = ANY (ARRAY(
//	  SELECT ctid FROM idempotency_keys WHERE free_at <= now() LIMIT 10000 FOR UPDATE SKIP LOCKED))$$);
//
// FOR UPDATE is what makes it safe beside claims; a DELETE without it can take a
// key that is being claimed at that moment. Both destroy the proof that an
// operation took place; [WithHistory] keeps it in a second table, where that line
// does not.
//
// # Connections
//
// Through a pooler in transaction mode, such as PgBouncer, use
// pgx.QueryExecModeExec, pgx.QueryExecModeCacheDescribe or
// pgx.QueryExecModeSimpleProtocol as the pool's DefaultQueryExecMode. pgx's
// default, QueryExecModeCacheStatement, is the fastest, and needs a direct
// connection or a pooler that knows prepared statements (PgBouncer 1.21 with
// max_prepared_statements). A pooler in statement mode cannot be used.
//
// Only the primary will do: a claim that was decided by a replica, which lags,
// is no claim. With asynchronous replication a failover forgets the last
// commits, claims and records among them, and their keys run again; with NewTx
// the rows of the handler are forgotten along with them, so the two agree.
// Synchronous replication closes that gap.
//
// synchronous_commit = off makes claiming and completing several times faster
// and lets a crash of the server, not of a client, forget the last fraction of a
// second. With NewTx that again concerns record and rows alike, so the client
// holds an answer to work that is gone; with New a key can run twice. Leave it on
// for money. An UNLOGGED table is emptied by a crash and is no place for records.
//
// Isolation levels above read committed work, and cost retries: serialization
// failures and deadlocks in a call of the store are repeated inside it, up to
// eight times.
package pgstore
