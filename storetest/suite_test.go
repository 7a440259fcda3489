package storetest_test

import (
	"context"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/storetest"
)

// TestRuleTexts compares the texts with those at idempotency.Store.
func TestRuleTexts(t *testing.T) {
	t.Parallel()
	file, err := parser.ParseFile(token.NewFileSet(), "../store.go", nil, parser.ParseComments)
	require.NoError(t, err)
	var doc string
	ast.Inspect(file, func(n ast.Node) bool {
		if d, ok := n.(*ast.GenDecl); ok && d.Tok == token.TYPE && d.Specs[0].(*ast.TypeSpec).Name.Name == "Store" {
			doc = d.Doc.Text()
		}
		return true
	})
	_, doc, ok := strings.Cut(doc, "The contract:")
	require.True(t, ok, "store.go no longer has the contract where it was")
	doc, _, _ = strings.Cut(doc, "\nContexts carry")
	var written []string
	for _, rule := range regexp.MustCompile(`(?m)^\s*\d+\. `).Split(doc, -1)[1:] {
		written = append(written, strings.Join(strings.Fields(rule), " "))
	}
	require.Len(t, written, 13)
	for i, text := range written {
		require.Equal(t, text, storetest.Rule(i+1), "rule %d", i+1)
	}
	require.Empty(t, storetest.Rule(0))
	require.Empty(t, storetest.Rule(14))
}

// check runs Check in a bubble.
func check(t *testing.T, newStore func() idempotency.Store, opts ...storetest.Option) (err error) {
	t.Helper()
	synctest.Test(t, func(*testing.T) { err = storetest.Check(newStore, opts...) })
	return err
}

func TestCheckAcceptsTheReference(t *testing.T) {
	t.Parallel()
	require.NoError(t, check(t, func() idempotency.Store { return newReference() },
		storetest.WithFull(smallReference), storetest.WithRounds(50)))
	require.NoError(t, check(t, func() idempotency.Store { return newReferenceTx() }, storetest.WithRounds(50)))
}

// plain hides everything but Store.
type plain struct{ idempotency.Store }

func TestCheckNeedsNoOptionalInterface(t *testing.T) {
	t.Parallel()
	require.NoError(t, check(t, func() idempotency.Store { return plain{newReference()} }, storetest.WithRounds(50)))
}

// TestCheckNamesTheCase is about a store with one fault: release does nothing to
// a lapsed claim.
func TestCheckNamesTheCase(t *testing.T) {
	t.Parallel()
	var fault fault
	for _, f := range releaseFaults() {
		if f.name == "release leaves the own lapsed claim" {
			fault = f
		}
	}
	err := check(t, func() idempotency.Store { return fault.store(0) }, storetest.WithRounds(50))
	all := ruleErrors(t, err)
	require.Len(t, all, 1)
	require.Equal(t, 9, all[0].Rule)
	require.Equal(t, "rule 09: release removes only its own claim/the own lapsed claim", all[0].Case)
	require.ErrorContains(t, all[0].Err, "the key should be absent")
	require.ErrorContains(t, err, "rule 9: "+storetest.Rule(9))
	require.ErrorIs(t, err, all[0].Err)
}

func TestCheckReportsPanics(t *testing.T) {
	t.Parallel()
	f := onExtend("", 8, func(*broken, extendFunc) extendFunc {
		return func(context.Context, idempotency.Claim, time.Duration) error { panic("boom") }
	})
	all := ruleErrors(t, check(t, func() idempotency.Store { return f.store(0) }, storetest.WithRounds(10)))
	require.NotEmpty(t, all)
	for _, broken := range all {
		require.Contains(t, broken.Error(), "panic: boom")
	}
}

func TestCheckRefusesBubbles(t *testing.T) {
	t.Parallel()
	err := storetest.Check(func() idempotency.Store { return newReference() }, storetest.WithSynctest())
	require.ErrorContains(t, err, "inside synctest.Test")
}

// stalling is a correct store on a machine that stops now and then, for longer
// than the leases of the cases.
type stalling struct {
	*reference
	mu   sync.Mutex
	dice *rand.Rand
}

func (s *stalling) stall() {
	s.mu.Lock()
	var d time.Duration
	if s.dice.IntN(4) == 0 {
		d = time.Duration(s.dice.Int64N(int64(150 * time.Millisecond)))
	}
	s.mu.Unlock()
	time.Sleep(d)
}

func (s *stalling) Claim(ctx context.Context, c idempotency.Claim, lease time.Duration) (*idempotency.Record, error) {
	s.stall()
	defer s.stall()
	return s.reference.Claim(ctx, c, lease)
}

func (s *stalling) Extend(ctx context.Context, c idempotency.Claim, lease time.Duration) error {
	s.stall()
	defer s.stall()
	return s.reference.Extend(ctx, c, lease)
}

func (s *stalling) Complete(
	ctx context.Context, c idempotency.Claim, r *idempotency.Response, ttl time.Duration,
) error {
	s.stall()
	defer s.stall()
	return s.reference.Complete(ctx, c, r, ttl)
}

func (s *stalling) Release(ctx context.Context, c idempotency.Claim) error {
	s.stall()
	defer s.stall()
	return s.reference.Release(ctx, c)
}

// TestStallsAreNoFaults runs the suite with many seeds on a store that is right
// and slow.
func TestStallsAreNoFaults(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		stalls := func(room int) func() idempotency.Store {
			return func() idempotency.Store {
				s := &stalling{reference: newReference(), dice: rand.New(rand.NewPCG(seed, 1))}
				s.room = room
				return s
			}
		}
		require.NoError(t, check(t, stalls(0), storetest.WithRounds(10), storetest.WithFull(stalls(8))), "seed %d", seed)
	}
}

// TestTooSlow is about a store that no case with a short lease can be run on.
func TestTooSlow(t *testing.T) {
	t.Parallel()
	slow := &fault{rule: 8, make: func(b *broken) {
		b.claim = func(ctx context.Context, c idempotency.Claim, lease time.Duration) (*idempotency.Record, error) {
			time.Sleep(time.Minute)
			return b.reference.Claim(ctx, c, lease)
		}
	}}
	err := check(t, func() idempotency.Store { return slow.store(0) }, storetest.WithRounds(1), storetest.OnlyRule(8))
	require.ErrorContains(t, err, "no verdict")
	require.ErrorContains(t, err, "WithTick")
}

// TestFakeServer has the store's clock moved by a function, as miniredis has it.
func TestFakeServer(t *testing.T) {
	t.Parallel()
	var current *reference
	newStore := func(*testing.T) idempotency.Store { current = newReference(); return current }
	advance := func(d time.Duration) { current.advance(d) }
	storetest.Run(t, newStore, storetest.WithSleep(advance), storetest.WithRounds(50))
}

func TestOptionsPanic(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]func(){
		"WithSleep":  func() { storetest.WithSleep(nil) },
		"WithTick":   func() { storetest.WithTick(0) },
		"WithRounds": func() { storetest.WithRounds(-1) },
		"WithFull":   func() { storetest.WithFull(nil) },
		"no store":   func() { _ = storetest.Check(func() idempotency.Store { return nil }) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Panics(t, f)
		})
	}
}

// TestFindsOnTheRealClock makes sure that nothing depends on a bubble.
func TestFindsOnTheRealClock(t *testing.T) {
	t.Parallel()
	faults := []fault{
		claimFaults()[0], extendFaults()[0], releaseFaults()[0], takeoverFaults()[0], timeFaults()[0], recordFaults()[0],
	}
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			err := storetest.Check(func() idempotency.Store { return f.store(0) }, storetest.OnlyRule(f.rule),
				storetest.WithTick(20*time.Millisecond))
			var broken *storetest.RuleError
			require.True(t, errors.As(err, &broken), "not caught: %v", err)
			require.Equal(t, f.rule, broken.Rule)
		})
	}
}
