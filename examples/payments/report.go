package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"
)

// listed is how many failed promises are told at length.
const listed = 10

// writePlan says what is about to happen.
func writePlan(w io.Writer, cfg config, orders []*order) {
	n := make(map[fault]int)
	for _, o := range orders {
		n[o.fault]++
	}
	fmt.Fprintf(w, "%d payments by %d customers over TCP, store %s, seed %d. What happens to them:\n",
		cfg.payments, cfg.customers, cfg.storeName(), cfg.seed)
	for f := 0; f < len(deck); f += 2 {
		line := fmt.Sprintf("%5d %-36s", n[fault(f)], deck[f].words)
		if f+1 < len(deck) {
			line += fmt.Sprintf("%5d %s", n[fault(f+1)], deck[f+1].words)
		}
		fmt.Fprintln(w, strings.TrimRight(line, " "))
	}
	death := "before"
	if cfg.dieAfterCharge {
		death = "after"
	}
	fmt.Fprintf(w, "Handlers panic before the charge, and processes die %s it.\n\n", death)
}

// progress writes, until ctx ends, how far the crowds are: on a terminal one
// line that moves, elsewhere a line now and then.
func progress(ctx context.Context, w io.Writer, terminal bool, line func() string) {
	interval := time.Second
	if terminal {
		interval = 100 * time.Millisecond
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	begin := time.Now()
	for {
		over := false
		select {
		case <-ctx.Done():
			over = true
		case <-tick.C:
		}
		text := fmt.Sprintf("%5.1fs  %s", time.Since(begin).Seconds(), line())
		switch {
		case terminal && over:
			fmt.Fprintf(w, "\r%s\n\n", text)
		case terminal:
			fmt.Fprintf(w, "\r%s", text)
		case over:
			fmt.Fprintf(w, "%s\n\n", text)
		default:
			fmt.Fprintln(w, text)
		}
		if over {
			return
		}
	}
}

// bar draws done of all, always equally wide. Two of them fit into 80 columns,
// since a longer line would not move.
func bar(done, all int) string {
	const width = 10
	full := width
	if all > 0 {
		full = width * done / all
	}
	digits := len(fmt.Sprint(all))
	return fmt.Sprintf("[%s%s] %*d/%d", strings.Repeat("#", full), strings.Repeat(".", width-full), digits, done, all)
}

// writeReport writes the table and the verdict. with and without are the same
// crowd's results with the middleware and without it.
func writeReport(w io.Writer, cfg config, with, without *result, brokenOff bool) {
	fmt.Fprintf(w, "%-40s%12s%13s\n", "", "with the", "without the")
	fmt.Fprintf(w, "%-40s%12s%13s\n", "", "middleware", "middleware")
	row := func(name string, a, b any) { fmt.Fprintf(w, "%-40s%12v%13v\n", name, a, b) }
	row("payments wanted", with.Payments, without.Payments)
	if brokenOff {
		row("  of which settled", with.Settled, without.Settled)
	}
	row("HTTP attempts", with.Attempts, without.Attempts)
	row("handler runs", with.Runs, without.Runs)
	row("answers replayed", with.Replays, "-")
	row(`told "in progress"`, with.InProgress, "-")
	row(`told "another body, same key"`, with.Mismatches, "-")
	row("refused otherwise", with.Refused, "-")
	if cfg.reconcile {
		row("settled by asking the bank", with.Reconciled, "-")
	} else if cfg.atMostOnce {
		row(`left "outcome unknown"`, with.Unknown, "-")
	}
	fmt.Fprintln(w)
	except := fmt.Sprintf("%d declined", with.Declined)
	if n := with.Unknown - with.UnknownMade; n > 0 {
		except += fmt.Sprintf(", %d unknown", n)
	}
	row("charges wanted ("+except+")", with.Wanted, without.Wanted)
	row("CHARGES MADE", with.Made, without.Made)
	row("  doubled", with.Doubled, without.Doubled)
	row("  lost", with.Lost, without.Lost)
	row("answers that differ", with.Differing, without.Differing)
	fmt.Fprintln(w)
	writeVerdict(w, cfg, with, without, brokenOff)
}

func writeVerdict(w io.Writer, cfg config, with, without *result, brokenOff bool) {
	if brokenOff {
		fmt.Fprintln(w, "Broken off: payments that were not settled are judged by what is known of them.")
	}
	if len(without.Failures) > 0 {
		f := without.Failures[0]
		fmt.Fprintf(w, "Without the middleware, for example:\n  %s: %s\n  (%s)\n\n", f.Key, f.What, f.Story)
	}
	if n := len(with.Failures); n > 0 {
		fmt.Fprintf(w, "FAILED: with the middleware %d promises were not kept:\n", n)
		for _, f := range with.Failures[:min(n, listed)] {
			fmt.Fprintf(w, "  %s: %s\n    (%s)\n", f.Key, f.What, f.Story)
		}
		if n > listed {
			fmt.Fprintf(w, "  and %d more\n", n-listed)
		}
		if cfg.dieAfterCharge && !cfg.atMostOnce && !cfg.reconcile {
			fmt.Fprintln(w, "This is the limit that the documentation speaks of: a process that dies after the\n"+
				"charge and before the record leaves no trace of it. Add -at-most-once to have such\n"+
				"payments reported as unknown, or -reconcile to have the bank asked about them.")
		}
		return
	}
	if with.Asked > 0 {
		fmt.Fprintf(w, "Sent once more afterwards: %d of %d payments got the same answer, byte for byte.\n", with.Repeated, with.Asked)
	}
	if with.Unknown > 0 {
		fmt.Fprintf(w, "Of %d payments the customers were told that the outcome is unknown: %d are charged, once, %d are not.\n",
			with.Unknown, with.UnknownMade, with.Unknown-with.UnknownMade)
	}
	fmt.Fprintf(w, "OK: %d charges wanted, %d made. Without the middleware: %d made, %d of them again.\n",
		with.Wanted, with.Made, without.Made, without.Doubled)
}
