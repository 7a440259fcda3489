package pgstore_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
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
