package storetest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/retrysafe/idempotency"
)

// Rule returns the text of rule n of the store contract, 1 to 13, and "" for any
// other number.
func Rule(n int) string {
	rules := contract()
	if n < 1 || n > len(rules) {
		return ""
	}
	return rules[n-1].text
}

// kind says which stores a case is for.
type kind int

const (
	everyStore kind = iota
	leaseStore      // needs leases, and holders that can be seen
	txStore         // needs a TxStore
)

// testCase is one subtest.
type testCase struct {
	name  string
	on    kind
	timed bool // waits for time to pass
	full  bool // wants the small store of WithFull
	run   func(p *probe)
}

// group is one rule with its cases, or one optional interface.
type group struct {
	rule  int // 0: an optional interface
	name  string
	text  string
	cases []testCase
	notes []string
}

func (g group) title() string {
	if g.rule == 0 {
		return g.name
	}
	return fmt.Sprintf("rule %02d: %s", g.rule, g.name)
}

func (g group) sentence() string {
	if g.rule == 0 {
		return g.text
	}
	return fmt.Sprintf("rule %d: %s", g.rule, g.text)
}

// features is what a store is besides a Store.
type features struct{ tx, waiter, inspector bool }

func featuresOf(s idempotency.Store) (f features) {
	if s == nil {
		panic("storetest: newStore returned nil")
	}
	_, f.tx = s.(idempotency.TxStore)
	_, f.waiter = s.(idempotency.Waiter)
	_, f.inspector = s.(idempotency.Inspector)
	return f
}

// groups returns what is to be run on a store with these features. What is left
// out is said in the notes.
func groups(has features, cfg *config) []group {
	all := contract()
	if has.waiter {
		all = append(all, waiterGroup())
	}
	if has.inspector {
		all = append(all, inspectorGroup())
	}
	if has.tx {
		all = append(all, txGroup())
	}
	for i := range all {
		all[i].choose(has, cfg)
	}
	return all
}

// choose keeps the cases that this store can be tested with.
func (g *group) choose(has features, cfg *config) {
	var chosen []testCase
	var leases, bounded []string
	for _, c := range g.cases {
		switch {
		case cfg.wanted != nil && !cfg.wanted(g.rule, c.name):
		case c.on == leaseStore && has.tx:
			leases = append(leases, c.name)
		case c.full && cfg.newFull == nil:
			bounded = append(bounded, c.name)
		case c.on != txStore || has.tx:
			chosen = append(chosen, c)
		}
	}
	g.cases = chosen
	if len(leases) > 0 {
		note := "not run, because a TxStore's claims have no lease and its holders cannot be seen before they commit: " +
			strings.Join(leases, "; ") + "."
		if slices.ContainsFunc(chosen, func(c testCase) bool { return c.on == txStore }) {
			note += " What holds instead is tested by the cases named \"in a transaction\"."
		}
		g.notes = append(g.notes, note)
	}
	if len(bounded) > 0 {
		g.notes = append(g.notes, "not run, because the option WithFull is missing: "+strings.Join(bounded, "; "))
	}
}
