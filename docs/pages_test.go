// Package docs has no code: its tests keep the pages true. Go blocks compile,
// commands run, links lead somewhere, and what a page shows is what happens.
package docs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// root is the top of the repository, seen from the tests' folder.
const root = ".."

// page is a Markdown file.
type page struct {
	name   string // from the top of the repository, with slashes
	text   string
	blocks []block
}

// block is a fenced or an indented block of a page.
type block struct {
	language string // of a fence; "" where it says none, and for indented blocks
	before   string // the paragraph before the block
	text     string
}

// pages returns every Markdown file of the repository.
func pages(t testing.TB) []page {
	t.Helper()
	var found []page
	for _, pattern := range []string{"*.md", "*/*.md", "examples/*/*.md"} {
		names, err := filepath.Glob(filepath.Join(root, pattern))
		require.NoError(t, err)
		for _, name := range names {
			found = append(found, readPage(t, filepath.ToSlash(strings.TrimPrefix(name, root+string(filepath.Separator)))))
		}
	}
	require.Greater(t, len(found), 10)
	return found
}

func readPage(t testing.TB, name string) page {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	require.NoError(t, err)
	return page{name: name, text: string(text), blocks: parseBlocks(string(text))}
}

// of returns the blocks of a language.
func (p page) of(language string) (texts []string) {
	for _, b := range p.blocks {
		if b.language == language {
			texts = append(texts, b.text)
		}
	}
	return texts
}

// parseBlocks finds fences, and blocks that are indented by four spaces.
func parseBlocks(text string) (blocks []block) {
	var open *block
	var fenced, ended bool // ended: the paragraph, by an empty line
	var before string
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		indented, isIndented := strings.CutPrefix(line, "    ")
		switch {
		case fenced && line == "```":
			blocks, open, fenced = append(blocks, *open), nil, false
		case fenced:
			open.text += line + "\n"
		case strings.HasPrefix(line, "```"):
			open, fenced = &block{language: line[3:], before: before}, true
		case isIndented && (open != nil || i > 0 && lines[i-1] == ""):
			if open == nil {
				open = &block{before: before}
			}
			open.text += indented + "\n"
		case open != nil:
			blocks, open = append(blocks, *open), nil
		}
		switch {
		case fenced || isIndented || line == "" || line == "```":
			ended = true
		case ended:
			before, ended = line, false
		default:
			before += " " + line
		}
	}
	return blocks
}

// program finds a program that a page calls. A desk may lack it; CI may not.
func program(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		missing(t, err)
	}
	return path
}

// missing skips a test on a desk, and fails it where CI is set.
func missing(t testing.TB, err error) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatal("CI is set, and what the page needs cannot be had: ", err)
	}
	t.Skip("what the page needs cannot be had: ", err)
}
