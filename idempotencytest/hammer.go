package idempotencytest

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/idempotency"
)

// Hammer runs handler, guarded, through everything that retries and failures can
// do to it (the package documentation lists it) and reports what handler does
// wrong with t.Errorf, one error a fault, each with the story of its key. With
// t.Logf it reports for each key how often the handler ran and whether its answers
// agreed.
//
// handler is what would be given to idempotency.Middleware.Handler, or a router of
// such handlers: Hammer guards it itself, with a store in memory. It must not be
// guarded already. It is served by an httptest.Server and called from many
// goroutines at once, as in a service.
//
// newRequest returns a request of the operation that is known by key: one that
// handler carries out, with its method, path, headers (those of authentication,
// too) and body. Its host and scheme do not matter; the key header is set by
// Hammer. Equal keys must give equal requests, so that a retry is one. Requests of
// different keys may be equal. newRequest is called in the goroutine that called
// Hammer, so it may end the test. Hammer uses the network, so it cannot be called in
// a bubble of testing/synctest.
//
// Without [WithEffects] Hammer only sees how often the handler ran and what it
// answered: most faults need it.
func Hammer(t testing.TB, handler http.Handler, newRequest func(key string) *http.Request, opts ...Option) {
	t.Helper()
	h, err := hammer(handler, newRequest, opts)
	for _, line := range h.report() {
		t.Logf("%s", line)
	}
	for _, f := range failures(err) {
		t.Errorf("%v", f)
	}
}

// Check does what [Hammer] does, without package testing's help: it returns every
// fault, joined with [errors.Join], each a [*Failure]; nil if there is none.
func Check(handler http.Handler, newRequest func(key string) *http.Request, opts ...Option) error {
	_, err := hammer(handler, newRequest, opts)
	return err
}

// Failure is a fault that was found.
type Failure struct {
	// Scenario says what was being done to the handler, such as "twins".
	Scenario string

	// Key is the operation's. It is empty for a fault that is no key's.
	Key string

	// Problem says what is wrong, in one sentence.
	Problem string

	// Story is what happened to the key, in order.
	Story []string
}

// Error returns the scenario, the problem and the story.
func (f *Failure) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "idempotencytest: %s: %s", f.Scenario, f.Problem)
	if len(f.Story) > 0 {
		fmt.Fprintf(&b, "\n\tkey %s:", f.Key)
	}
	for i, line := range f.Story {
		fmt.Fprintf(&b, "\n\t%3d. %s", i+1, line)
	}
	return b.String()
}

// failures takes what errors.Join made apart.
func failures(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	if err != nil {
		return []error{err}
	}
	return nil
}

// Option changes what [Hammer] and [Check] do.
type Option func(*config)

type config struct {
	middleware []idempotency.Option
	keyHeader  string
	effects    func(key string) int
	invalid    func(key string) *http.Request
	once       bool
	grace      time.Duration
	patience   time.Duration
}

// WithEffects tells Hammer how to count the handler's side effects: effects
// returns how many there have been for the operation known by key, the value of
// the key header. One run of the handler must make exactly one. It is called from
// many goroutines at once.
func WithEffects(effects func(key string) int) Option {
	if effects == nil {
		panic("idempotencytest: WithEffects(nil): pass a function that counts the side effects of a key")
	}
	return func(c *config) { c.effects = effects }
}

// WithOneEffect has Hammer insist on at most one side effect and one and the same
// answer for a key also where the handler has to run again, after a crash or a lost
// lease: for a handler that finds its former run's work by itself, or passes a key
// from idempotency.Execution.Derive on.
func WithOneEffect() Option { return func(c *config) { c.once = true } }

// WithInvalid adds requests that the handler must refuse, with a status of 400 to
// 499 and no side effect: what its validation is for. By default Hammer sends
// bodies that are empty, cut off or followed by garbage, which the handler may
// refuse or carry out. newRequest has the meaning that Hammer's has.
func WithInvalid(newRequest func(key string) *http.Request) Option {
	if newRequest == nil {
		panic("idempotencytest: WithInvalid(nil): pass a function that returns a request to be refused")
	}
	return func(c *config) { c.invalid = newRequest }
}

// WithMiddleware has the handler guarded with these options, as the service does
// it. The key header has an option of its own, [WithKeyHeader]. Hammer needs the
// Observer for itself: one given here is not called. Abnormal ends are not logged
// unless a logger is given here, since Hammer brings them about on purpose. Leave
// the lease long, as it is by default: Hammer ends leases by itself.
func WithMiddleware(opts ...idempotency.Option) Option {
	return func(c *config) { c.middleware = append(c.middleware, opts...) }
}

// WithKeyHeader sets the name of the header that carries the key, for Hammer and
// the Middleware alike. Default "Idempotency-Key".
func WithKeyHeader(name string) Option {
	return func(c *config) {
		c.keyHeader = name
		c.middleware = append(c.middleware, idempotency.WithKeyHeader(name))
	}
}

// WithGrace sets for how long Hammer goes on looking for side effects when
// everything has been answered: of goroutines that outlive their request. Longer
// finds slower ones. Default 100 ms.
func WithGrace(d time.Duration) Option { return func(c *config) { c.grace = d } }

// WithPatience sets how long a request may take before Hammer reports it as hung.
// Default 30 seconds. It has to be far more than the handler needs on a machine that
// is busy with other things.
func WithPatience(d time.Duration) Option { return func(c *config) { c.patience = d } }

// hammer runs everything and returns what was done and every fault.
func hammer(handler http.Handler, newRequest func(string) *http.Request, opts []Option) (*suite, error) {
	if handler == nil || newRequest == nil {
		panic("idempotencytest: the handler or newRequest is nil: pass the handler to be tested and a function that makes its requests")
	}
	s := &suite{config: config{keyHeader: "Idempotency-Key", grace: 100 * time.Millisecond, patience: 30 * time.Second}, newRequest: newRequest}
	for _, opt := range opts {
		opt(&s.config)
	}
	s.start(handler)
	defer s.stop()
	if s.rehearse() {
		s.runAll()
	}
	s.settleDown()
	var found []error
	for _, op := range s.operations {
		for _, problem := range op.judge() {
			found = append(found, &Failure{Scenario: op.scenario, Key: op.key, Problem: problem, Story: op.story})
		}
	}
	return s, errors.Join(found...)
}
