package history_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"net"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/retrysafe/idempotency"
)

// brokenTx is broken for a store whose claim is a transaction.
type brokenTx struct {
	broken
	tx idempotency.TxStore
}

func (b brokenTx) Bind(ctx context.Context, c idempotency.Claim) context.Context {
	return b.tx.Bind(ctx, c)
}

// breakWire makes the stores that are reached through a proxy broken as b is.
func breakWire(p place, b broken) place {
	through := p.through
	p.through = func(addr *net.TCPAddr, timeout time.Duration) (idempotency.Store, func()) {
		store, closeStore := through(addr, timeout)
		b := b
		b.whole = store.(whole)
		if tx, ok := store.(idempotency.TxStore); ok {
			return brokenTx{b, tx}, closeStore
		}
		return b, closeStore
	}
	return p
}

// brokenReplies are stores that do as they should until a reply is lost.
var brokenReplies = []struct {
	name  string
	store broken
}{
	{"a claim repeated with another token", broken{claim: func(ctx context.Context, s whole, c idempotency.Claim) (*idempotency.Record, error) {
		held, err := s.Claim(ctx, c, time.Minute)
		if err != nil {
			c.Token = rand.Text()
			held, err = s.Claim(context.WithoutCancel(ctx), c, time.Minute)
		}
		return held, err
	}}},
	{"a record taken back because its reply was lost", broken{complete: func(ctx context.Context, s whole, c idempotency.Claim, resp *idempotency.Response) error {
		err := s.Complete(ctx, c, resp, time.Hour)
		if err != nil {
			_ = s.Forget(context.WithoutCancel(ctx), c.Key)
		}
		return err
	}}},
	{"a record that is taken for made", broken{complete: func(ctx context.Context, s whole, c idempotency.Claim, resp *idempotency.Response) error {
		_ = s.Complete(ctx, c, resp, time.Hour)
		return nil
	}}},
	{"a release repeated without its token", broken{release: func(ctx context.Context, s whole, c idempotency.Claim) error {
		err := s.Release(ctx, c)
		if err != nil {
			err = s.Forget(context.WithoutCancel(ctx), c.Key)
		}
		return err
	}}},
}

// TestBrokenReplies: stores that take a lost reply for what it is not are found
// out by faults of the wire, or TestWire proves nothing.
func TestBrokenReplies(t *testing.T) {
	for _, b := range brokenReplies {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			findOut(t, breakWire(onRedis(t, miniredis.RunT(t).Addr(), false), b.store))
		})
	}
	t.Run("a commit that is taken for done", func(t *testing.T) {
		t.Parallel()
		p := onPostgresTx(t)
		findOut(t, breakWire(p, brokenReplies[2].store))
	})
	t.Run("a handler that writes beside the transaction", func(t *testing.T) {
		t.Parallel()
		p := onPostgresTx(t)
		p.ledger.beside = true
		findOut(t, p)
	})
}

// findOut plays walks until one is wrong, which there has to be.
func findOut(t *testing.T, p place) {
	t.Helper()
	players := &players{T: t, place: p}
	counts, all := walks(p.ledger != nil)
	players.count(4, counts)
	for range 3 { // a machine that is busy can be in the way
		each(4, all, func(k walk) { k.play(players) })
	}
	if players.wrong == nil {
		t.Fatalf("not found out in %d histories, where a request has %d messages", players.plays, *counts[0].messages)
	}
	least, story := shrink(players.wrong.scenario, players.story)
	t.Logf("%s, cut down to %d requests and %d faults: %s",
		players.wrong.name, len(least.plans), least.faults(), cmp.Or(story, players.wrong.story))
}
