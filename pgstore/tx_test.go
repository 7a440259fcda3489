package pgstore_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/pgstore"
)

// txFixture is a TxStore, and a table for the handler's rows.
type txFixture struct {
	fixture
	*pgstore.TxStore
	ledger fixture
}

func newTxFixture(t *testing.T, pool *pgxpool.Pool, opts ...pgstore.Option) txFixture {
	t.Helper()
	f := newFixture(t, pool)
	ledger := fixture{pool: pool, sql: quoted(newName(t))}
	ledger.exec(t, "CREATE TABLE %s (key text NOT NULL, amount bigint NOT NULL)")
	return txFixture{fixture: f, TxStore: f.txStore(opts...), ledger: ledger}
}

// begin claims a new key and returns what its handler would get.
func (f txFixture) begin(t *testing.T) (context.Context, pgx.Tx, idempotency.Claim) {
	t.Helper()
	c := claimed(t, f.TxStore)
	ctx := f.Bind(t.Context(), c)
	tx := pgstore.Tx(ctx)
	require.NotNil(t, tx)
	return ctx, tx, c
}

func (f txFixture) pay(ctx context.Context, tx pgx.Tx, c idempotency.Claim) error {
	_, err := tx.Exec(ctx, "INSERT INTO "+f.ledger.sql+" VALUES ($1, 100)", c.Key.Value)
	return err
}

// rows is how many ledger rows of the key are visible.
func (f txFixture) rows(t *testing.T, c idempotency.Claim) int {
	t.Helper()
	return query[int](t, f.ledger, "SELECT count(*) FROM %s WHERE key = $1", c.Key.Value)
}

// requireGone requires that nothing of the claim is left: no row, no record, no
// connection.
func (f txFixture) requireGone(t *testing.T, c idempotency.Claim) {
	t.Helper()
	requireReturned(t, f.pool)
	require.Zero(t, f.rows(t, c))
	rec, err := f.Lookup(t.Context(), c.Key)
	require.NoError(t, err)
	require.Nil(t, rec)
}

func TestTxCommitsRecordAndRowsTogether(t *testing.T) {
	t.Parallel()
	f := newTxFixture(t, newPool(t, 4))
	ctx, tx, c := f.begin(t)
	require.NoError(t, f.pay(ctx, tx, c))
	require.Zero(t, f.rows(t, c))
	rec, err := f.Claim(t.Context(), again(c), lease)
	require.NoError(t, err)
	require.Equal(t, &idempotency.Record{Fingerprint: c.Fingerprint, ExpiresIn: lease}, rec)
	require.NoError(t, f.Extend(ctx, c, lease))
	require.NoError(t, f.Complete(ctx, c, newResponse("x"), ttl))
	require.Equal(t, 1, f.rows(t, c))
	requireReplay(t, f.TxStore, c, newResponse("x"))
	require.NoError(t, f.Complete(ctx, c, newResponse("y"), ttl), "again")
	require.ErrorIs(t, f.Complete(ctx, again(c), newResponse("y"), ttl), idempotency.ErrClaimLost)
	require.Nil(t, pgstore.Tx(t.Context()))
	requireReturned(t, f.pool)
}

func TestTxReleaseRollsBack(t *testing.T) {
	t.Parallel()
	f := newTxFixture(t, newPool(t, 4))
	ctx, tx, c := f.begin(t)
	require.NoError(t, f.pay(ctx, tx, c))
	done, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, f.Release(done, c), "a connection is given back on a context that has ended")
	f.requireGone(t, c)
	require.NoError(t, f.Release(t.Context(), c), "unknown by now")
	require.EqualValues(t, 1, f.pool.Stat().TotalConns(), "rolled back, not closed")
}

// What the claim's transaction needs of a context is over when Claim returns.
func TestTxOutlivesTheClaimsContext(t *testing.T) {
	t.Parallel()
	f := newTxFixture(t, newPool(t, 2))
	c := newClaim()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	rec, err := f.Claim(ctx, c, lease)
	requireHeld(t, rec, err)
	cancel()
	ctx = f.Bind(t.Context(), c)
	require.NoError(t, f.pay(ctx, pgstore.Tx(ctx), c))
	require.NoError(t, f.Complete(ctx, c, newResponse("x"), ttl))
	require.Equal(t, 1, f.rows(t, c))
}

// Ways in which a handler can spoil its transaction: Complete fails, nothing is
// left, and the key can be tried again.
func TestTxSpoiltByItsHandler(t *testing.T) {
	t.Parallel()
	f := newTxFixture(t, newPool(t, 4))
	tests := map[string]func(ctx context.Context, tx pgx.Tx, t *testing.T){
		"swallowed error": func(ctx context.Context, tx pgx.Tx, t *testing.T) {
			_, err := tx.Exec(ctx, "SELECT 1/0")
			require.Error(t, err)
		},
		"rows left open": func(ctx context.Context, tx pgx.Tx, t *testing.T) {
			rows, err := tx.Query(ctx, "SELECT generate_series(1, 1000)")
			require.NoError(t, err)
			require.True(t, rows.Next())
		},
		"a row not scanned": func(ctx context.Context, tx pgx.Tx, _ *testing.T) { tx.QueryRow(ctx, "SELECT 1") },
		"a batch left open": func(ctx context.Context, tx pgx.Tx, _ *testing.T) {
			b := &pgx.Batch{}
			b.Queue("SELECT 1")
			tx.SendBatch(ctx, b)
		},
		"ROLLBACK as text": func(ctx context.Context, tx pgx.Tx, t *testing.T) {
			_, err := tx.Exec(ctx, "ROLLBACK")
			require.NoError(t, err)
		},
		"ROLLBACK and BEGIN as text": func(ctx context.Context, tx pgx.Tx, t *testing.T) {
			_, err := tx.Exec(ctx, "ROLLBACK; BEGIN; INSERT INTO "+f.ledger.sql+" VALUES ('other', 1)")
			require.NoError(t, err)
		},
		"a cancelled statement": func(ctx context.Context, tx pgx.Tx, t *testing.T) {
			ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			defer cancel()
			_, err := tx.Exec(ctx, "SELECT pg_sleep(10)")
			require.Error(t, err)
		},
		"a backend that was terminated": func(ctx context.Context, tx pgx.Tx, t *testing.T) {
			_, err := tx.Exec(ctx, "SELECT pg_terminate_backend(pg_backend_pid())")
			require.Error(t, err)
		},
		"a deferred constraint": func(ctx context.Context, tx pgx.Tx, t *testing.T) {
			_, err := tx.Exec(ctx, `CREATE TEMP TABLE once (id int UNIQUE DEFERRABLE INITIALLY DEFERRED) ON COMMIT DROP;
				INSERT INTO once VALUES (1), (1)`)
			require.NoError(t, err)
		},
	}
	for name, spoil := range tests {
		t.Run(name, func(t *testing.T) {
			ctx, tx, c := f.begin(t)
			require.NoError(t, f.pay(ctx, tx, c))
			spoil(ctx, tx, t)
			err := f.Complete(ctx, c, newResponse("x"), ttl)
			require.Error(t, err)
			require.True(t, strings.HasPrefix(err.Error(), "pgstore: complete: "), err)
			if name == "swallowed error" {
				require.ErrorContains(t, err, "a statement of the handler failed")
			}
			// The server sees a connection that was closed a moment later.
			var rec *idempotency.Record
			require.Eventually(t, func() bool {
				c = again(c)
				rec, err = f.Claim(t.Context(), c, lease)
				return err != nil || rec == nil
			}, 15*time.Second, 10*time.Millisecond)
			requireHeld(t, rec, err)
			require.NoError(t, f.Release(t.Context(), c))
			f.requireGone(t, c)
		})
	}
}

// A handler that commits by itself is told so, and its work is recorded.
func TestTxCommittedByItsHandler(t *testing.T) {
	t.Parallel()
	f := newTxFixture(t, newPool(t, 4))
	ctx, tx, c := f.begin(t)
	require.NoError(t, f.pay(ctx, tx, c))
	_, err := tx.Exec(ctx, "COMMIT")
	require.NoError(t, err)
	require.ErrorContains(t, f.Complete(ctx, c, newResponse("x"), ttl), "ended the transaction itself")
	requireReplay(t, f.TxStore, c, newResponse("x"))
	require.Equal(t, 1, f.rows(t, c))
	requireReturned(t, f.pool)
}

func TestTxCompleteNeedsBind(t *testing.T) {
	t.Parallel()
	f := newTxFixture(t, newPool(t, 4))
	c := claimed(t, f.TxStore)
	require.ErrorContains(t, f.Complete(t.Context(), c, newResponse("x"), ttl), "Bind")
	f.requireGone(t, c)
	require.ErrorContains(t, f.Complete(t.Context(), c, newResponse("x"), ttl), "no transaction is open")
	require.Equal(t, t.Context(), f.Bind(t.Context(), c), "nothing to bind")
}

// What the handler gets is a pgx.Tx for everything but its end.
func TestTxOfTheHandler(t *testing.T) {
	t.Parallel()
	f := newTxFixture(t, newPool(t, 4))
	ctx, tx, c := f.begin(t)
	require.ErrorContains(t, tx.Commit(ctx), "belongs to the request")
	require.ErrorContains(t, tx.Rollback(ctx), "belongs to the request")

	// Savepoints, nested.
	require.NoError(t, pgx.BeginFunc(ctx, tx, func(sp pgx.Tx) error { return f.pay(ctx, sp, c) }))
	undone := errors.New("undone")
	require.ErrorIs(t, pgx.BeginFunc(ctx, tx, func(sp pgx.Tx) error {
		require.NoError(t, f.pay(ctx, sp, c))
		return pgx.BeginFunc(ctx, sp, func(inner pgx.Tx) error {
			_, err := inner.Exec(ctx, "SELECT 1/0")
			require.Error(t, err)
			return undone
		})
	}), undone)

	// Every way of asking; each leaves the transaction free for the next.
	rows, err := tx.Query(ctx, "SELECT generate_series(1, 3)")
	require.NoError(t, err)
	_, err = tx.Exec(ctx, "SELECT 1")
	require.ErrorContains(t, err, "busy")
	require.ErrorContains(t, tx.QueryRow(ctx, "SELECT 1").Scan(nil), "busy")
	_, err = tx.Begin(ctx)
	require.ErrorContains(t, err, "busy")
	n, err := pgx.CollectRows(rows, pgx.RowTo[int])
	require.NoError(t, err)
	require.Equal(t, []int{1, 2, 3}, n)

	rows, err = tx.Query(ctx, "SELECT 1")
	require.NoError(t, err)
	require.True(t, rows.Next())
	var wrong time.Time
	require.Error(t, rows.Scan(&wrong))
	_, err = tx.CopyFrom(ctx, strings.Split(strings.ReplaceAll(f.ledger.sql, `"`, ""), "."), []string{"key", "amount"},
		pgx.CopyFromRows([][]any{{c.Key.Value, int64(5)}}))
	require.NoError(t, err)
	_, err = tx.Prepare(ctx, "two", "SELECT 2")
	require.NoError(t, err)
	b := &pgx.Batch{}
	b.Queue("two")
	require.NoError(t, tx.SendBatch(ctx, b).Close())
	require.NotNil(t, tx.Conn())

	require.NoError(t, f.Complete(ctx, c, newResponse("x"), ttl))
	require.Equal(t, 2, f.rows(t, c))
	requireEnded(t, tx)
}

// requireEnded requires that tx refuses everything.
func requireEnded(t *testing.T, tx pgx.Tx) {
	t.Helper()
	ctx := t.Context()
	_, err := tx.Exec(ctx, "SELECT 1")
	require.ErrorIs(t, err, pgx.ErrTxClosed)
	_, err = tx.Query(ctx, "SELECT 1")
	require.ErrorIs(t, err, pgx.ErrTxClosed)
	require.ErrorIs(t, tx.QueryRow(ctx, "SELECT 1").Scan(nil), pgx.ErrTxClosed)
	_, err = tx.Begin(ctx)
	require.ErrorIs(t, err, pgx.ErrTxClosed)
	_, err = tx.Prepare(ctx, "p", "SELECT 1")
	require.ErrorIs(t, err, pgx.ErrTxClosed)
	_, err = tx.CopyFrom(ctx, pgx.Identifier{"x"}, nil, nil)
	require.ErrorIs(t, err, pgx.ErrTxClosed)
	b := &pgx.Batch{}
	b.Queue("SELECT 1")
	require.ErrorIs(t, tx.SendBatch(ctx, b).Close(), pgx.ErrTxClosed)
	require.ErrorIs(t, tx.Commit(ctx), pgx.ErrTxClosed)
	require.ErrorIs(t, tx.Rollback(ctx), pgx.ErrTxClosed)
	require.Nil(t, tx.Conn())
}

// A goroutine of the handler that still uses the transaction when it ends can
// only hurt itself.
func TestTxUsedBeyondItsEnd(t *testing.T) {
	t.Parallel()
	f := newTxFixture(t, newPool(t, 2))
	ctx, tx, c := f.begin(t)
	pid := tx.Conn().PgConn().PID()
	ended := make(chan error, 1)
	go func() {
		_, err := tx.Exec(ctx, "SELECT pg_sleep(60)")
		ended <- err
	}()
	require.Eventually(t, func() bool {
		var sleeps bool
		err := f.pool.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity
			WHERE pid = $1::int AND state = 'active' AND query LIKE '%pg_sleep%')`, int32(pid)).Scan(&sleeps)
		return err == nil && sleeps
	}, 10*time.Second, time.Millisecond)
	_, err := tx.Exec(ctx, "SELECT 1")
	require.ErrorContains(t, err, "busy")
	require.ErrorContains(t, f.Complete(ctx, c, newResponse("x"), ttl), "still uses the transaction")
	require.Error(t, <-ended)
	requireReturned(t, f.pool)
	requireEnded(t, tx)
	_, err = f.pool.Exec(t.Context(), "SELECT pg_terminate_backend($1::int)", int32(pid))
	require.NoError(t, err)
}

// Large objects reach the connection by a way of their own, so it is closed
// afterwards.
func TestTxLargeObjects(t *testing.T) {
	t.Parallel()
	f := newTxFixture(t, newPool(t, 2))
	ctx, tx, c := f.begin(t)
	lo := tx.LargeObjects()
	oid, err := lo.Create(ctx, 0)
	require.NoError(t, err)
	require.NoError(t, lo.Unlink(ctx, oid))
	require.NoError(t, f.Complete(ctx, c, newResponse("x"), ttl))
	_, err = lo.Create(ctx, 0)
	require.Error(t, err)
	require.Zero(t, f.pool.Stat().TotalConns())
	requireReplay(t, f.TxStore, c, newResponse("x"))
}
