package soak_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retrysafe/idempotency"
)

// soak is one store with its services and clients, in a process of its own.
type soak struct {
	*tally
	order     order
	out       *json.Encoder
	began     time.Time
	book      *book
	weather   *weather
	backend   *backend
	processes []*process
	targets   []route
	endings   []string

	seen atomic.Int64 // samples of the traffic that runs
	base *http.Transport
	web  *http.Client

	leakyObserver idempotency.Observer // nil but in a soak that has to leak

	mu       sync.Mutex
	problems int
}

// line is one line of what a soak writes: a sample or a problem.
type line struct {
	Sample  *sample
	Limit   int
	Problem string
}

// serve soaks as it is ordered and writes lines to out.
func serve(o order, out io.Writer) {
	t := &tally{counts: make(map[string]int64)}
	s := &soak{
		tally: t, order: o, out: json.NewEncoder(out), began: time.Now(),
		book:    &book{entries: make(map[string]*entry)},
		weather: &weather{tally: t},
		base:    &http.Transport{MaxIdleConnsPerHost: 100},
	}
	s.web = &http.Client{Transport: s.base}
	s.weather.problem = s.problem
	if err := s.course(context.Background()); err != nil {
		s.problem("%v", err)
	}
}

// course is the whole of it: the traffic that warms up, a rest, the traffic that
// is measured, another rest, and the end.
func (s *soak) course(ctx context.Context) error {
	if err := settleIn(); err != nil {
		return err
	}
	first := s.sample(origin)
	s.write(line{Sample: first})
	if err := s.open(ctx); err != nil {
		return err
	}
	before := 0
	started, err := s.settled(func() (*sample, error) { return s.measured(ctx, start) }, func(now *sample) bool {
		steady := now.Goroutines == before // what opening has begun is over
		before = now.Goroutines
		return steady
	})
	if err != nil {
		return err
	}
	s.write(line{Sample: started, Limit: s.backend.limit})
	traffic := max(s.order.For-2*life, s.order.For/4)
	for _, part := range []struct {
		phase phase
		takes time.Duration
		keys  int
	}{
		{warmUp, traffic / 5, s.order.Keys / 3},
		{load, traffic - traffic/5, s.order.Keys},
	} {
		if err := s.traffic(ctx, part.phase, part.takes, part.keys); err != nil {
			return err
		}
		if err := s.rest(ctx, started); err != nil {
			return err
		}
	}
	return s.finish(ctx, first)
}

// open opens the store and two processes over it.
func (s *soak) open(ctx context.Context) (err error) {
	if s.backend, err = openBackend(ctx, s.order); err != nil {
		return err
	}
	for _, store := range s.backend.stores {
		s.processes = append(s.processes, s.newProcess(s.spoilt(store)))
	}
	_, tx := s.backend.stores[0].(idempotency.TxStore)
	s.usable(tx)
	return nil
}

// traffic lets clients work for some time, and until they have used some keys
// and been measured often enough. It returns when all have their answers.
func (s *soak) traffic(ctx context.Context, p phase, takes time.Duration, keys int) error {
	blowing, calm := context.WithCancel(ctx)
	var clients, others sync.WaitGroup
	others.Go(func() {
		if err := s.weather.blow(blowing, s.backend.cut); err != nil {
			s.problem("cutting connections: %v", err)
		}
	})
	measured := make(chan error, 1)
	others.Go(func() { measured <- s.watch(blowing, p, max(takes/40, 150*time.Millisecond)) })
	pace := time.NewTicker(time.Second / time.Duration(s.order.Rate))
	defer pace.Stop()
	room := make(chan struct{}, min(crowd, 2*s.order.Rate))
	over := time.Now().Add(takes)
	for n := 0; n < keys || time.Now().Before(over) || s.seen.Load() < enough; n++ {
		<-pace.C
		room <- struct{}{}
		clients.Go(func() {
			s.operate(ctx)
			<-room
		})
	}
	calm()
	others.Wait()
	clients.Wait()
	return <-measured
}

// watch takes samples until ctx ends.
func (s *soak) watch(ctx context.Context, p phase, every time.Duration) error {
	for s.seen.Store(0); pause(ctx, every); s.seen.Add(1) {
		now, err := s.measured(context.WithoutCancel(ctx), p)
		if err != nil {
			s.seen.Store(enough)
			return err
		}
		s.write(line{Sample: now})
	}
	return nil
}

// enough samples have four to a quarter.
const enough = 16

// crowd is how many keys are in use at a time at most. Where the machine is slow
// it is what keeps the traffic in bounds.
const crowd = 120

// rest waits until nothing is left of the traffic, and takes a sample then, or
// when that never comes: the judge will see why.
func (s *soak) rest(ctx context.Context, started *sample) error {
	now, err := s.settled(func() (*sample, error) {
		s.backend.rest()
		return s.measured(ctx, rest)
	}, func(now *sample) bool {
		j := &judgement{}
		j.atRest(0, *started, *now, s.backend.limit)
		return len(j.wrong) == 0
	})
	if err == nil {
		s.write(line{Sample: now})
		started.Goroutines = min(started.Goroutines, now.Goroutines)
	}
	return err
}

// finish drains and closes everything.
func (s *soak) finish(ctx context.Context, first *sample) error {
	draining, cancel := context.WithTimeout(ctx, s.order.Patience)
	defer cancel()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		for _, p := range s.processes {
			p.server.Close()
			if err := p.mw.Drain(draining); err != nil {
				s.problem("%v", err)
			}
		}
		s.base.CloseIdleConnections()
		s.backend.close()
	}()
	select {
	case <-closed:
	case <-draining.Done():
		s.problem("the servers, the Middlewares or the store do not end")
	}
	unconnected, err := s.settled(func() (*sample, error) { return s.measured(ctx, end) }, func(now *sample) bool {
		return now.Conns == 0
	})
	if err != nil {
		return err
	}
	s.backend.end()
	last, err := s.settled(func() (*sample, error) { return s.sample(end), nil }, func(now *sample) bool {
		j := &judgement{}
		j.atEnd(*first, *now)
		return len(j.wrong) == 0
	})
	if err != nil {
		return err
	}
	last.Conns, last.Keys = unconnected.Conns, unconnected.Keys
	s.write(line{Sample: last})
	return nil
}

// settled takes samples until one is good or the patience is over, and returns
// the last.
func (s *soak) settled(take func() (*sample, error), good func(*sample) bool) (*sample, error) {
	for over := time.Now().Add(s.order.Patience); ; pause(context.Background(), 100*time.Millisecond) {
		s.base.CloseIdleConnections()
		now, err := take()
		if err != nil || good(now) || time.Now().After(over) {
			return now, err
		}
	}
}

// sample measures this process.
func (s *soak) sample(p phase) *sample {
	runtime.GC()
	runtime.GC() // what pools have kept over the first
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return &sample{
		Phase: p, At: time.Since(s.began), Heap: int64(m.HeapAlloc),
		Goroutines: runtime.NumGoroutine(), Files: openFiles(), Tally: s.snapshot(),
	}
}

// measured measures this process and the store.
func (s *soak) measured(ctx context.Context, p phase) (*sample, error) {
	now := s.sample(p)
	if err := s.backend.measure(ctx, now); err != nil {
		return nil, fmt.Errorf("measuring: %w", err)
	}
	return now, nil
}

// settleIn has the runtime make what it keeps for good: the files of its network
// poller, and the descriptors of as many goroutines as the crowd may have.
func settleIn() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	stay := make(chan struct{})
	var all sync.WaitGroup
	for range loadGoroutines {
		all.Go(func() { <-stay })
	}
	close(stay)
	all.Wait()
	return l.Close()
}

// openFiles counts the process's open files, or returns -1.
func openFiles() int {
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return -1
	}
	return len(names)
}

func (s *soak) write(l line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.out.Encode(l) // who reads this has gone: the process ends
}

// problem reports what is wrong, the first twenty times.
func (s *soak) problem(format string, args ...any) {
	s.mu.Lock()
	s.problems++
	n := s.problems
	s.mu.Unlock()
	if n <= 20 {
		s.write(line{Problem: fmt.Sprintf(format, args...)})
	}
}
