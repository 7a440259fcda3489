// Command payments shows what package idempotency is for. It starts a payment
// API behind the middleware, and the same API without it, and sends both the same
// hostile crowd of customers over TCP: cut connections, time-outs, twins, panics
// and processes that die. At the end it compares the charges that were made with
// those that were wanted.
//
//	go run ./examples/payments
//	go run ./examples/payments -seed 7 -payments 1000 -customers 50
//	go run ./examples/payments -store redis://localhost:6379
//	go run ./examples/payments -store postgres://localhost/postgres
//	go run ./examples/payments -die-after-charge [-at-most-once | -reconcile]
//	go run ./examples/payments -serve :8080
//
// The exit status is 0 if every promise was kept, 1 if one was not or something
// else failed, 2 for wrong flags, and 130 if it was interrupted.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/retrysafe/idempotency"
)

// config is what the flags set.
type config struct {
	seed           uint64
	payments       int
	customers      int
	store          string
	serve          string
	dieAfterCharge bool
	atMostOnce     bool
	reconcile      bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, func() { time.AfterFunc(time.Second, stop) }) // another Ctrl-C, later, ends it at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is main with its surroundings as arguments; it returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cfg, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}
	store, closeStore, err := openStore(ctx, cfg)
	if err != nil {
		fmt.Fprintln(stderr, "payments:", err)
		return 1
	}
	defer closeStore()
	if cfg.serve != "" {
		if err := serve(ctx, cfg.serve, store, stdout); err != nil {
			fmt.Fprintln(stderr, "payments:", err)
			return 1
		}
		return 0
	}
	guarded, unguarded, err := show(ctx, cfg, store, stdout)
	if err != nil {
		fmt.Fprintln(stderr, "payments:", err)
		return 1
	}
	brokenOff := ctx.Err() != nil
	with, without := judge(guarded.stage, brokenOff), judge(unguarded.stage, brokenOff)
	writeReport(stdout, cfg, with, without, brokenOff)
	switch {
	case len(with.Failures) > 0:
		return 1
	case brokenOff:
		return 130
	}
	return 0
}

func parse(args []string, stderr io.Writer) (config, error) {
	var cfg config
	f := flag.NewFlagSet("payments", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Uint64Var(&cfg.seed, "seed", 1, "what goes wrong with which payment depends on this `number` alone")
	f.IntVar(&cfg.payments, "payments", 250, "how many payments are wanted")
	f.IntVar(&cfg.customers, "customers", 25, "how many customers want them")
	f.StringVar(&cfg.store, "store", "memory", "where records are kept: memory, redis://… or postgres://…")
	f.StringVar(&cfg.serve, "serve", "", "only serve the API, guarded, on this `address`, such as :8080")
	f.BoolVar(&cfg.dieAfterCharge, "die-after-charge", false, "processes die after the charge instead of before it")
	f.BoolVar(&cfg.atMostOnce, "at-most-once", false, "use the middleware's WithAtMostOnce: what a run that died has done stays unknown")
	f.BoolVar(&cfg.reconcile, "reconcile", false, "use WithAtMostOnce and a Reconciler that asks the bank what a run that died has done")
	if err := f.Parse(args); err != nil {
		return cfg, err
	}
	if cfg.payments < 1 || cfg.customers < 1 || f.NArg() > 0 {
		fmt.Fprintln(stderr, "payments: -payments and -customers must be above zero, and there are no arguments beside the flags")
		return cfg, errors.New("wrong flags")
	}
	return cfg, nil
}

// storeName is the store without its password.
func (c config) storeName() string {
	if u, err := url.Parse(c.store); err == nil && u.Scheme != "" {
		return u.Scheme + "://" + u.Host
	}
	return c.store
}

// show lets the crowd play with the middleware and without it, at the same time.
func show(ctx context.Context, cfg config, store idempotency.Store, out io.Writer) (guarded, unguarded *crowd, err error) {
	guarded, err = newCrowd(ctx, cfg, store)
	if err != nil {
		return nil, nil, err
	}
	unguarded, err = newCrowd(ctx, cfg, nil)
	if err != nil {
		return nil, nil, errors.Join(err, guarded.close(ctx))
	}
	writePlan(out, cfg, guarded.sorted)

	playing, played := context.WithCancel(context.Background())
	var shown, both sync.WaitGroup
	shown.Go(func() {
		progress(playing, out, isTerminal(out), func() string {
			return "guarded " + bar(int(guarded.settled.Load()), cfg.payments) +
				"   unguarded " + bar(int(unguarded.settled.Load()), cfg.payments)
		})
	})
	both.Go(func() {
		guarded.play(ctx)
		guarded.ask(ctx)
	})
	both.Go(func() { unguarded.play(ctx) }) // asking it again would charge everybody again
	both.Wait()
	played()
	shown.Wait()

	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if err := errors.Join(guarded.close(ending), unguarded.close(ending)); err != nil {
		return nil, nil, fmt.Errorf("ending the service: %w", err)
	}
	return guarded, unguarded, nil
}

// isTerminal reports whether a line on w can be written over.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
