package storetest

import (
	"errors"
	"fmt"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/idempotency"
)

// Run tests the stores that newStore returns against the store contract. It
// runs one subtest for each rule and in it one for each case, every case on a
// fresh store. A failure prints the sentence of the rule that is broken and what
// was seen instead.
//
// newStore is called with the T of the case, so that it can register its
// clean-up there, and once with t itself, to see which interfaces the store has.
// A store that shares a server with the others needs a prefix or a table of its
// own. Cases that wait for time to pass run beside each other, so newStore must
// be safe for concurrent use; with [WithSleep] everything runs in sequence. Run
// returns when all cases have ended.
//
// Run starts subtests and so cannot be called inside a bubble of
// [testing/synctest]; see [WithSynctest].
func Run(t *testing.T, newStore func(t *testing.T) idempotency.Store, opts ...Option) {
	t.Helper()
	cfg := newConfig(opts)
	var has features
	cfg.inBubble(t, func(t *testing.T) { has = featuresOf(newStore(t)) })
	for _, g := range groups(has, cfg) {
		t.Run(g.title(), func(t *testing.T) {
			for _, note := range g.notes {
				t.Log(note)
			}
			for _, c := range g.cases {
				t.Run(c.name, func(t *testing.T) {
					if c.timed && !cfg.ownSleep {
						t.Parallel()
					}
					cfg.inBubble(t, func(t *testing.T) {
						fresh := func() idempotency.Store { return newStore(t) }
						if err := cfg.try(g, c, fresh); err != nil {
							t.Error(err)
						}
					})
				})
			}
		})
	}
}

// Check runs the cases of [Run] without package testing's help and returns
// every broken rule, joined with [errors.Join], each a [*RuleError]; nil if the
// store keeps the contract. [errors.As] finds the first of them, and the joined
// error's Unwrap() []error gives them all. The cases run in sequence, so on a real clock it
// takes some ten seconds. It may be called inside a bubble of
// [testing/synctest], where it takes no time at all.
func Check(newStore func() idempotency.Store, opts ...Option) error {
	cfg := newConfig(opts)
	if cfg.bubbles {
		return errors.New("storetest: WithSynctest is for Run; call Check inside synctest.Test instead")
	}
	var broken []error
	for _, g := range groups(featuresOf(newStore()), cfg) {
		for _, c := range g.cases {
			if err := cfg.try(g, c, newStore); err != nil {
				broken = append(broken, err)
			}
		}
	}
	return errors.Join(broken...)
}

// RuleError is a broken rule. [Check] returns them joined, and [Run] prints
// them.
type RuleError struct {
	// Rule is the number of the rule in the contract, 1 to 13, or 0 for what
	// the documentation of Waiter, Inspector or TxStore says.
	Rule int

	// Case names the case as Run names its subtest.
	Case string

	// Err says what was seen.
	Err error

	text string
}

// Error returns the case, what was seen, and the sentence of the rule.
func (e *RuleError) Error() string {
	return fmt.Sprintf("storetest: %s: %v\n\t%s", e.Case, e.Err, e.text)
}

// Unwrap returns what was seen.
func (e *RuleError) Unwrap() error { return e.Err }

// errTooSlow ends an attempt in which time ran away: a lease that the case
// needed was over before the case came to use it.
var errTooSlow = errors.New("too slow")

// attempts bounds how often a case is begun anew, each time with a tick twice
// as long.
const attempts = 6

// try runs one case, more than once if the machine stalled.
func (cfg *config) try(g group, c testCase, fresh func() idempotency.Store) error {
	tick := cfg.tick
	var err error
	for range attempts {
		if err = cfg.once(c, fresh, tick); !errors.Is(err, errTooSlow) {
			break
		}
		tick *= 2
	}
	if err == nil {
		return nil
	}
	if errors.Is(err, errTooSlow) {
		err = fmt.Errorf("no verdict: even with a tick of %v a lease was over before the store had answered; "+
			"WithTick sets a longer one", tick/2)
	}
	return &RuleError{Rule: g.rule, Case: g.title() + "/" + c.name, Err: err, text: g.sentence()}
}

// once runs one case on one store. Failures arrive as panics with an abort in
// them, which is how a case stops at the first thing that is wrong.
func (cfg *config) once(c testCase, fresh func() idempotency.Store, tick time.Duration) (err error) {
	if c.full {
		fresh = cfg.newFull
	}
	p := newProbe(fresh(), cfg, tick)
	defer p.close()
	defer func() {
		switch v := recover().(type) {
		case nil:
		case abort:
			err = v.err
		default:
			err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
		}
	}()
	c.run(p)
	return nil
}

// inBubble calls f, in a bubble of its own if that was asked for.
func (cfg *config) inBubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	if cfg.bubbles {
		synctest.Test(t, f)
		return
	}
	f(t)
}
