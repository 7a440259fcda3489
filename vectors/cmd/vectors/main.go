// Command vectors measures a server by the vectors and prints a table.
//
//	go run github.com/retrysafe/idempotency/vectors/cmd/vectors -url http://127.0.0.1:8080
//
// Without -url it measures this library's own middleware, in this process. The
// exit status is 0 if everything held, 1 if something did not, and 2 if the
// command was called wrongly or the vectors could not be run.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/memstore"
	"github.com/retrysafe/idempotency/vectors"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is main with its surroundings as arguments. It returns the exit status.
func run(ctx context.Context, args []string, out, errs io.Writer) int {
	set := flag.NewFlagSet("vectors", flag.ContinueOnError)
	set.SetOutput(errs)
	url := set.String("url", "", "the server to measure; empty: this library, in this process")
	level := set.String("level", "all", "which vectors to run: core, choice or all")
	names := set.String("run", "", "run only the vectors whose name matches this regular expression")
	patience := set.Duration("patience", 20*time.Second, "how long an answer may take")
	if err := set.Parse(args); err != nil {
		return 2
	}
	chosen, err := choose(*level, *names)
	if err != nil || set.NArg() > 0 {
		fmt.Fprintln(errs, "vectors: wrong arguments:", set.Args(), err)
		return 2
	}
	runner := &vectors.Runner{URL: strings.TrimSuffix(*url, "/"), Patience: *patience}
	if runner.URL == "" {
		server := own()
		defer server.Close()
		runner.URL = server.URL
	}
	if err := runner.Ping(ctx); err != nil {
		fmt.Fprintln(errs, "vectors: the server does not offer the test protocol:", err)
		return 2
	}
	return measure(ctx, runner, chosen, out)
}

func choose(level, names string) ([]vectors.Vector, error) {
	pattern, err := regexp.Compile(names)
	if err != nil {
		return nil, err
	}
	all, err := vectors.All()
	if err != nil {
		return nil, err
	}
	var chosen []vectors.Vector
	for _, v := range all {
		if (level == "all" || level == string(v.Level)) && pattern.MatchString(v.Name) {
			chosen = append(chosen, v)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("no vector of level %q has a name like %q", level, names)
	}
	return chosen, nil
}

// own starts this library's middleware.
func own() *httptest.Server {
	target := vectors.NewTarget()
	mw := idempotency.New(memstore.New(), target.User)
	server := httptest.NewUnstartedServer(target.Handler(mw.Handler, mw.With(idempotency.WithRequiredKey()).Handler))
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // of handlers that are told to panic
	server.Start()
	return server
}

// measure prints the table and returns the exit status.
func measure(ctx context.Context, runner *vectors.Runner, chosen []vectors.Vector, out io.Writer) int {
	var failed []string
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "vector\tlevel\tresult")
	for _, v := range chosen {
		result := "holds"
		if err := runner.Run(ctx, v); err != nil {
			result = "FAILS"
			failed = append(failed, fmt.Sprintf("%s: %s\n  %s\n", v.Name, v.Why, strings.ReplaceAll(err.Error(), "\n", "\n  ")))
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", v.Name, v.Level, result)
	}
	_ = table.Flush()
	fmt.Fprintf(out, "\n%d of %d hold\n", len(chosen)-len(failed), len(chosen))
	if len(failed) == 0 {
		return 0
	}
	fmt.Fprintf(out, "\n%s", strings.Join(failed, "\n"))
	return 1
}
