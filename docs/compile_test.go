package docs_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// fragment is what a Go block that is no whole file stands in: it may use these
// names and imports.
const fragment = `package fragment

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/memstore"
)

var (
	_ context.Context
	_ = errors.New
	_ time.Duration
	_ = memstore.New

	ctx               context.Context
	store             idempotency.Store
	currentUser       idempotency.UserFunc
	mux               *http.ServeMux
	payments, exports http.Handler
	provider          interface {
		Charge(ctx context.Context, key string, cents int) (string, error)
	}
)

`

// The blocks of these pages are files of one program each, and their own tests
// build them.
const (
	guide     = "docs/guide.md"
	migrating = "docs/migrating.md"
)

// TestGoBlocksCompile builds every Go block of the pages.
func TestGoBlocksCompile(t *testing.T) {
	t.Parallel()
	o := newOverlay(t)
	for _, p := range pages(t) {
		if p.name == guide || p.name == migrating {
			continue
		}
		for i, text := range p.of("go") {
			switch {
			case strings.HasPrefix(text, "package "):
			case strings.Contains("\n"+text, "\nfunc "):
				text = fragment + text
			default:
				text = fragment + "func _() {\n" + text + "\n}\n"
			}
			o.add(strings.NewReplacer("/", "_", ".", "_").Replace(p.name)+"_"+strconv.Itoa(i), "block.go", text)
		}
	}
	require.GreaterOrEqual(t, len(o.packages), 5)
	o.run("build", o.packages...)
}

// overlay lays files over the module, in packages that are not there.
type overlay struct {
	t        testing.TB
	dir, top string
	files    int
	packages []string
	replace  map[string]string
}

func newOverlay(t testing.TB) *overlay {
	top, err := filepath.Abs(root)
	require.NoError(t, err)
	return &overlay{t: t, dir: t.TempDir(), top: top, replace: make(map[string]string)}
}

// add puts a file into the package internal/folder, or replaces it there.
func (o *overlay) add(folder, name, text string) {
	o.files++
	path := filepath.Join(o.dir, strconv.Itoa(o.files)+name)
	require.NoError(o.t, os.WriteFile(path, []byte(text), 0o600))
	o.replace[filepath.Join(o.top, "internal", filepath.FromSlash(folder), name)] = path
	if p := "./internal/" + folder; len(o.packages) == 0 || o.packages[len(o.packages)-1] != p {
		o.packages = append(o.packages, p)
	}
}

// run runs a go command that takes -overlay.
func (o *overlay) run(command string, args ...string) {
	o.t.Helper()
	encoded, err := json.Marshal(struct{ Replace map[string]string }{o.replace})
	require.NoError(o.t, err)
	path := filepath.Join(o.dir, "overlay.json")
	require.NoError(o.t, os.WriteFile(path, encoded, 0o600))
	cmd := exec.CommandContext(o.t.Context(), "go", append([]string{command, "-overlay", path}, args...)...)
	cmd.Dir = o.top
	out, err := cmd.CombinedOutput()
	require.NoError(o.t, err, "%s", out)
}

// test runs a package's tests, of which some may be laid over it, too.
func (o *overlay) test(folder string) {
	o.t.Helper()
	binary := filepath.Join(o.dir, "test")
	o.run("test", "-c", "-vet=off", "-o", binary, "./internal/"+folder)
	out, err := exec.CommandContext(o.t.Context(), binary).CombinedOutput()
	require.NoError(o.t, err, "%s", out)
}
