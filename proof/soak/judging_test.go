package soak_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// sound is the report of a soak in which all is flat, as figures scatter: rate
// requests a second, for so long.
func sound(dice *rand.Rand, rate int64, lasting time.Duration) report {
	r := report{Limit: 16, Needed: []string{requests}}
	add := func(p phase, at time.Duration, s sample) {
		done := rate * int64(at/time.Second)
		s.Phase, s.At, s.Tally = p, at, map[string]int64{requests: done, operations: done / 4}
		r.Samples = append(r.Samples, s)
	}
	quiet := func() sample {
		return sample{Heap: 600<<10 + dice.Int64N(100<<10), Goroutines: 8, Files: 10 + 12, Conns: 12, Pooled: 12}
	}
	add(origin, 0, sample{Heap: 200 << 10, Goroutines: 2, Files: 8})
	add(start, 0, sample{Heap: 400 << 10, Goroutines: 8, Files: 10})
	add(rest, time.Second, quiet())
	for at := time.Second; at < lasting; at += lasting / 60 {
		held := dice.Int64N(2 << 20)
		add(load, at, sample{
			Heap: 3<<20 + held + dice.Int64N(6<<20), Held: held, Goroutines: 100 + dice.IntN(200), Files: 40 + dice.IntN(60),
			Conns: 4 + dice.IntN(16), Busy: dice.IntN(16), Keys: int(min(rate, 1000)) + dice.IntN(100),
		})
	}
	add(rest, lasting, quiet())
	add(end, lasting, sample{Heap: 500 << 10, Goroutines: 2, Files: 8})
	return r
}

// each changes the samples of a phase; n is how many requests there were before.
func each(r report, p phase, change func(s *sample, n int64)) {
	for i := range r.Samples {
		if s := &r.Samples[i]; s.Phase == p {
			change(s, s.Tally[requests])
		}
	}
}

// TestJudge: the judge accepts what scatters, and finds out what grows or stays.
func TestJudge(t *testing.T) {
	for _, c := range []struct {
		name    string
		spoil   func(r *report)
		verdict string // "": nothing is wrong
	}{
		{"all flat", func(*report) {}, ""},
		{"connections that go", func(r *report) {
			each(*r, rest, func(s *sample, _ int64) { s.Conns, s.Pooled, s.Files = 0, 0, 10 })
		}, ""},
		{"cut connections that the pools have not missed", func(r *report) {
			each(*r, rest, func(s *sample, _ int64) { s.Conns = 5 })
		}, ""},
		{"a pool above its size", func(r *report) {
			each(*r, rest, func(s *sample, _ int64) { s.Pooled, s.Files = 17, 10+17 })
		}, "pooled connections: "},
		{"a system that does not tell its files", func(r *report) {
			for i := range r.Samples {
				r.Samples[i].Files = -1
			}
		}, ""},
		{"1 KiB kept of each request", func(r *report) {
			each(*r, rest, func(s *sample, n int64) { s.Heap += n << 10 })
		}, "heap: "},
		{"200 bytes kept of each request", func(r *report) {
			each(*r, rest, func(s *sample, n int64) { s.Heap += n * 200 })
		}, "heap: "},
		{"1 KiB kept of each request while traffic lasts", func(r *report) {
			each(*r, load, func(s *sample, n int64) { s.Heap += n << 10 })
		}, "heap beside records: "},
		{"a goroutine for each request while traffic lasts", func(r *report) {
			each(*r, load, func(s *sample, n int64) { s.Goroutines += int(n) })
		}, "goroutines: "},
		{"one goroutine left", func(r *report) {
			each(*r, rest, func(s *sample, _ int64) { s.Goroutines++ })
		}, "goroutines: "},
		{"one goroutine left that opening had, too", func(r *report) {
			each(*r, start, func(s *sample, _ int64) { s.Goroutines += 2 })
			r.Samples[len(r.Samples)-2].Goroutines++
		}, "goroutines: "},
		{"one goroutine left in the end", func(r *report) {
			each(*r, end, func(s *sample, _ int64) { s.Goroutines++ })
		}, "goroutines: "},
		{"one file left open", func(r *report) {
			each(*r, rest, func(s *sample, _ int64) { s.Files++ })
		}, "files: "},
		{"one file left open in the end", func(r *report) {
			each(*r, end, func(s *sample, _ int64) { s.Files++ })
		}, "files: "},
		{"a connection beside the pools", func(r *report) {
			each(*r, rest, func(s *sample, _ int64) { s.Conns, s.Files = 17, 10+17 })
		}, "connections: "},
		{"connections that grow while traffic lasts", func(r *report) {
			each(*r, load, func(s *sample, n int64) { s.Conns += int(n / 100) })
		}, "connections: "},
		{"one connection left in the end", func(r *report) {
			each(*r, end, func(s *sample, _ int64) { s.Conns = 1 })
		}, "connections: "},
		{"one connection not given back", func(r *report) {
			each(*r, rest, func(s *sample, _ int64) { s.Busy = 1 })
		}, "busy connections: "},
		{"one key left", func(r *report) {
			each(*r, rest, func(s *sample, _ int64) { s.Keys = 1 })
		}, "keys: "},
		{"keys that gather while traffic lasts", func(r *report) {
			each(*r, load, func(s *sample, n int64) { s.Keys += int(n) / 4 })
		}, "keys: "},
		{"a stuck key", func(r *report) { r.Problems = append(r.Problems, "key K is stuck") }, "key K is stuck"},
		{"nothing tried", func(r *report) { r.Needed = append(r.Needed, "replayed") }, "no replayed"},
		{"an end too soon", func(r *report) { r.Samples = r.Samples[:len(r.Samples)-1] }, "broke off"},
		{"too few samples", func(r *report) {
			r.Samples = append(r.Samples[:10:10], r.Samples[len(r.Samples)-2:]...)
		}, "samples under load"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for seed := range uint64(50) {
				r := sound(rand.New(rand.NewPCG(seed, 0)), 400, 10*time.Minute)
				c.spoil(&r)
				wrong := strings.Join(judge(r), "; ")
				if c.verdict == "" && wrong != "" || !strings.Contains(wrong, c.verdict) {
					t.Fatalf("seed %d: judged as %q, not %q", seed, wrong, c.verdict)
				}
			}
		})
	}
}

// TestJudgeOfSpeed: traffic that becomes five times as quick fills the store, and
// nothing leaks for that.
func TestJudgeOfSpeed(t *testing.T) {
	r := sound(rand.New(rand.NewPCG(1, 0)), 500, time.Minute)
	each(r, load, func(s *sample, n int64) {
		s.Keys = 140
		if s.At > 30*time.Second {
			s.Keys = 740
		}
	})
	if wrong := judge(r); len(wrong) > 0 {
		t.Error(wrong)
	}
}
