package simulation_test

import (
	"flag"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/idempotency/memstore"
)

var (
	seed      = flag.Uint64("seed", 0, "run the schedule of this seed, and tell its story")
	firstSeed = flag.Uint64("first", 1, "the seed to begin with")
	schedules = flag.Int("schedules", 2000, "how many schedules to run")
	without   = flag.String("without", "", "with -seed: what of its schedule is not to happen, with a ; between")
)

// TestSchedules runs schedules until one breaks a promise, and tells the shortest
// story of it that it finds, and how to have it again. A seed decides what goes wrong and when; the order of what happens
// at one instant of virtual time, and the library's own jitter, it does not.
func TestSchedules(t *testing.T) {
	first, n := *firstSeed, *schedules
	if *seed != 0 {
		first, n = *seed, 1
	}
	if raced {
		n /= 5
	}
	began := time.Now()
	var runs, crashes, calls int
	for s := first; s < first+uint64(n); s++ {
		w := run(t, s, parseWithout(*without), working)
		if *seed != 0 {
			t.Log(w)
		}
		if w.broken != "" {
			least := shrink(w, func(without map[string]bool) *world { return run(t, s, without, working) })
			t.Fatalf("%s\nagain: %s", least, least.again())
		}
		runs += len(w.runs)
		crashes += len(w.all) - len(w.processes)
		calls += len(w.claims)
	}
	took := time.Since(began)
	t.Logf("%d schedules, %d a second: %d runs of the handler, %d claims, %d crashes",
		n, int(float64(n)/took.Seconds()), runs, calls, crashes)
}

func working() store { return memstore.New() }

// run runs one schedule over a store made by newStore, within the bubble, by whose
// clock it goes.
func run(t *testing.T, seed uint64, without map[string]bool, newStore func() store) (w *world) {
	synctest.Test(t, func(*testing.T) { w = simulate(seed, without, newStore()) })
	return w
}
