package idempotency_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/memstore"
)

// second is short, since the tables below are full of it.
const second = time.Second

// bubbleWorld is what one test in a synctest bubble has: a store, the processes
// that share it, and the handler that they all run. Timers that fire at the same
// fake instant fire in random order, so the tests look a millisecond after.
type bubbleWorld struct {
	*testing.T
	start time.Time
	seq   atomic.Int64
	store interface {
		idempotency.Store
		idempotency.Waiter
		idempotency.Inspector
	}
	processes []*bubbleProcess
	runs      atomic.Int32                                          // how often the handler ran, over all processes
	work      func(w http.ResponseWriter, r *http.Request, run int) // nil: bubbleCreated
}

// bubble runs f in a bubble of its own, and ends when nothing goes on behind
// requests any more. A bubble fails when a goroutine is left in it, so each test
// proves that there is none.
func bubble(t *testing.T, f func(b *bubbleWorld)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bubbleWorld{T: t, start: time.Now(), store: memstore.New()}
		defer func() {
			for _, p := range b.processes {
				_ = p.mw.Drain(context.Background()) // cannot fail
			}
		}()
		f(b)
	})
}

func (b *bubbleWorld) now() time.Duration { return time.Since(b.start) }

// until lets the time pass until d after the test's beginning.
func (b *bubbleWorld) until(d time.Duration) {
	b.Helper()
	require.LessOrEqual(b, b.now(), d, "the test's own clock ran past the point")
	time.Sleep(d - b.now())
	synctest.Wait()
}

func (b *bubbleWorld) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	run := int(b.runs.Add(1))
	if b.work != nil {
		b.work(w, r, run)
		return
	}
	bubbleCreated(w, run)
}

// bubbleCreated is an answer that cannot be taken for another run's.
func bubbleCreated(w http.ResponseWriter, run int) {
	w.Header().Set("Location", fmt.Sprintf("/things/%d", run))
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, "thing %d", run)
}

// takes makes every run of the handler take d, then answer.
func (b *bubbleWorld) takes(d time.Duration) {
	b.work = func(w http.ResponseWriter, _ *http.Request, run int) {
		time.Sleep(d)
		bubbleCreated(w, run)
	}
}

// bubbleProcess is a Middleware as one of several processes runs it.
type bubbleProcess struct {
	world   *bubbleWorld
	fake    *bubbleStore
	mw      *idempotency.Middleware
	handler http.Handler

	mu     sync.Mutex
	events []bubbleEvent
}

type bubbleEvent struct {
	idempotency.Event
	at time.Duration
}

// process returns a process on the world's store, which it can only poll.
func (b *bubbleWorld) process(opts ...idempotency.Option) *bubbleProcess {
	fake := &bubbleStore{inner: b.store, world: b}
	return b.processOn(fake, fake, opts...)
}

// waiting returns a process on the world's store that is told of changes.
func (b *bubbleWorld) waiting(opts ...idempotency.Option) *bubbleProcess {
	fake := &bubbleStore{inner: b.store, world: b}
	return b.processOn(fake, bubbleWaiter{fake}, opts...)
}

func (b *bubbleWorld) processOn(fake *bubbleStore, store idempotency.Store, opts ...idempotency.Option) *bubbleProcess {
	p := &bubbleProcess{world: b, fake: fake}
	observe := func(_ context.Context, e idempotency.Event) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.events = append(p.events, bubbleEvent{e, b.now()})
	}
	p.mw = idempotency.New(store, idempotency.SharedKeys, append([]idempotency.Option{
		idempotency.WithObserver(observe),
		idempotency.WithLogger(slog.New(slog.DiscardHandler)),
	}, opts...)...)
	p.handler = p.mw.Handler(b)
	b.processes = append(b.processes, p)
	return p
}

// event returns the only event so far.
func (p *bubbleProcess) event() bubbleEvent {
	p.world.Helper()
	events := p.all()
	require.Len(p.world, events, 1)
	return events[0]
}

func (p *bubbleProcess) all() []bubbleEvent {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]bubbleEvent(nil), p.events...)
}

// last returns the newest event.
func (p *bubbleProcess) last() bubbleEvent {
	p.world.Helper()
	events := p.all()
	require.NotEmpty(p.world, events)
	return events[len(events)-1]
}

// bubbleAnswer is what a client got, and how its request ended.
type bubbleAnswer struct {
	*httptest.ResponseRecorder
	world    *bubbleWorld
	done     chan struct{}
	at       time.Duration // when the request was over
	wrote    int64         // the sequence number of the header going out
	panicked any
	goexit   bool
}

func (a *bubbleAnswer) WriteHeader(status int) {
	if a.wrote == 0 {
		a.wrote = a.world.seq.Add(1)
	}
	a.ResponseRecorder.WriteHeader(status)
}

func (a *bubbleAnswer) Write(p []byte) (int, error) {
	if a.wrote == 0 {
		a.wrote = a.world.seq.Add(1)
	}
	return a.ResponseRecorder.Write(p)
}

// bubbleRequest is the request that all tests send.
func bubbleRequest(ctx context.Context, key, body string) *http.Request {
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/things", strings.NewReader(body))
	r.Header.Set("Idempotency-Key", key)
	return r
}

// begin sends a request and does not wait for its answer.
func (p *bubbleProcess) begin(r *http.Request) *bubbleAnswer {
	a := &bubbleAnswer{ResponseRecorder: httptest.NewRecorder(), world: p.world, done: make(chan struct{})}
	go func() {
		defer close(a.done)
		returned := false
		defer func() {
			a.at = p.world.now()
			if !returned {
				a.panicked = recover()
				a.goexit = a.panicked == nil
			}
		}()
		p.handler.ServeHTTP(a, r)
		returned = true
	}()
	return a
}

// start begins the usual request.
func (p *bubbleProcess) start() *bubbleAnswer {
	return p.begin(bubbleRequest(p.world.Context(), "K", "b1"))
}

// send sends the usual request and waits for its answer.
func (p *bubbleProcess) send() *bubbleAnswer { return p.start().wait() }

func (a *bubbleAnswer) wait() *bubbleAnswer {
	<-a.done
	return a
}

// over reports whether the request has ended by now.
func (a *bubbleAnswer) over() bool {
	synctest.Wait()
	select {
	case <-a.done:
		return true
	default:
		return false
	}
}

type bubbleProblem struct {
	Error          idempotency.Code `json:"error"`
	Retryable      bool             `json:"retryable"`
	RetryAfter     int              `json:"retry_after"`
	OriginalStatus int              `json:"original_status"`
}

// refused checks that the answer is a problem of that status and code.
func (a *bubbleAnswer) refused(status int, code idempotency.Code) bubbleProblem {
	t := a.world
	t.Helper()
	a.wait()
	require.Equal(t, status, a.Code, a.Body.String())
	require.Equal(t, "application/problem+json", a.Header().Get("Content-Type"))
	var p bubbleProblem
	require.NoError(t, json.Unmarshal(a.Body.Bytes(), &p))
	require.Equal(t, code, p.Error)
	header := a.Header().Get("Retry-After")
	if p.RetryAfter == 0 {
		require.Empty(t, header)
	} else {
		require.Equal(t, strconv.Itoa(p.RetryAfter), header)
	}
	return p
}

// busy checks that the answer is request_in_progress and returns its Retry-After.
func (a *bubbleAnswer) busy() time.Duration {
	a.world.Helper()
	p := a.refused(http.StatusConflict, idempotency.CodeInProgress)
	require.True(a.world, p.Retryable)
	require.Positive(a.world, p.RetryAfter)
	return time.Duration(p.RetryAfter) * second
}

// created checks that the answer is the run's own, at first hand.
func (a *bubbleAnswer) created(run int) *bubbleAnswer {
	a.world.Helper()
	a.thing(run)
	require.Empty(a.world, a.Header().Get("Idempotent-Replayed"))
	return a
}

// replayed checks that the answer is the run's, from its record.
func (a *bubbleAnswer) replayed(run int) *bubbleAnswer {
	a.world.Helper()
	a.thing(run)
	require.Equal(a.world, "true", a.Header().Get("Idempotent-Replayed"))
	return a
}

func (a *bubbleAnswer) thing(run int) {
	t := a.world
	t.Helper()
	a.wait()
	require.Equal(t, http.StatusCreated, a.Code, a.Body.String())
	require.Equal(t, fmt.Sprintf("/things/%d", run), a.Header().Get("Location"))
	body, err := io.ReadAll(strings.NewReader(a.Body.String()))
	require.NoError(t, err)
	require.Equal(t, fmt.Sprintf("thing %d", run), string(body))
}

// ran checks how often the handler has run.
func (b *bubbleWorld) ran(n int) {
	b.Helper()
	require.EqualValues(b, n, b.runs.Load(), "runs of the handler")
}

// forget removes the record of the usual request, or its claim.
func (b *bubbleWorld) forget() {
	b.Helper()
	require.NoError(b, b.store.Forget(b.Context(), bubbleKey()))
}

// lookup returns what the store has of the usual request.
func (b *bubbleWorld) lookup() *idempotency.Record {
	b.Helper()
	r, err := b.store.Lookup(b.Context(), bubbleKey())
	require.NoError(b, err)
	return r
}

func bubbleKey() idempotency.Key { return idempotency.NewKey("shared", "POST /things", "K") }

// goroutines returns how many goroutines live in this bubble.
func (b *bubbleWorld) goroutines() int {
	synctest.Wait()
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	return strings.Count(string(stacks), ", synctest bubble")
}
