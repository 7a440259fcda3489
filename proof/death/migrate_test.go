package death_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/retrysafe/idempotency/pgstore"
)

func migrate(t *testing.T, url, schema string) {
	t.Helper()
	pool, err := pgxpool.New(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if err := pgstore.New(pool, pgstore.WithTable(schema+".records")).Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
}
