package idempotency_test

import (
	"context"
	"time"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/memstore"
)

// fakeStore is a working store of which single calls can be delayed, made to
// fail or made to lose their reply. The hooks are set before it is used; one that
// is nil lets the call through.
type fakeStore struct {
	*memstore.Store
	claim    func(next func() (*idempotency.Record, error)) (*idempotency.Record, error)
	extend   func(next func() error) error
	complete func(next func() error) error
	release  func(next func() error) error
	saw      func(ctx context.Context, call string) // every call, before its hook
}

var _ idempotency.Store = (*fakeStore)(nil)

func (s *fakeStore) see(ctx context.Context, call string) {
	if s.saw != nil {
		s.saw(ctx, call)
	}
}

func (s *fakeStore) Claim(ctx context.Context, c idempotency.Claim, lease time.Duration) (*idempotency.Record, error) {
	s.see(ctx, "claim")
	next := func() (*idempotency.Record, error) { return s.Store.Claim(ctx, c, lease) }
	if s.claim != nil {
		return s.claim(next)
	}
	return next()
}

func (s *fakeStore) Extend(ctx context.Context, c idempotency.Claim, lease time.Duration) error {
	s.see(ctx, "extend")
	return hooked(s.extend, func() error { return s.Store.Extend(ctx, c, lease) })
}

func (s *fakeStore) Complete(ctx context.Context, c idempotency.Claim, resp *idempotency.Response, ttl time.Duration) error {
	s.see(ctx, "complete")
	return hooked(s.complete, func() error { return s.Store.Complete(ctx, c, resp, ttl) })
}

func (s *fakeStore) Release(ctx context.Context, c idempotency.Claim) error {
	s.see(ctx, "release")
	return hooked(s.release, func() error { return s.Store.Release(ctx, c) })
}

func hooked(hook func(next func() error) error, next func() error) error {
	if hook != nil {
		return hook(next)
	}
	return next()
}
