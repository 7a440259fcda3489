package soak_test

import (
	"fmt"
	"maps"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
)

// phase is what goes on while a sample is taken.
type phase string

const (
	origin phase = "origin" // before anything was opened
	start  phase = "start"  // the services are up, nothing was sent yet
	warmUp phase = "warm-up"
	load   phase = "load"
	rest   phase = "rest" // no traffic, every record has expired; once after warm-up and once after load
	end    phase = "end"  // all is closed
)

// sample is what was measured at one moment.
type sample struct {
	Phase      phase
	At         time.Duration
	Heap       int64 // bytes in use after a collection
	Held       int64 // of those, what the store says that it holds
	Goroutines int
	Files      int // open ones of the process; -1: the system does not tell
	Conns      int // to the store's server, as that server counts them
	Pooled     int // connections of the pools, those included that were cut and not yet missed
	Busy       int // of those, the ones that are in use
	Keys       int // in the store
	Tally      map[string]int64
}

// What is counted besides the outcomes and codes of the library, which are
// counted by their own names.
const (
	operations = "operations"
	requests   = "requests"
	runs       = "runs"
	hangUps    = "hang-ups"
	faults     = "faults"
	outages    = "outages"
	cuts       = "cuts"
	overtime   = "overtime" // a key in progress a lease after its last run, once; see probe
)

// tally counts what happens.
type tally struct {
	mu     sync.Mutex
	counts map[string]int64
}

func (t *tally) add(what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts[what]++
}

func (t *tally) snapshot() map[string]int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.counts)
}

// columns are those of the table of samples, from the first to the last.
var columns = []struct {
	name  string
	value func(s sample) any
}{
	{"phase", func(s sample) any { return s.Phase }},
	{"at", func(s sample) any { return s.At.Round(100 * time.Millisecond) }},
	{"heap KiB", func(s sample) any { return s.Heap >> 10 }},
	{"held KiB", func(s sample) any { return s.Held >> 10 }},
	{"goroutines", func(s sample) any { return s.Goroutines }},
	{"files", func(s sample) any { return s.Files }},
	{"conns", func(s sample) any { return s.Conns }},
	{"pooled", func(s sample) any { return s.Pooled }},
	{"busy", func(s sample) any { return s.Busy }},
	{"keys", func(s sample) any { return s.Keys }},
	{"requests", func(s sample) any { return s.Tally[requests] }},
	{"runs", func(s sample) any { return s.Tally[runs] }},
	{"replays", func(s sample) any { return s.Tally["replayed"] }},
	{"in progress", func(s sample) any { return s.Tally["request_in_progress"] }},
	{"outages", func(s sample) any { return s.Tally[outages] }},
}

// table returns the samples as a table.
func table(samples []sample) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(cell func(i int) any) {
		for i := range columns {
			fmt.Fprint(w, cell(i), "\t")
		}
		fmt.Fprintln(w)
	}
	row(func(i int) any { return columns[i].name })
	for _, s := range samples {
		row(func(i int) any { return columns[i].value(s) })
	}
	_ = w.Flush() // into memory
	return b.String()
}
