package simulation_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/memstore"
)

// tries is how often a smaller schedule has to keep every promise before it
// counts as keeping them: not all of it is the seed's.
const tries = 5

// shrink leaves out of a schedule that broke a promise whatever it breaks one
// without: requests, faults, crashes, and what else may happen. run runs the
// schedule without some of it.
func shrink(w *world, run func(without map[string]bool) *world) *world {
	for smaller := true; smaller; {
		smaller = false
		for _, what := range w.mishaps {
			less := maps.Clone(w.without)
			if less == nil {
				less = make(map[string]bool)
			}
			less[what] = true
			if v := breaks(less, run); v != nil {
				w, smaller = v, true
				break
			}
		}
	}
	return w
}

// breaks returns a world that is broken although it is without some of it, or nil.
func breaks(without map[string]bool, run func(map[string]bool) *world) *world {
	for range tries {
		if w := run(without); w.broken != "" {
			return w
		}
	}
	return nil
}

// again is the command that runs the schedule again, a few times, since not all
// of it is the seed's.
func (w *world) again() string {
	command := fmt.Sprintf("go test -v ./simulation -run TestSchedules -count 10 -seed %d", w.seed)
	if len(w.without) > 0 {
		command += fmt.Sprintf(" -without '%s'", strings.Join(slices.Sorted(maps.Keys(w.without)), ";"))
	}
	return command
}

func parseWithout(list string) map[string]bool {
	without := make(map[string]bool)
	for what := range strings.SplitSeq(list, ";") {
		if what != "" {
			without[what] = true
		}
	}
	return without
}

// everybodyWins is a store that gives the key to whoever asks.
type everybodyWins struct{ *memstore.Store }

func (everybodyWins) Claim(context.Context, idempotency.Claim, time.Duration) (*idempotency.Record, error) {
	return nil, nil
}

// forgetful is a store whose releases free the key whoever has it.
type forgetful struct{ *memstore.Store }

func (s forgetful) Release(ctx context.Context, c idempotency.Claim) error {
	return s.Forget(ctx, c.Key)
}

// TestShrink: schedules over broken stores are found out, and cut down to a short
// story.
func TestShrink(t *testing.T) {
	for _, tt := range []struct {
		name  string
		store func() store
		least int // how many things have to happen
	}{
		{"everybody wins", func() store { return everybodyWins{memstore.New()} }, 2},
		{"a release of whatever is there", func() store { return forgetful{memstore.New()} }, 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for s := uint64(1); s <= 1000; s++ {
				again := func(without map[string]bool) *world { return run(t, s, without, tt.store) }
				w := again(nil)
				if w.broken == "" {
					continue
				}
				least := shrink(w, again)
				t.Logf("%d things happened, %d had to: %v\n%s\nagain: %s",
					len(w.mishaps), len(least.mishaps), least.mishaps, least, least.again())
				if len(least.mishaps) > tt.least {
					t.Error("it takes less")
				}
				return
			}
			t.Fatal("not found out")
		})
	}
}
