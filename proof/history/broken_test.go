package history_test

import (
	"context"
	"crypto/rand"
	"testing"
	"time"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/memstore"
)

// whole is a store that can be looked into.
type whole interface {
	idempotency.Store
	idempotency.Inspector
}

// broken is a store that breaks the contract in one point. Where a method is nil
// it does as it should.
type broken struct {
	whole
	claim    func(ctx context.Context, s whole, c idempotency.Claim) (*idempotency.Record, error)
	complete func(ctx context.Context, s whole, c idempotency.Claim, resp *idempotency.Response) error
	release  func(ctx context.Context, s whole, c idempotency.Claim) error
}

func (b broken) Claim(ctx context.Context, c idempotency.Claim, lease time.Duration) (*idempotency.Record, error) {
	if b.claim != nil {
		return b.claim(ctx, b.whole, c)
	}
	return b.whole.Claim(ctx, c, lease)
}

func (b broken) Complete(ctx context.Context, c idempotency.Claim, resp *idempotency.Response, ttl time.Duration) error {
	if b.complete != nil {
		return b.complete(ctx, b.whole, c, resp)
	}
	return b.whole.Complete(ctx, c, resp, ttl)
}

func (b broken) Release(ctx context.Context, c idempotency.Claim) error {
	if b.release != nil {
		return b.release(ctx, b.whole, c)
	}
	return b.whole.Release(ctx, c)
}

var brokenStores = []struct {
	name  string
	least int // how many requests and faults it takes to show; 0: that is a matter of chance
	store broken
}{
	{"everybody wins", 1, broken{claim: func(context.Context, whole, idempotency.Claim) (*idempotency.Record, error) {
		return nil, nil
	}}},
	{"a claim in two steps", 0, broken{claim: func(ctx context.Context, s whole, c idempotency.Claim) (*idempotency.Record, error) {
		if held, err := s.Lookup(ctx, c.Key); held != nil || err != nil {
			return held, err
		}
		time.Sleep(2 * time.Millisecond)
		_ = s.Forget(ctx, c.Key)
		return s.Claim(ctx, c, time.Minute)
	}}},
	{"the fingerprint is the asker's", 1, broken{claim: func(ctx context.Context, s whole, c idempotency.Claim) (*idempotency.Record, error) {
		held, err := s.Claim(ctx, c, time.Minute)
		if held != nil {
			held.Fingerprint = c.Fingerprint
		}
		return held, err
	}}},
	{"a completion that keeps nothing", 1, broken{complete: func(ctx context.Context, s whole, c idempotency.Claim, _ *idempotency.Response) error {
		return s.Release(ctx, c)
	}}},
	{"a completion in two steps", 0, broken{complete: func(ctx context.Context, s whole, c idempotency.Claim, resp *idempotency.Response) error {
		_ = s.Forget(ctx, c.Key)
		time.Sleep(2 * time.Millisecond)
		return s.Complete(ctx, c, resp, time.Hour)
	}}},
	{"a body that has changed", 1, broken{complete: func(ctx context.Context, s whole, c idempotency.Claim, resp *idempotency.Response) error {
		resp = resp.Clone()
		resp.Body = append(resp.Body, ' ')
		return s.Complete(ctx, c, resp, time.Hour)
	}}},
	{"a release of whatever is there", 0, broken{release: func(ctx context.Context, s whole, c idempotency.Claim) error {
		return s.Forget(ctx, c.Key)
	}}},
	{"a release of nothing", 1, broken{release: func(context.Context, whole, idempotency.Claim) error { return nil }}},
}

// TestBrokenStores: histories over a store that is wrong in one point are found
// out, or TestHistories proves nothing, and their stories are short.
func TestBrokenStores(t *testing.T) {
	for _, b := range brokenStores {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			b.store.whole = memstore.New()
			p := place{store: b.store}
			all := single(false, false)
			for i := range uint64(300) {
				all = append(all, random(1+i, false, false))
			}
			for _, s := range all {
				if wrong, _ := s.play(p, rand.Text()); wrong == "" {
					continue
				}
				least, story := shrink(s, p.story)
				t.Logf("%d requests and %d faults, cut down to %d and %d: %s",
					len(s.plans), s.faults(), len(least.plans), least.faults(), story)
				if b.least > 0 && least.size() > b.least {
					t.Errorf("it takes less: %v", least.plans)
				}
				return
			}
			t.Fatal("not found out")
		})
	}
}
