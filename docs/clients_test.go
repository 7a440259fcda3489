package docs_test

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var discard = slog.New(slog.DiscardHandler)

func newReader(b []byte) io.Reader { return bytes.NewReader(b) }

// pageKey is the key in the page's blocks.
const pageKey = "9b2d7c1e-7d0b-4c5e-9c2f-0a1b2c3d4e5f"

// clients run a client of the page against a server, and return what it prints:
// the status and the body.
var clients = map[string]func(t *testing.T, p page, url string) string{
	"Go": goClient, "Python": pythonClient, "TypeScript": typescriptClient,
}

// TestClientsOfThePage runs the page's clients against a server with which all
// goes wrong that the page speaks of. First its store is out of reach: 503. Then
// the connection is cut while the handler runs, and the next attempt is told that
// it still does: 409. Then the handler ends, and what comes is its answer.
func TestClientsOfThePage(t *testing.T) {
	t.Parallel()
	p := readPage(t, "docs/clients.md")
	for name, run := range clients {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api, url := newTroubledAPI(t, true)
			require.Equal(t, "201 charge 1\n", run(t, p, url))
			api.requireStory(t, "503", "cut", "409", "201 replayed")
		})
	}
}

// A key that belongs to another request is not sent again.
func TestClientsOfThePageGiveUp(t *testing.T) {
	t.Parallel()
	p := readPage(t, "docs/clients.md")
	for name, run := range clients {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api, url := newTroubledAPI(t, false)
			for range 3 { // through the troubles
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/payments", strings.NewReader("another request"))
				require.NoError(t, err)
				r.Header.Set("Idempotency-Key", pageKey)
				r.GetBody = nil // net/http is not to repeat it by itself
				if resp, err := http.DefaultClient.Do(r); err == nil {
					require.NoError(t, resp.Body.Close())
				}
			}
			out := run(t, p, url)
			require.True(t, strings.HasPrefix(out, "409 "), out)
			require.Contains(t, out, "idempotency_key_reused_with_different_params")
			api.requireStory(t, "503", "cut", "201 replayed", "409")
		})
	}
}

// curl does not read a 409, so there is none here.
func TestCurlOfThePage(t *testing.T) {
	t.Parallel()
	blocks := readPage(t, "docs/clients.md").of("sh")
	require.Len(t, blocks, 1)
	program(t, "curl")
	api, url := newTroubledAPI(t, false)
	script := "cd '" + t.TempDir() + "'\n" + at(t, blocks[0], url) + "cat answer"
	require.Equal(t, "201\ncharge 1", execute(t, program(t, "bash"), "-c", script))
	api.requireStory(t, "503", "cut", "201 replayed")
}

func goClient(t *testing.T, p page, url string) string {
	blocks := p.of("go")
	require.Len(t, blocks, 1)
	o := newOverlay(t)
	o.add("client_of_the_page", "main.go", at(t, blocks[0], url))
	binary := filepath.Join(t.TempDir(), "pay")
	o.run("build", "-o", binary, o.packages[0])
	return execute(t, binary)
}

func pythonClient(t *testing.T, p page, url string) string {
	blocks := p.of("python")
	require.Len(t, blocks, 1)
	path := write(t, "pay.py", at(t, blocks[0], url)+`
r = pay({"amount": 100}, key="`+pageKey+`")
print(r.status_code, r.text)
`)
	// The first python3 in PATH need not be the one that Debian's packages are for.
	for _, name := range []string{"python3", "/usr/bin/python3"} {
		if exec.CommandContext(t.Context(), name, "-c", "import requests").Run() == nil {
			return execute(t, name, path)
		}
	}
	missing(t, errors.New("python3 with requests"))
	return ""
}

// typescriptClient checks the types, takes them off, and runs the rest.
func typescriptClient(t *testing.T, p page, url string) string {
	blocks := p.of("ts")
	require.Len(t, blocks, 1)
	compiler, node := program(t, "tsc"), program(t, "node")
	path := write(t, "pay.mts", at(t, blocks[0], url)+`
const r = await pay({ amount: 100 }, "`+pageKey+`");
console.log(r.status, await r.text());
`)
	execute(t, compiler, "--strict", "--target", "es2022", "--module", "es2022", path)
	return execute(t, node, strings.TrimSuffix(path, ".mts")+".mjs")
}

// at puts the test's server in the place of the page's.
func at(t *testing.T, text, url string) string {
	const host = "https://api.example"
	require.Contains(t, text, host)
	return strings.ReplaceAll(text, host, url)
}

// write makes a file in a folder of its own and returns its path.
func write(t *testing.T, name, text string) string {
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// execute runs a program, which must end well, and returns what it prints.
func execute(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	require.NoError(t, err, "%s%s", out, errs.String())
	return string(out)
}
