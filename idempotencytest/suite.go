package idempotencytest

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"time"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/memstore"
)

// attemptHeader tells the server which attempt a request is. It is taken off before
// anything else sees the request.
const attemptHeader = "Idempotencytest-Attempt"

// suite is one call of Hammer: two processes that share a store, and the
// operations that are tried on them.
type suite struct {
	config
	newRequest func(key string) *http.Request
	store      *memstore.Store
	processes  [2]*process
	client     *http.Client
	operations []*operation

	mu       sync.Mutex
	attempts []*attempt
	hung     bool
}

// process stands for a process of the service: its server, its Middleware and its
// connection to the store.
type process struct {
	number int
	mw     *idempotency.Middleware
	server *httptest.Server
}

type attemptKey struct{}

// attemptOf returns the attempt that a request's context belongs to.
func attemptOf(ctx context.Context) *attempt {
	a, _ := ctx.Value(attemptKey{}).(*attempt)
	return a
}

func (s *suite) start(handler http.Handler) {
	s.store = memstore.New()
	// A transport that uses a connection twice repeats keyed requests by itself.
	s.client = &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	for i := range s.processes {
		p := &process{number: i + 1}
		opts := append([]idempotency.Option{idempotency.WithLogger(slog.New(slog.DiscardHandler))}, s.middleware...)
		opts = append(opts, idempotency.WithObserver(observe))
		p.mw = idempotency.New(&faultyStore{s.store, i}, idempotency.SharedKeys, opts...)
		p.server = httptest.NewUnstartedServer(s.received(p.mw.Handler(counted(handler))))
		p.server.Config.ErrorLog = log.New(io.Discard, "", 0) // the story tells of panics
		p.server.Start()
		s.processes[i] = p
	}
}

func (s *suite) stop() {
	s.client.CloseIdleConnections()
	for _, p := range s.processes {
		if s.hung { // Close would wait for it
			p.server.CloseClientConnections()
			go p.server.Close()
			continue
		}
		p.server.Close()
	}
}

// received is what a request meets first: it finds out which attempt it is.
func (s *suite) received(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := s.attempt(r.Header.Get(attemptHeader))
		if a == nil {
			http.NotFound(w, r)
			return
		}
		r.Header.Del(attemptHeader)
		a.gone = r.Context().Done()
		defer close(a.served)
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), attemptKey{}, a)))
	})
}

func (s *suite) attempt(number string) *attempt {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := strconv.Atoi(number)
	if err != nil || n < 0 || n >= len(s.attempts) {
		return nil
	}
	return s.attempts[n]
}

// counted is what a request meets last before the user's handler: it counts the
// runs. The handler gets the Middleware's own ResponseWriter.
func counted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := attemptOf(r.Context())
		if a.enter != nil {
			a.enter()
		}
		n := a.op.begin(a)
		returned := false
		defer func() {
			var p any
			if !returned {
				p = recover()
			}
			a.op.end(n, returned, p)
			if a.leave != nil {
				a.leave()
			}
			if p != nil {
				panic(p)
			}
		}()
		next.ServeHTTP(w, r)
		returned = true
	})
}

// observe is the Observer of the Middlewares.
func observe(ctx context.Context, e idempotency.Event) {
	if a := attemptOf(ctx); a != nil {
		a.op.settled(a, e)
	}
}

// operation makes a new operation of newRequest. It is called by the goroutine of
// the test only.
func (s *suite) operation(scenario string, newRequest func(string) *http.Request) *operation {
	op := &operation{suite: s, scenario: scenario, key: newKey()}
	s.operations = append(s.operations, op)
	first, second := newRequest(op.key), newRequest(op.key)
	if first == nil || second == nil {
		op.fail("newRequest returned nil")
		return op
	}
	var err error
	if op.request, err = newTemplate(first); err != nil {
		op.fail("the body of newRequest's request cannot be read: %v", err)
		return op
	}
	again, err := newTemplate(second)
	if err != nil || !op.request.equal(again) {
		op.fail("newRequest returned two different requests for one key, so a retry would not be one: %v and %v", op.request, again)
	}
	return op
}

// newKey returns a random UUID: what the strictest check of keys takes.
func newKey() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// settleDown waits until nothing goes on behind the requests any more, and then for
// what goroutines of the handler may still do.
func (s *suite) settleDown() {
	ctx, cancel := context.WithTimeout(context.Background(), s.patience)
	defer cancel()
	for _, p := range s.processes {
		_ = p.mw.Drain(ctx)
	}
	if s.effects != nil {
		time.Sleep(s.grace)
	}
}

// count returns the effects of a key, 0 if they are not counted.
func (s *suite) count(key string) int {
	if s.effects == nil {
		return 0
	}
	return s.effects(key)
}

// report returns a line for each key.
func (s *suite) report() []string {
	lines := make([]string, len(s.operations))
	for i, op := range s.operations {
		lines[i] = op.summary()
	}
	return lines
}
