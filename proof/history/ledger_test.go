package history_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/pgstore"
)

// ledger is a store whose handlers write a row of their own in the claim's
// transaction.
type ledger struct {
	*pgstore.TxStore
	pool  *pgxpool.Pool
	table string
}

func newLedger(t *testing.T) ledger {
	pool, table := onPostgres(t)
	l := ledger{pgstore.NewTx(pool, pgstore.WithTable(table)), pool, table + "_ledger"}
	if _, err := pool.Exec(t.Context(), "CREATE TABLE "+l.table+" (key text, request int)"); err != nil {
		t.Fatal(err)
	}
	return l
}

// write writes the row of a run.
func (l ledger) write(ctx context.Context, key string, request int) error {
	_, err := pgstore.Tx(ctx).Exec(ctx, "INSERT INTO "+l.table+" VALUES ($1, $2)", key, request)
	return err
}

// audit checks that there is one row where there is a record, its own, and none
// where there is none.
func (l ledger) audit(ctx context.Context, key string) error {
	record, err := l.Lookup(ctx, idempotency.NewKey("shared", "POST /things", key))
	if err != nil {
		return err
	}
	rows, err := l.pool.Query(ctx, "SELECT request FROM "+l.table+" WHERE key = $1", key)
	if err != nil {
		return err
	}
	defer rows.Close()
	var texts []string
	for rows.Next() {
		var id int
		if err := rows.Scan(&id); err != nil {
			return err
		}
		texts = append(texts, (&request{id: id}).text())
	}
	switch {
	case record == nil && len(texts) == 0, record != nil && len(texts) == 1 && texts[0] == string(record.Response.Body):
		return rows.Err()
	case record == nil:
		return fmt.Errorf("no record, but the rows of %v", texts)
	}
	return fmt.Errorf("the record of %q, and the rows of %v", record.Response.Body, texts)
}
