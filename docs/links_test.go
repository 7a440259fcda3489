package docs_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
)

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// TestLinksLead follows the relative links of the pages, to headings, too.
func TestLinksLead(t *testing.T) {
	t.Parallel()
	for _, p := range pages(t) {
		for _, match := range link.FindAllStringSubmatch(p.text, -1) {
			target, anchor, _ := strings.Cut(match[1], "#")
			if strings.Contains(target, "://") {
				require.True(t, strings.HasPrefix(target, "https://"), "%s: %s", p.name, target)
				continue
			}
			name := p.name
			if target != "" {
				name = path.Join(path.Dir(p.name), target)
			}
			_, err := os.Stat(filepath.Join(root, filepath.FromSlash(name)))
			require.NoError(t, err, "%s: %s", p.name, match[1])
			if anchor != "" {
				require.Contains(t, anchors(readPage(t, name).text), anchor, "%s: %s", p.name, match[1])
			}
		}
	}
}

// anchors returns what the headings of a page are linked by.
func anchors(text string) (found []string) {
	for line := range strings.Lines(text) {
		title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " ")
		if !ok || !strings.HasPrefix(line, "#") {
			continue
		}
		found = append(found, strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return r
			}
			return -1
		}, strings.ToLower(strings.TrimSpace(title))))
	}
	return found
}

// The README's problem document is what the middleware writes.
func TestProblemOfTheREADME(t *testing.T) {
	t.Parallel()
	blocks := readPage(t, "README.md").of("json")
	require.Len(t, blocks, 1)
	w := httptest.NewRecorder()
	idempotency.WriteProblem(w, httptest.NewRequest(http.MethodPost, "/payments", nil),
		&idempotency.Error{Code: idempotency.CodeInProgress, RetryAfter: 2 * time.Second})
	require.JSONEq(t, w.Body.String(), blocks[0])
}

// TestEveryPageIsLinked finds each page in the README, and what it is for in its
// first sentence.
func TestEveryPageIsLinked(t *testing.T) {
	t.Parallel()
	readme := readPage(t, "README.md").text
	for _, p := range pages(t) {
		if name, ok := strings.CutPrefix(p.name, "docs/"); ok {
			require.True(t, strings.Contains(readme, "(docs/"+name+")"), "the README does not lead to %s", p.name)
			lines := strings.SplitN(p.text, "\n", 4)
			require.Regexp(t, `^For `, lines[2], "%s does not say for whom it is", p.name)
		}
	}
}
