package history_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/pgstore"
)

// ledger is a table in which handlers write a row of their own in the claim's
// transaction.
type ledger struct {
	pool   *pgxpool.Pool
	table  string
	beside bool // the rows are written beside the transaction, which is wrong
}

func newLedger(t *testing.T, p place) *ledger {
	l := &ledger{pool: p.pool, table: p.table + "_ledger"}
	if _, err := l.pool.Exec(t.Context(), "CREATE TABLE "+l.table+" (key text, request int)"); err != nil {
		t.Fatal(err)
	}
	return l
}

// write writes the row of a run.
func (l *ledger) write(ctx context.Context, key string, request int) error {
	insert := "INSERT INTO " + l.table + " VALUES ($1, $2)"
	if l.beside {
		_, err := l.pool.Exec(ctx, insert, key, request)
		return err
	}
	_, err := pgstore.Tx(ctx).Exec(ctx, insert, key, request)
	return err
}

// audit checks that there is one row where there is a record, its own, and none
// where there is none.
func (l *ledger) audit(ctx context.Context, record *idempotency.Record, key string) error {
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
		texts = append(texts, plan{id: id}.text())
	}
	switch {
	case record == nil && len(texts) == 0, record != nil && len(texts) == 1 && texts[0] == string(record.Response.Body):
		return rows.Err()
	case record == nil:
		return fmt.Errorf("no record, but the rows of %v", texts)
	}
	return fmt.Errorf("the record of %q, and the rows of %v", record.Response.Body, texts)
}
