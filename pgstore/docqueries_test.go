package pgstore_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
)

// The queries of the package documentation are right: each is executed on the
// table.
func TestQueriesOfTheDocumentation(t *testing.T) {
	t.Parallel()
	f := newFixture(t, newPool(t, 2))
	recorded(t, f.store(), newResponse("x"))
	f.fill(t, 3, "completed", "-1s", "-1s")
	f.fill(t, 2, "in_progress", "1h", "1h")
	f.fill(t, 2, "in_progress", "-1s", "1h")

	source, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	var queries []string
	for _, block := range strings.Split(string(source), "\n//\n") {
		lines := strings.Split(block, "\n")
		for i := range lines {
			lines[i] = strings.TrimPrefix(strings.TrimPrefix(lines[i], "//"), "\t")
		}
		if text := strings.Join(lines, "\n"); strings.HasPrefix(text, "SELECT ") {
			queries = append(queries, text)
		}
	}
	require.Len(t, queries, 5)
	for _, q := range queries {
		if _, cron, ok := strings.Cut(q, "$$"); ok {
			q, _, _ = strings.Cut(cron, "$$")
		}
		_, err := f.pool.Exec(t.Context(), strings.ReplaceAll(q, "idempotency_keys", f.sql))
		require.NoError(t, err, q)
	}
	require.Equal(t, 5, query[int](t, f, "SELECT count(*) FROM %s"), "the line for pg_cron swept what had expired")
}

// The statements of the operations page find a stuck key, and free it, and no
// other.
func TestStatementsOfTheOperationsPage(t *testing.T) {
	t.Parallel()
	f := newFixture(t, newPool(t, 2))
	page, err := os.ReadFile("../docs/operations.md")
	require.NoError(t, err)
	blocks := strings.Split(string(page), "\n```sql\n")[1:]
	require.Len(t, blocks, 3)

	// Alice's run has died, Bob's still runs.
	keys := make(map[string]idempotency.Key)
	for _, user := range []string{"alice", "bob"} {
		c := newClaim()
		c.Key, c.Hold = idempotency.NewKey(user, "POST /payments", "order-1"), time.Hour
		rec, err := f.store().Claim(t.Context(), c, time.Minute)
		require.NoError(t, err)
		require.Nil(t, rec)
		keys[user] = c.Key
	}
	requireRows := func(block string, rows int64) {
		statement, _, _ := strings.Cut(block, "\n```")
		tag, err := f.pool.Exec(t.Context(), strings.ReplaceAll(statement, "idempotency_keys", f.sql))
		require.NoError(t, err, statement)
		require.Equal(t, rows, tag.RowsAffected(), statement)
	}
	requireRows(blocks[2], 0) // her run is alive
	f.exec(t, "UPDATE %s SET expires_at = now() - interval '1 second' WHERE user_id = 'alice'")
	for i, rows := range []int64{2, 1, 1} {
		requireRows(blocks[i], rows)
	}
	rec, err := f.store().Lookup(t.Context(), keys["alice"])
	require.NoError(t, err)
	require.Nil(t, rec)
	rec, err = f.store().Lookup(t.Context(), keys["bob"])
	require.NoError(t, err)
	require.NotNil(t, rec)
}
