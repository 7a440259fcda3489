package pgstore_test

import (
	"testing"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/pgstore"
	"github.com/stretchr/testify/require"
)

func TestSmoke(t *testing.T) {
	pool := newPool(t, 4)
	s := newStore(t, pool)
	c := newClaim()
	rec, err := s.Claim(t.Context(), c, lease)
	requireHeld(t, rec, err)
	rec, err = s.Claim(t.Context(), c, lease)
	requireHeld(t, rec, err)
	rec, err = s.Claim(t.Context(), again(c), lease)
	require.NoError(t, err)
	require.Equal(t, c.Token, rec.Token)
	require.NoError(t, s.Extend(t.Context(), c, lease))
	require.NoError(t, s.Complete(t.Context(), c, newResponse("x"), ttl))
	require.NoError(t, s.Complete(t.Context(), c, newResponse("y"), ttl))
	rec, err = s.Claim(t.Context(), again(c), lease)
	require.NoError(t, err)
	require.Equal(t, newResponse("x"), rec.Response)
	require.ErrorIs(t, s.Complete(t.Context(), again(c), newResponse("z"), ttl), idempotency.ErrClaimLost)
	n, err := s.Sweep(t.Context(), 10)
	require.NoError(t, err)
	require.Zero(t, n)
}

func TestSmokeTx(t *testing.T) {
	pool := newPool(t, 4)
	s := newTxStore(t, pool)
	c := newClaim()
	rec, err := s.Claim(t.Context(), c, lease)
	requireHeld(t, rec, err)
	rec, err = s.Claim(t.Context(), again(c), lease)
	require.NoError(t, err)
	require.Empty(t, rec.Token)
	ctx := s.Bind(t.Context(), c)
	tx := pgstore.Tx(ctx)
	var n int
	require.NoError(t, tx.QueryRow(ctx, "select $1::int", 7).Scan(&n))
	require.NoError(t, s.Complete(t.Context(), c, newResponse("x"), ttl))
	rec, err = s.Claim(t.Context(), again(c), lease)
	require.NoError(t, err)
	require.Equal(t, newResponse("x"), rec.Response)
	require.Zero(t, pool.Stat().AcquiredConns())
}
