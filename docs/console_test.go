package docs_test

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// typedLine is a command of a console block, and what the page says comes back.
type typedLine struct {
	command string
	want    []string
}

func parseConsole(text string) (typed []typedLine) {
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if command, ok := strings.CutPrefix(line, "$ "); ok {
			typed = append(typed, typedLine{command: command})
		} else {
			last := &typed[len(typed)-1]
			last.want = append(last.want, line)
		}
	}
	return typed
}

// matches reports whether a program has printed what the page says. "…" is any
// text on a line, and alone on a line any number of lines.
func (l typedLine) matches(out string) bool {
	var pattern strings.Builder
	for _, line := range l.want {
		if line == "…" {
			pattern.WriteString(`(?:.*\n)*`)
			continue
		}
		for i, part := range strings.Split(line, "…") {
			if i > 0 {
				pattern.WriteString(`.*`)
			}
			pattern.WriteString(regexp.QuoteMeta(part))
		}
		pattern.WriteString(`\n`)
	}
	out = strings.ReplaceAll(out, "\r", "")
	if out != "" && !strings.HasSuffix(out, "\n") {
		out += "\n"
	}
	return regexp.MustCompile(`^` + pattern.String() + `$`).MatchString(out)
}

// run runs the command, and returns all that it prints, whatever its end.
func (l typedLine) run(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), program(t, "bash"), "-c", l.command).CombinedOutput()
	if err != nil {
		require.IsType(t, new(exec.ExitError), err, "%s", l.command)
	}
	return string(out)
}

func TestConsoleMatches(t *testing.T) {
	t.Parallel()
	lines := parseConsole("$ a\n$ b\nx…y\n…\nz\n")
	require.Equal(t, []typedLine{{command: "a"}, {command: "b", want: []string{"x…y", "…", "z"}}}, lines)
	require.True(t, lines[0].matches(""))
	require.False(t, lines[0].matches("x"))
	for out, want := range map[string]bool{
		"x-y\nz": true, "xy\r\n\r\nmore\r\nz\n": true, "x\ny\nz\n": false, "xy\n": false, "xy\nz\nmore\n": false, "": false,
	} {
		require.Equal(t, want, lines[1].matches(out), "%q", out)
	}
}
