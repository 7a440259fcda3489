package history_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/retrysafe/idempotency/proof/internal/wire"
)

// scenario is some requests with one key, to two processes that share a store.
type scenario struct {
	name       string
	seed       uint64 // 0: not a random one
	atMostOnce bool
	plans      []plan
}

// plan is one request of a scenario, and what is to go wrong with it.
type plan struct {
	id      int
	body    string
	waits   moment        // for what; the first request waits for nothing
	after   time.Duration // how long after that it is sent
	takes   time.Duration // its handler
	lasts   bool          // its handler also waits until the request through a proxy is answered
	ending  int           // the status of its handler; 0: a panic
	process int
	faults  map[int]fault // by the number of the store call, from 1

	// wire are faults by the number of the message. Where it is not nil the
	// request has a process, and a way to the store's server, of its own.
	wire map[int]wire.Fault
}

// moment is what a request waits for.
type moment int

const (
	start    moment = iota
	running         // the first request's handler runs
	answered        // the first request has been answered
	struck          // a fault of the wire has come to pass
)

func (m moment) String() string { return [...]string{"start", "running", "answered", "struck"}[m] }

func (q plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "request %d (body %s, %s after %q, handler takes %s and ends with %d, process %d",
		q.id, q.body, q.after, q.waits, q.takes, q.ending, q.process)
	if q.lasts {
		b.WriteString(", runs until the request through a proxy is answered")
	}
	for _, at := range slices.Sorted(maps.Keys(q.faults)) {
		fmt.Fprintf(&b, ", call %d %s", at, q.faults[at])
	}
	if q.wire != nil {
		b.WriteString(", through a proxy")
	}
	for _, at := range slices.Sorted(maps.Keys(q.wire)) {
		fmt.Fprintf(&b, ", message %d %s", at, q.wire[at])
	}
	return b.String() + ")"
}

// text is the answer of the request's own run.
func (q plan) text() string { return fmt.Sprintf("run of request %d", q.id) }

// clone returns a scenario that can be changed without changing s.
func (s scenario) clone() scenario {
	s.plans = slices.Clone(s.plans)
	for i := range s.plans {
		s.plans[i].faults = maps.Clone(s.plans[i].faults)
		s.plans[i].wire = maps.Clone(s.plans[i].wire)
	}
	return s
}

// faults is how many faults are to strike.
func (s scenario) faults() (n int) {
	for _, q := range s.plans {
		n += len(q.faults) + len(q.wire)
	}
	return n
}

// last is the request without faults that follows when nothing goes on any more.
func (s scenario) last() plan {
	id := 0
	for _, q := range s.plans {
		id = max(id, q.id+1)
	}
	return plan{id: id, body: "b1", ending: 201}
}
