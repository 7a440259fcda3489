package simulation_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"github.com/retrysafe/idempotency"
)

const (
	lease    = 30 * time.Second
	ttl      = 100 * lease
	longest  = 4 * lease // execution
	requests = 6         // of a schedule
)

// world is one schedule: the processes, the store they share, and what happened.
type world struct {
	seed       uint64
	faults     float64 // how likely a store call goes wrong
	calm       bool    // from now on nothing does
	atMostOnce bool
	reconciler bool

	start time.Time
	store store

	mu        sync.Mutex
	without   map[string]bool // what the seed would have, and does not happen
	mishaps   []string        // what has happened, and need not
	processes [3]*process
	all       []*process
	requests  []*asked
	runs      []*ran
	claims    map[string]*claimed // by token
	effects   map[string]int      // by key
	excused   map[string]bool     // keys whose handler has panicked after its effect
	story     []note
	broken    string
}

// store is what the processes share.
type store interface {
	idempotency.Store
	idempotency.Waiter
	idempotency.Inspector
}

type note struct {
	at     time.Duration
	format string
	args   []any
}

const broken = "BROKEN: "

func (w *world) now() time.Duration { return time.Since(w.start) }

// dice returns the random numbers of one actor. Each has its own, so that the
// order in which goroutines run does not change what anyone does.
func (w *world) dice(actor ...any) *rand.Rand {
	h := uint64(14695981039346656037)
	for _, c := range []byte(fmt.Sprint(actor...)) {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return rand.New(rand.NewPCG(w.seed, h))
}

// note adds to the story. The caller has the lock.
func (w *world) note(format string, args ...any) {
	w.story = append(w.story, note{w.now(), format, args})
}

// happens reports whether something that makes the schedule harder is to happen.
// The caller has the lock.
func (w *world) happens(format string, args ...any) bool {
	what := fmt.Sprintf(format, args...)
	if w.without[what] {
		return false
	}
	w.mishaps = append(w.mishaps, what)
	return true
}

func (w *world) tell(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.note(format, args...)
}

// fail says what is broken; the first one counts. The caller has the lock.
func (w *world) fail(format string, args ...any) {
	w.note(broken+format, args...)
	if w.broken == "" {
		w.broken = fmt.Sprintf(format, args...)
	}
}

func (w *world) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d (faults %.0f%%, at most once %t, reconciler %t): %s\n", w.seed, 100*w.faults, w.atMostOnce, w.reconciler, w.broken)
	for _, n := range w.story {
		fmt.Fprintf(&b, "%12s  %s\n", n.at, fmt.Sprintf(n.format, n.args...))
		if strings.HasPrefix(n.format, broken) {
			break // what follows is of no account
		}
	}
	return b.String()
}

// process is a process with its Middleware. Once it is dead nothing of it
// reaches the store, and its handlers have no effect.
type process struct {
	w       *world
	name    string
	died    chan struct{} // closed by its death
	deadAt  time.Duration
	dead    bool
	mw      *idempotency.Middleware
	handler http.Handler
}

func (w *world) newProcess(place int) *process {
	p := &process{w: w, name: fmt.Sprintf("P%d.%d", place, len(w.all)), died: make(chan struct{})}
	dice := w.dice("process", len(w.all))
	opts := []idempotency.Option{
		idempotency.WithLease(lease), idempotency.WithTTL(ttl), idempotency.WithMaxExecution(longest),
		idempotency.WithLogger(slog.New(slog.DiscardHandler)),
	}
	if w.atMostOnce {
		opts = append(opts, idempotency.WithAtMostOnce())
	}
	if w.reconciler {
		opts = append(opts, idempotency.WithReconciler(p.reconcile))
	}
	if dice.IntN(3) == 0 {
		if wait := moment(dice); w.happens("%s has twins wait", p.name) {
			opts = append(opts, idempotency.WithWait(wait))
		}
	}
	d := &door{p: p, nth: make(map[string]int)}
	var s idempotency.Store = d
	if dice.IntN(2) == 0 {
		s = waitingDoor{d}
	}
	p.mw = idempotency.New(s, idempotency.SharedKeys, opts...)
	p.handler = p.mw.Handler(http.HandlerFunc(p.serve))
	w.all = append(w.all, p)
	w.processes[place] = p
	return p
}

// crash kills p and starts another process in its place.
func (p *process) crash(why string) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	if p.dead {
		return
	}
	p.dead, p.deadAt = true, p.w.now()
	close(p.died)
	p.w.note("%s dies %s", p.name, why)
	for i, q := range p.w.processes {
		if q == p {
			p.w.newProcess(i)
		}
	}
}

func (p *process) isDead() bool {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	return p.dead
}

// moment is a time of any length that matters: nothing, a little, a beat, just
// under a lease, a lease, more than one.
func moment(dice *rand.Rand) time.Duration {
	unit := [...]time.Duration{0, time.Millisecond, time.Second, lease / 3, lease/3 + 1, lease - 1, lease, lease + 1, 2 * lease, 5 * lease}
	d := unit[dice.IntN(len(unit))]
	if dice.IntN(2) == 0 { // else things happen at the same instant, on purpose
		d += time.Duration(dice.Int64N(int64(lease)))
	}
	return d
}

// simulate runs one schedule in the bubble it is called in, but for what it is to
// be without.
func simulate(seed uint64, without map[string]bool, store store) *world {
	w := &world{
		seed: seed, without: without, start: time.Now(), store: store,
		claims: make(map[string]*claimed), effects: make(map[string]int), excused: make(map[string]bool),
	}
	dice := w.dice("world")
	w.faults = [...]float64{0, 0.05, 0.2, 0.5}[dice.IntN(4)]
	w.atMostOnce = dice.IntN(2) == 0
	w.reconciler = w.atMostOnce && dice.IntN(2) == 0
	w.mu.Lock()
	for i := range w.processes {
		w.newProcess(i)
	}
	w.mu.Unlock()

	var clients sync.WaitGroup
	for i := range requests {
		w.mu.Lock()
		comes := w.happens("request %d", i)
		w.mu.Unlock()
		if !comes {
			continue
		}
		clients.Go(func() { w.client(i) })
	}
	clients.Wait()
	w.drain()
	time.Sleep(20 * lease) // what the network has kept arrives, leases lapse
	synctest.Wait()
	w.calm = true
	w.afterwards()
	w.drain()
	return w
}

func (w *world) drain() {
	w.mu.Lock()
	all := append([]*process(nil), w.all...)
	w.mu.Unlock()
	for _, p := range all {
		_ = p.mw.Drain(context.Background()) // cannot fail
	}
}
