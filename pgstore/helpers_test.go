package pgstore_test

import (
	"crypto/rand"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

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
	t.Cleanup(pool.Close)
	return pool
}

// newName is a name for a table that no other test uses.
func newName(t testing.TB) string {
	serverURL(t)
	return testServer.schema + ".Records " + strings.ToLower(rand.Text()[:10])
}

func newStore(t testing.TB, pool *pgxpool.Pool, opts ...pgstore.Option) *pgstore.Store {
	t.Helper()
	s := pgstore.New(pool, append([]pgstore.Option{pgstore.WithTable(newName(t))}, opts...)...)
	require.NoError(t, s.Migrate(t.Context()))
	return s
}

func newTxStore(t testing.TB, pool *pgxpool.Pool, opts ...pgstore.Option) *pgstore.TxStore {
	t.Helper()
	s := pgstore.NewTx(pool, append([]pgstore.Option{pgstore.WithTable(newName(t))}, opts...)...)
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
