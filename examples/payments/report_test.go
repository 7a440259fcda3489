package main

import (
	"bytes"
	"context"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files")

func TestReport(t *testing.T) {
	t.Parallel()
	good := result{
		Payments: 250, Settled: 250, Declined: 13, Attempts: 547, Runs: 264, Replays: 195, InProgress: 63,
		Mismatches: 9, Refused: 16, Wanted: 237, Made: 237, Asked: 250, Repeated: 250,
	}
	doubled := failure{
		"order-0116-96350cf4", "charged 2 times instead of once",
		"planned: cut after the charge; customer-03 saw: cut, 201; the bank's book: ch_0004 of 15158 cents, ch_0008 of 15158 cents",
	}
	without := result{
		Payments: 250, Settled: 250, Declined: 13, Attempts: 484, Runs: 468,
		Wanted: 237, Made: 419, Doubled: 182, Differing: 21, Failures: []failure{doubled},
	}
	with := func(change func(*result)) result {
		r := good
		change(&r)
		return r
	}
	tests := []struct {
		name      string
		cfg       config
		with      result
		without   result
		brokenOff bool
	}{
		{name: "kept", with: good, without: without},
		{name: "nothing to tell", with: result{Payments: 1, Settled: 1, Wanted: 1, Made: 1, Attempts: 1, Runs: 1}, without: result{Payments: 1, Settled: 1, Wanted: 1, Made: 1, Attempts: 1, Runs: 1}},
		{name: "failed", without: without, with: with(func(r *result) {
			r.Made, r.Doubled, r.Differing = 249, 12, 1
			for range 12 {
				r.Failures = append(r.Failures, doubled)
			}
		})},
		{name: "died after the charge", cfg: config{dieAfterCharge: true}, without: without, with: with(func(r *result) {
			r.Made, r.Doubled, r.Failures = 238, 1, []failure{doubled}
		})},
		{name: "at most once", cfg: config{dieAfterCharge: true, atMostOnce: true}, without: without, with: with(func(r *result) {
			r.Unknown, r.UnknownMade, r.Wanted, r.Made, r.Asked, r.Repeated = 14, 5, 228, 228, 236, 236
		})},
		{name: "reconciled", cfg: config{dieAfterCharge: true, reconcile: true}, without: without, with: with(func(r *result) { r.Reconciled = 5 })},
		{name: "broken off", without: without, brokenOff: true, with: with(func(r *result) {
			r.Settled, r.Wanted, r.Made, r.Asked, r.Repeated = 120, 131, 131, 0, 0
		})},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			writeReport(&out, tt.cfg, &tt.with, &tt.without, tt.brokenOff)
			requireGolden(t, "report "+tt.name, out.Bytes())
		})
	}
}

func TestWritePlan(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	cfg := config{seed: 7, payments: 300, customers: 10, store: "postgres://root:secret@db:5432/x"}
	writePlan(&out, cfg, newOrders(cfg.seed, cfg.payments, cfg.customers))
	requireGolden(t, "plan", out.Bytes())
}

func requireGolden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name+".txt")
	if *update {
		require.NoError(t, os.WriteFile(file, got, 0o600))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got))
}

// Progress on a terminal is one line, written over and over; elsewhere it is
// lines of text.
func TestProgressEnds(t *testing.T) {
	t.Parallel()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tt := range []struct {
		terminal bool
		want     string
	}{{true, "\r  0.0s  half way\n\n"}, {false, "  0.0s  half way\n\n"}} {
		var out bytes.Buffer
		progress(over, &out, tt.terminal, func() string { return "half way" })
		require.Equal(t, tt.want, out.String())
	}
}

func TestBar(t *testing.T) {
	t.Parallel()
	require.Equal(t, "[..........]   0/250", bar(0, 250))
	require.Equal(t, "[#####.....] 125/250", bar(125, 250))
	require.Equal(t, "[##########] 250/250", bar(250, 250))
	require.Equal(t, "[##########] 0/0", bar(0, 0))
}
