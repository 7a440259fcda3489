package pgstore_test

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/pgstore"
)

// serverURL is the address of the test server. Without one the test is skipped
// on a desk, and fails where CI is set.
func serverURL(t testing.TB) string {
	t.Helper()
	if testServer.url == "" {
		if os.Getenv("CI") != "" {
			t.Fatal("no PostgreSQL: ", testServer.missing)
		}
		t.Skip("no PostgreSQL: ", testServer.missing)
	}
	return testServer.url
}

// newPool is a pool of at most size connections, with the changes made to its
// configuration.
func newPool(t testing.TB, size int32, changes ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	c, err := pgxpool.ParseConfig(serverURL(t))
	require.NoError(t, err)
	c.MaxConns = size
	for _, change := range changes {
		change(c)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), c)
	require.NoError(t, err)
	t.Cleanup(func() {
		// Close waits for every connection: a store that keeps one fails here.
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			pool.Close()
		}()
		select {
		case <-closed:
		case <-time.After(20 * time.Second):
			t.Errorf("%d connections were not given back", pool.Stat().AcquiredConns())
		}
	})
	return pool
}

// newName is a name for a table that no other test uses.
func newName(t testing.TB) string {
	t.Helper()
	serverURL(t)
	name := testServer.schema + ".Records " + strings.ToLower(rand.Text()[:10])
	t.Cleanup(func() {
		require.NoError(t, onServer("SET lock_timeout = '10s'; DROP TABLE IF EXISTS "+quoted(name)))
	})
	return name
}

func quoted(name string) string { return pgx.Identifier(strings.Split(name, ".")).Sanitize() }

// fixture is a store of either kind on a table of its own.
type fixture struct {
	pool *pgxpool.Pool
	name string // for WithTable
	sql  string // quoted, for statements
}

// newFixture makes the table.
func newFixture(t testing.TB, pool *pgxpool.Pool) fixture {
	t.Helper()
	name := newName(t)
	require.NoError(t, pgstore.New(pool, pgstore.WithTable(name)).Migrate(t.Context()))
	return fixture{pool: pool, name: name, sql: quoted(name)}
}

func (f fixture) store(opts ...pgstore.Option) *pgstore.Store {
	return pgstore.New(f.pool, append([]pgstore.Option{pgstore.WithTable(f.name)}, opts...)...)
}

func (f fixture) txStore(opts ...pgstore.Option) *pgstore.TxStore {
	return pgstore.NewTx(f.pool, append([]pgstore.Option{pgstore.WithTable(f.name)}, opts...)...)
}

// exec executes a statement in which %s is the table.
func (f fixture) exec(t testing.TB, sql string, args ...any) {
	t.Helper()
	_, err := f.pool.Exec(t.Context(), fmt.Sprintf(sql, f.sql), args...)
	require.NoError(t, err)
}

// query reads one value with a statement in which %s is the table.
func query[T any](t testing.TB, f fixture, sql string, args ...any) (v T) {
	t.Helper()
	require.NoError(t, f.pool.QueryRow(t.Context(), fmt.Sprintf(sql, f.sql), args...).Scan(&v))
	return v
}

// pass lets d pass for the rows of the key, by moving their ends back.
func (f fixture) pass(t testing.TB, key idempotency.Key, d time.Duration) {
	t.Helper()
	f.exec(t, `UPDATE %s SET expires_at = expires_at - $1::bigint * interval '1 microsecond',
		free_at = free_at - $1::bigint * interval '1 microsecond' WHERE idempotency_key = $2`, d.Microseconds(), key.Value)
}

func newStore(t testing.TB, pool *pgxpool.Pool, opts ...pgstore.Option) *pgstore.Store {
	t.Helper()
	s := newFixture(t, pool).store(opts...)
	require.NoError(t, s.Migrate(t.Context())) // the table of WithHistory, if any
	return s
}

func newTxStore(t testing.TB, pool *pgxpool.Pool, opts ...pgstore.Option) *pgstore.TxStore {
	t.Helper()
	s := newFixture(t, pool).txStore(opts...)
	require.NoError(t, s.Migrate(t.Context()))
	return s
}

// newClaim is a claim of a key that no other test uses, with a fresh token.
func newClaim() idempotency.Claim {
	return again(idempotency.Claim{
		Key:         idempotency.NewKey("user", "POST /things", rand.Text()),
		Fingerprint: idempotency.Fingerprint{1, 2, 3},
	})
}

// again is c with a fresh token, as a retry makes it.
func again(c idempotency.Claim) idempotency.Claim {
	c.Token = rand.Text()
	return c
}

func newResponse(body string) *idempotency.Response {
	return &idempotency.Response{
		Status: 201,
		Header: http.Header{"Content-Type": {"text/plain"}, "Location": {"/things/1"}},
		Body:   []byte(body),
		Time:   time.Date(2026, 5, 6, 7, 8, 9, 123456789, time.UTC),
	}
}

// requireHeld requires that c got the key.
func requireHeld(t testing.TB, rec *idempotency.Record, err error) {
	t.Helper()
	require.NoError(t, err)
	require.Nil(t, rec, "the key is another's")
}

const (
	lease = time.Minute
	ttl   = time.Hour
)

// claimed is a claim that got its key.
func claimed(t testing.TB, s idempotency.Store) idempotency.Claim {
	t.Helper()
	c := newClaim()
	rec, err := s.Claim(t.Context(), c, lease)
	requireHeld(t, rec, err)
	return c
}

// recorded is a key whose record is resp.
func recorded(t testing.TB, s idempotency.Store, resp *idempotency.Response) idempotency.Claim {
	t.Helper()
	c := claimed(t, s)
	if tx, ok := s.(idempotency.TxStore); ok {
		tx.Bind(t.Context(), c)
	}
	require.NoError(t, s.Complete(t.Context(), c, resp, ttl))
	return c
}

// requireReplay requires that a retry of c gets resp.
func requireReplay(t testing.TB, s idempotency.Store, c idempotency.Claim, resp *idempotency.Response) {
	t.Helper()
	rec, err := s.Claim(t.Context(), again(c), lease)
	require.NoError(t, err)
	require.NotNil(t, rec, "the key was free")
	require.Equal(t, resp, rec.Response)
	require.Equal(t, c.Fingerprint, rec.Fingerprint)
}

// requireReturned requires that no connection is kept. A pool takes a moment to
// close one that is broken.
func requireReturned(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	require.Eventually(t, func() bool { return pool.Stat().AcquiredConns() == 0 }, 10*time.Second, time.Millisecond)
}
