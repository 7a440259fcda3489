package history_test

import (
	"context"
	"crypto/rand"
	"testing"
	"time"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/memstore"
)

// broken is a store that breaks the contract in one point. Where a method is nil
// it does as it should.
type broken struct {
	*memstore.Store
	claim    func(s *memstore.Store, c idempotency.Claim) (*idempotency.Record, error)
	complete func(s *memstore.Store, c idempotency.Claim, resp *idempotency.Response) error
	release  func(s *memstore.Store, c idempotency.Claim) error
}

func (b broken) Claim(ctx context.Context, c idempotency.Claim, lease time.Duration) (*idempotency.Record, error) {
	if b.claim != nil {
		return b.claim(b.Store, c)
	}
	return b.Store.Claim(ctx, c, lease)
}

func (b broken) Complete(ctx context.Context, c idempotency.Claim, resp *idempotency.Response, ttl time.Duration) error {
	if b.complete != nil {
		return b.complete(b.Store, c, resp)
	}
	return b.Store.Complete(ctx, c, resp, ttl)
}

func (b broken) Release(ctx context.Context, c idempotency.Claim) error {
	if b.release != nil {
		return b.release(b.Store, c)
	}
	return b.Store.Release(ctx, c)
}

var brokenStores = []struct {
	name  string
	store broken
}{
	{"everybody wins", broken{claim: func(*memstore.Store, idempotency.Claim) (*idempotency.Record, error) { return nil, nil }}},
	{"a claim in two steps", broken{claim: func(s *memstore.Store, c idempotency.Claim) (*idempotency.Record, error) {
		ctx := context.Background()
		if held, err := s.Lookup(ctx, c.Key); held != nil || err != nil {
			return held, err
		}
		time.Sleep(2 * time.Millisecond)
		_ = s.Forget(ctx, c.Key)
		return s.Claim(ctx, c, time.Minute)
	}}},
	{"the fingerprint is the asker's", broken{claim: func(s *memstore.Store, c idempotency.Claim) (*idempotency.Record, error) {
		held, err := s.Claim(context.Background(), c, time.Minute)
		if held != nil {
			held.Fingerprint = c.Fingerprint
		}
		return held, err
	}}},
	{"a completion that keeps nothing", broken{complete: func(s *memstore.Store, c idempotency.Claim, _ *idempotency.Response) error {
		return s.Release(context.Background(), c)
	}}},
	{"a completion in two steps", broken{complete: func(s *memstore.Store, c idempotency.Claim, resp *idempotency.Response) error {
		_ = s.Forget(context.Background(), c.Key)
		time.Sleep(2 * time.Millisecond)
		return s.Complete(context.Background(), c, resp, time.Hour)
	}}},
	{"a body that has changed", broken{complete: func(s *memstore.Store, c idempotency.Claim, resp *idempotency.Response) error {
		resp = resp.Clone()
		resp.Body = append(resp.Body, ' ')
		return s.Complete(context.Background(), c, resp, time.Hour)
	}}},
	{"a release of whatever is there", broken{release: func(s *memstore.Store, c idempotency.Claim) error {
		return s.Forget(context.Background(), c.Key)
	}}},
	{"a release of nothing", broken{release: func(*memstore.Store, idempotency.Claim) error { return nil }}},
}

// TestBrokenStores: histories over a store that is wrong in one point are found
// out, or TestHistories proves nothing.
func TestBrokenStores(t *testing.T) {
	for _, b := range brokenStores {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			b.store.Store = memstore.New()
			all := single(false, false)
			for i := range uint64(300) {
				all = append(all, random(1+i, false, false))
			}
			for _, s := range all {
				if wrong := s.run(b.store, rand.Text()); wrong != "" {
					t.Log(wrong)
					return
				}
			}
			t.Fatal("not found out")
		})
	}
}
