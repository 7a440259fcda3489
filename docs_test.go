package idempotency_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

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

	ctx              context.Context
	store            idempotency.Store
	currentUser      idempotency.UserFunc
	mux              *http.ServeMux
	payments, exports http.Handler
	provider         interface {
		Charge(ctx context.Context, key string, cents int) (string, error)
	}
)

`

// TestDocumentedGoBlocksCompile builds every Go block of the Markdown files.
func TestDocumentedGoBlocksCompile(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	root, err := os.Getwd()
	require.NoError(t, err)

	// The blocks are laid over the module, in packages that are not there.
	overlay := struct{ Replace map[string]string }{make(map[string]string)}
	dir := t.TempDir()
	packages := []string{"build", "-o", os.DevNull, "-overlay", filepath.Join(dir, "overlay.json")}
	for _, file := range append(files, "README.md") {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for i, block := range goBlocks(string(text)) {
			switch {
			case strings.HasPrefix(block, "package "):
			case strings.Contains("\n"+block, "\nfunc "):
				block = fragment + block
			default:
				block = fragment + "func _() {\n" + block + "\n}\n"
			}
			name := fmt.Sprintf("block_%s_%d", strings.TrimSuffix(filepath.Base(file), ".md"), i)
			path := filepath.Join(dir, name+".go")
			require.NoError(t, os.WriteFile(path, []byte(block), 0o600))
			overlay.Replace[filepath.Join(root, "internal", name, "block.go")] = path
			packages = append(packages, "./internal/"+name)
		}
	}
	encoded, err := json.Marshal(overlay)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "overlay.json"), encoded, 0o600))
	require.NotEmpty(t, overlay.Replace)

	for _, name := range packages[5:] {
		out, err := exec.CommandContext(t.Context(), "go", append(packages[:5:5], name)...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
}

// TestDocumentedCommandsRunInCI finds every command of the Markdown files in the
// scripts that have to pass.
func TestDocumentedCommandsRunInCI(t *testing.T) {
	t.Parallel()
	var scripts string
	for _, name := range []string{".ci/run", ".ci/examples"} {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		scripts += string(text)
	}
	files, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	for _, file := range append(files, "README.md") {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, block := range blocks(string(text), "sh") {
			for line := range strings.Lines(block) {
				if line = strings.TrimSpace(line); line != "" {
					require.True(t, strings.Contains(scripts, line), "%s: CI does not run %q", file, line)
				}
			}
		}
	}
}

func goBlocks(text string) []string { return blocks(text, "go") }

// blocks returns the fenced blocks of one language.
func blocks(text, language string) (found []string) {
	parts := strings.Split(text, "\n```")
	for _, part := range parts {
		if body, ok := strings.CutPrefix(part, language+"\n"); ok {
			found = append(found, body)
		}
	}
	return found
}

// TestDocumentedLinksLead follows the relative links of the Markdown files, to
// headings, too.
func TestDocumentedLinksLead(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	for _, file := range append(files, "README.md", "CONTRIBUTING.md", "SECURITY.md", "proof/README.md", "vectors/README.md") {
		text, err := os.ReadFile(file)
		if os.IsNotExist(err) {
			continue
		}
		require.NoError(t, err)
		for _, match := range link.FindAllStringSubmatch(string(text), -1) {
			target, anchor, _ := strings.Cut(match[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			path := file
			if target != "" {
				path = filepath.Join(filepath.Dir(file), target)
			}
			_, err := os.Stat(path)
			require.NoError(t, err, "%s: %s", file, match[1])
			if anchor != "" {
				page, err := os.ReadFile(path)
				require.NoError(t, err)
				require.Contains(t, anchors(string(page)), anchor, "%s: %s", file, match[1])
			}
		}
	}
}

// anchors returns what the headings of a page are linked by.
func anchors(page string) (found []string) {
	for line := range strings.Lines(page) {
		if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
			title = strings.ToLower(strings.TrimSpace(title))
			found = append(found, strings.Map(func(r rune) rune {
				switch {
				case r == ' ':
					return '-'
				case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
					return r
				}
				return -1
			}, title))
		}
	}
	return found
}
