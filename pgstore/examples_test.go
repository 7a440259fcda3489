package pgstore_test

import (
	"io"
	"net/url"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// The examples run, too, in a schema of their own. They have no Output comments:
// go test would run them on desks without a server.
func TestExamples(t *testing.T) {
	address, err := url.Parse(serverURL(t))
	require.NoError(t, err)
	schema := "examples_of_" + testServer.schema
	require.NoError(t, onServer("CREATE SCHEMA "+schema))
	t.Cleanup(func() { require.NoError(t, onServer("DROP SCHEMA "+schema+" CASCADE")) })
	require.NoError(t, onServer("CREATE TABLE "+schema+".ledger (amount integer)"))
	query := address.Query()
	query.Set("search_path", schema)
	address.RawQuery = query.Encode()
	t.Setenv("DATABASE_URL", address.String())

	require.Equal(t, "201, replayed: false\n201, replayed: true\nbooked: 1\n", printed(t, ExampleNewTx))
	require.Empty(t, printed(t, ExampleNew))
	require.NoError(t, onServer("SELECT archived_at FROM "+schema+".idempotency_history"), "Migrate has made the history")
}

// printed returns what an example prints.
func printed(t *testing.T, example func()) string {
	t.Helper()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	stdout := os.Stdout
	os.Stdout = w
	defer func() { os.Stdout = stdout }()
	example()
	require.NoError(t, w.Close())
	text, err := io.ReadAll(r)
	require.NoError(t, err)
	return string(text)
}
