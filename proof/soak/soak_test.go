package soak_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/retrysafe/idempotency/pgstore"
	"github.com/retrysafe/idempotency/proof/internal/servers"
)

var soaking = flag.Duration("for", usual(), "how long each store is soaked")

// usual is as long as it takes when nothing else is said.
func usual() time.Duration {
	if raced {
		return 5 * time.Second
	}
	return 30 * time.Second
}

// order is what a process that soaks is told.
type order struct {
	Store    string        // by name
	Server   string        // address or URL
	Place    string        // prefix, schema, and name of connections
	For      time.Duration // rests included
	Keys     int           // the fewest to use
	Rate     int           // how many of them a second
	Patience time.Duration // before what has to happen counts as something that never will
	Leak     string        // what is to leak; "": nothing
}

// childOrder is the variable that makes the test binary a process that soaks.
// Memory, goroutines and files are a process's, so each store has one.
const childOrder = "PROOF_SOAK"

func TestMain(m *testing.M) {
	if text := os.Getenv(childOrder); text != "" {
		var o order
		if err := json.Unmarshal([]byte(text), &o); err != nil {
			panic(err)
		}
		go func() { // ends with its parent
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(1)
		}()
		serve(o, os.Stdout)
		return
	}
	_ = flag.Set("test.parallel", "20") // tests here only wait for other processes
	code := m.Run()
	servers.Stop()
	os.Exit(code)
}

// TestSoak soaks every store that can be had, side by side.
func TestSoak(t *testing.T) {
	t.Parallel()
	for _, store := range []string{"memstore", "redisstore", "pgstore.New", "pgstore.NewTx"} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			o := order{Store: store, For: *soaking, Keys: 400, Rate: 60, Patience: 2 * time.Minute}
			if raced {
				o.Keys, o.Rate = 60, 15
			}
			r := run(t, o)
			t.Logf("%s\n%s%s", store, table(r.Samples), summary(r))
			for _, wrong := range judge(r) {
				t.Error(wrong)
			}
		})
	}
}

// run soaks in a process of its own.
func run(t *testing.T, o order) report {
	t.Helper()
	prepare(t, &o)
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), childOrder+"="+string(text))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { // before the store's place goes
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	return read(out, needed(o))
}

// read reads what a process that soaks writes, up to its end.
func read(out io.Reader, needed []string) report {
	r := report{Needed: needed}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var l line
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			r.Problems = append(r.Problems, lines.Text())
			continue
		}
		r.Limit = max(r.Limit, l.Limit)
		if l.Sample != nil {
			r.Samples = append(r.Samples, *l.Sample)
		}
		if l.Problem != "" {
			r.Problems = append(r.Problems, l.Problem)
		}
	}
	return r
}

// needed is what has to happen in a soak of an order, or it has tried nothing.
func needed(o order) []string {
	needed := []string{
		operations, requests, runs, hangUps, faults, outages, "executed", "replayed", "released", "refused",
		"idempotency_key_missing", "idempotency_key_reused_with_different_params", "request_in_progress",
		"request_body_too_large", "handler_panicked", "store_unavailable",
	}
	switch {
	case raced: // too little happens for the rest to be certain
		return needed
	case o.Store == "pgstore.NewTx":
		return append(needed, "request_body_unreadable", "response_not_replayable", "not_committed")
	}
	return append(needed, "request_body_unreadable", "response_not_replayable",
		"unstored", "reconciled", "unguarded", "outcome_unknown")
}

// prepare finds the server of an order's store, and makes its place there.
func prepare(t *testing.T, o *order) {
	t.Helper()
	o.Place = "soak_" + strings.ToLower(rand.Text()[:12])
	switch o.Store {
	case "memstore":
	case "redisstore":
		o.Server = servers.RedisAddr(t)
	default:
		o.Server = servers.PostgresURL(t)
		makeSchema(t, o.Server, o.Place)
	}
}

func makeSchema(t *testing.T, url, schema string) {
	t.Helper()
	ctx := context.Background() // the schema goes after the test's own context
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if _, err := pool.Exec(ctx, "CREATE SCHEMA "+schema); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := pool.Exec(ctx, "DROP SCHEMA "+schema+" CASCADE"); err != nil {
			t.Error(err)
		}
	})
	if err := pgstore.New(pool, pgstore.WithTable(schema+".records")).Migrate(ctx); err != nil {
		t.Fatal(err)
	}
}

// summary is a report in one line.
func summary(r report) string {
	rests := r.all(rest)
	if len(rests) != 2 {
		return "the soak broke off"
	}
	first, last := rests[0], rests[1]
	n := last.Tally
	most := 0
	for _, s := range r.Samples {
		most = max(most, s.Keys)
	}
	return fmt.Sprintf("%v: %d keys, %d requests, %d runs, %d replays, %d in progress, %d outages, %d cuts, %d faults, "+
		"%d times a key in progress a lease after its last call; "+
		"heap at rest %d KiB, then %d KiB; goroutines %d, %d; connections %d, %d; at most %d keys at a time",
		r.Samples[len(r.Samples)-1].At.Round(time.Second), n[operations], n[requests], n[runs], n["replayed"],
		n["request_in_progress"], n[outages], n[cuts], n[faults], n[overtime],
		first.Heap>>10, last.Heap>>10, first.Goroutines, last.Goroutines, first.Conns, last.Conns, most)
}
