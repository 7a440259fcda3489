package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// command finds what a reader would type: a line, or a span of code, that begins
// with a program, perhaps after settings of the environment.
var (
	typed    = `((?:[A-Z_]+=\S+ )*(?:bash|go|curl|npx|node|python3|psql|redis-cli|promtool|docker|export|env) [^\s|][^\x60]*)`
	command  = regexp.MustCompile(`^(?:\$ )?` + typed + `$`)
	codeSpan = regexp.MustCompile("`" + typed + "`")
	comment  = regexp.MustCompile(`\s+# .*$`)
)

// tested are the pages whose commands a test of this package runs as they stand.
var tested = map[string]string{
	"docs/clients.md":    "TestClientsOfThePage",
	"docs/guide.md":      "TestGuide",
	"docs/operations.md": "TestOperationsCommands",
}

// extracted are lines that .ci/examples takes out of their page and sends.
var extracted = map[string]string{"README.md": "curl -i "}

// shortened are commands that CI runs with a smaller number, or with nothing to
// do, since they take minutes and do the same as their neighbours for longer.
var shortened = map[string]string{
	"go test -v ./model -deep":                                 "go test ./model -deep -run '^$'",
	"go test -v ./simulation -schedules 100000 -first 1000000": "go test ./simulation -schedules 1000 -first 1000000",
	"go test -v ./history -histories 5000 -first 1000000":      "go test ./history -histories 5 -first 1000000",
	"go test -v ./death -kills 500":                            "go test ./death -kills 2",
	"go test -v ./soak -for 10m -timeout 15m":                  "go test ./soak -run Soak/memstore -for 10s",
	// Their packages are among those of "go test ./...".
	"go test -v ./model":   "go test ./...",
	"go test -v ./history": "go test ./...",
	"go test -v ./death":   "go test ./...",
	"go test ./simulation": "go test ./...",
	"go test ./soak":       "go test ./...",
}

// excused are commands that no script can run, with the reason.
var excused = map[string]string{
	"bash .ci/run":               "it is what runs the others",
	"FUZZTIME=2s bash .ci/run":   "the same",
	"bash .ci/bench":             "takes minutes, and CI runs each benchmark once",
	"go run ./serve -router gin": "serves until it is interrupted; .ci/examples starts and asks it on a free port",
	"go run ./vectors/cmd/vectors -url http://127.0.0.1:8080":   "needs somebody's server; TestRunMeasuresAServer of the command has one",
	"go run ./vectors/cmd/vectors -url … -level core -run twin": "the same",
}

// TestCommandsRunInCI finds every command of the pages in the scripts that have
// to pass, or in a test that runs it.
func TestCommandsRunInCI(t *testing.T) {
	t.Parallel()
	var scripts string
	for _, name := range []string{".ci/run", ".ci/examples"} {
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		require.NoError(t, err)
		scripts += string(text)
	}
	unused := make(map[string]bool)
	for documented := range shortened {
		unused[documented] = true
	}
	for documented := range excused {
		unused[documented] = true
	}
	for _, p := range pages(t) {
		if tested[p.name] != "" {
			continue
		}
		for _, line := range commands(p) {
			delete(unused, line)
			prefix, sent := extracted[p.name]
			switch ci, short := shortened[line]; {
			case excused[line] != "":
			case sent && strings.HasPrefix(line, prefix):
				require.True(t, strings.Contains(scripts, "lines "+p.name+" "), p.name)
			case short:
				require.True(t, strings.Contains(scripts, ci), "%s: CI does not run %q for %q", p.name, ci, line)
			default:
				require.True(t, strings.Contains(scripts, line), "%s: CI does not run %q", p.name, line)
			}
		}
	}
	require.Empty(t, unused, "no page has these any more")
}

// commands returns the commands of a page, without the comments behind them.
func commands(p page) (found []string) {
	for _, b := range p.blocks {
		for line := range strings.Lines(b.text) {
			line = comment.ReplaceAllString(strings.TrimSpace(line), "")
			if match := command.FindStringSubmatch(line); match != nil && b.language != "go" {
				found = append(found, match[1])
			}
		}
	}
	for _, match := range codeSpan.FindAllStringSubmatch(p.text, -1) {
		found = append(found, match[1])
	}
	return found
}
