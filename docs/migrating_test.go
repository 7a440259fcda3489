package docs_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMigrating builds the page's files and runs old and new processes side by
// side, see testdata.
func TestMigrating(t *testing.T) {
	t.Parallel()
	o := newOverlay(t)
	names := []string{"bridge.go", "setnx.go", "payments.go"}
	blocks := readPage(t, migrating).of("go")
	require.Len(t, blocks, len(names))
	for i, name := range names {
		o.add("migrating", name, blocks[i])
	}
	text, err := os.ReadFile(filepath.Join("testdata", "migrating_test.go"))
	require.NoError(t, err)
	o.add("migrating", "migrating_test.go", string(text))
	o.test("migrating")
}
