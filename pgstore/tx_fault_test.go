package pgstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/pgstore"
)

// Two transactions that read what the other one writes cannot both commit.
func TestTxWriteSkew(t *testing.T) {
	t.Parallel()
	f := newTxFixture(t, newPool(t, 4), pgstore.WithTxOptions(pgx.TxOptions{IsoLevel: pgx.Serializable}))
	ctxA, a, claimA := f.begin(t)
	ctxB, b, claimB := f.begin(t)
	var level string
	require.NoError(t, a.QueryRow(ctxA, "SHOW transaction_isolation").Scan(&level))
	require.Equal(t, "serializable", level)
	var sum int
	require.NoError(t, a.QueryRow(ctxA, "SELECT count(*) FROM "+f.ledger.sql).Scan(&sum))
	require.NoError(t, b.QueryRow(ctxB, "SELECT count(*) FROM "+f.ledger.sql).Scan(&sum))
	require.NoError(t, f.pay(ctxA, a, claimA))
	require.NoError(t, f.pay(ctxB, b, claimB))
	require.NoError(t, f.Complete(ctxA, claimA, newResponse("a"), ttl))
	err := f.Complete(ctxB, claimB, newResponse("b"), ttl)
	var server *pgconn.PgError
	require.ErrorAs(t, err, &server)
	require.Equal(t, "40001", server.Code)
	f.requireGone(t, claimB)
	require.Equal(t, 1, f.rows(t, claimA))
}

func TestTxOptions(t *testing.T) {
	t.Parallel()
	f := newTxFixture(t, newPool(t, 2), pgstore.WithTxOptions(pgx.TxOptions{
		BeginQuery: "BEGIN ISOLATION LEVEL REPEATABLE READ", CommitQuery: "COMMIT AND NO CHAIN",
	}))
	ctx, tx, c := f.begin(t)
	var level string
	require.NoError(t, tx.QueryRow(ctx, "SHOW transaction_isolation").Scan(&level))
	require.Equal(t, "repeatable read", level)
	require.NoError(t, f.Complete(ctx, c, newResponse("x"), ttl))
	requireReplay(t, f.TxStore, c, newResponse("x"))
}

// The wait for a connection ends with the context, and leaves nothing behind.
func TestTxBoundedAcquire(t *testing.T) {
	t.Parallel()
	f := newTxFixture(t, newPool(t, 1))
	_, _, c := f.begin(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := f.Claim(ctx, newClaim(), lease)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, f.Release(t.Context(), c))
	f.requireGone(t, c)
}

// A claim whose transaction the server cannot begin gives its connection back.
func TestTxClaimErrors(t *testing.T) {
	t.Parallel()
	pool := newPool(t, 2)
	s := pgstore.NewTx(pool, pgstore.WithTable(newName(t))) // not migrated
	for range 5 {
		_, err := s.Claim(t.Context(), newClaim(), lease)
		var server *pgconn.PgError
		require.ErrorAs(t, err, &server)
		require.Equal(t, "42P01", server.Code)
		requireReturned(t, pool)
	}
	require.EqualValues(t, 1, pool.Stat().TotalConns())
}

// When the fate of the commit is unknown Complete fails, and the same key finds
// the truth.
func TestTxLostCommits(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		fault fault
		rows  int
	}{
		{"request lost", loseRequest, 0},
		{"reply lost", loseReply, 1},
		{"reply late", hangReply, 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			direct := newTxFixture(t, newPool(t, 2))
			p, pool := newProxy(t)
			f := txFixture{
				fixture: direct.fixture, ledger: direct.ledger,
				TxStore: fixture{pool: pool, name: direct.name}.txStore(),
			}
			warm(t, f.TxStore)
			ctx, tx, c := f.begin(t)
			require.NoError(t, f.pay(ctx, tx, c))
			p.arm(test.fault)
			require.Error(t, f.Complete(soon(t), c, newResponse("x"), ttl))

			// A retry with the same key: either it replays, or it runs.
			retry := again(c)
			var rec *idempotency.Record
			require.Eventually(t, func() bool {
				var err error
				rec, err = f.Claim(t.Context(), retry, lease)
				return err == nil && (rec == nil || rec.Response != nil)
			}, 15*time.Second, 10*time.Millisecond)
			require.Equal(t, test.rows, f.rows(t, c))
			if test.rows == 0 {
				require.Nil(t, rec)
				ctx := f.Bind(t.Context(), retry)
				require.NoError(t, f.pay(ctx, pgstore.Tx(ctx), retry))
				require.NoError(t, f.Complete(ctx, retry, newResponse("x"), ttl))
			} else {
				require.NoError(t, f.Complete(ctx, c, newResponse("x"), ttl), "the owner's own look")
			}
			require.Equal(t, 1, f.rows(t, c))
			requireReplay(t, f.TxStore, c, newResponse("x"))
		})
	}
}
