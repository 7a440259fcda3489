package pgstore_test

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/pgstore"
)

// Each is to be compared with the bare statements of its kind, within one run: a
// replay with SELECT 1, a first request with an INSERT and an UPDATE, or with a
// transaction of one INSERT. Each has 8 goroutines, on 8 connections.
const benchConns = 8

func BenchmarkPgstore(b *testing.B) {
	for _, sync := range []string{"on", "off"} {
		b.Run("synchronous_commit="+sync, func(b *testing.B) {
			pool := newPool(b, benchConns, func(c *pgxpool.Config) {
				c.ConnConfig.RuntimeParams["synchronous_commit"] = sync
			})
			body := strings.Repeat("0123456789abcdef", 64)
			b.Run("replay/raw", func(b *testing.B) { benchSelect1(b, pool) })
			b.Run("replay/store", func(b *testing.B) { benchReplay(b, newStore(b, pool), body) })
			b.Run("replay/tx", func(b *testing.B) { benchReplay(b, newTxStore(b, pool), body) })
			b.Run("first/raw", func(b *testing.B) { benchBarePair(b, pool, body) })
			b.Run("first/store", func(b *testing.B) { benchPair(b, newStore(b, pool), body) })
			b.Run("transaction/raw", func(b *testing.B) { benchBareTransaction(b, pool) })
			b.Run("transaction/tx", func(b *testing.B) { benchTransaction(b, pool, newTxStore(b, pool), body) })
		})
	}
}

func parallel(b *testing.B, f func(ctx context.Context) error) {
	b.Helper()
	b.ReportAllocs()
	b.SetParallelism(4)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := f(context.Background()); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
}

func benchSelect1(b *testing.B, pool *pgxpool.Pool) {
	parallel(b, func(ctx context.Context) error {
		_, err := pool.Exec(ctx, "SELECT 1 WHERE 'x' = $1::text", "x")
		return err
	})
}

func benchReplay(b *testing.B, s idempotency.Store, body string) {
	c := newClaim()
	rec, err := s.Claim(b.Context(), c, lease)
	requireHeld(b, rec, err)
	if tx, ok := s.(idempotency.TxStore); ok {
		tx.Bind(b.Context(), c)
	}
	require.NoError(b, s.Complete(b.Context(), c, newResponse(body), ttl))
	parallel(b, func(ctx context.Context) error {
		_, err := s.Claim(ctx, again(c), lease)
		return err
	})
}

func bareTable(b *testing.B, pool *pgxpool.Pool, columns string) string {
	name := quoted(newName(b))
	_, err := pool.Exec(b.Context(), "CREATE TABLE "+name+" ("+columns+")")
	require.NoError(b, err)
	return name
}

func benchBarePair(b *testing.B, pool *pgxpool.Pool, body string) {
	t := bareTable(b, pool, "id text primary key, state text not null, body bytea, at timestamptz")
	parallel(b, func(ctx context.Context) error {
		id := rand.Text()
		if _, err := pool.Exec(ctx, "INSERT INTO "+t+" (id, state, at) VALUES ($1, 'new', now())", id); err != nil {
			return err
		}
		_, err := pool.Exec(ctx, "UPDATE "+t+" SET state = 'done', body = $2, at = now() WHERE id = $1", id, []byte(body))
		return err
	})
}

func benchPair(b *testing.B, s *pgstore.Store, body string) {
	parallel(b, func(ctx context.Context) error {
		c := newClaim()
		if _, err := s.Claim(ctx, c, lease); err != nil {
			return err
		}
		return s.Complete(ctx, c, newResponse(body), ttl)
	})
}

const ledger = "id text primary key, amount bigint not null"

func benchBareTransaction(b *testing.B, pool *pgxpool.Pool) {
	t := bareTable(b, pool, ledger)
	parallel(b, func(ctx context.Context) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "INSERT INTO "+t+" VALUES ($1, $2)", rand.Text(), 100)
			return err
		})
	})
}

func benchTransaction(b *testing.B, pool *pgxpool.Pool, s *pgstore.TxStore, body string) {
	t := bareTable(b, pool, ledger)
	parallel(b, func(ctx context.Context) error {
		c := newClaim()
		if _, err := s.Claim(ctx, c, lease); err != nil {
			return err
		}
		if _, err := pgstore.Tx(s.Bind(ctx, c)).Exec(ctx, "INSERT INTO "+t+" VALUES ($1, $2)", rand.Text(), 100); err != nil {
			return err
		}
		return s.Complete(ctx, c, newResponse(body), ttl)
	})
}
