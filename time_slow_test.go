package idempotency_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
)

// A claim that took longer than its own lease may be another's by now.
func TestClaimSlowerThanItsLease(t *testing.T) {
	bubble(t, func(b *bubbleWorld) {
		b.takes(10 * second)
		other := b.process(idempotency.WithLease(second))
		fake := &bubbleStore{inner: b.store, world: b}
		late := b.processOn(fake, &bubbleSlowReply{Store: fake, delay: 1500 * time.Millisecond}, idempotency.WithLease(second))

		a := late.start()
		b.until(1100 * time.Millisecond)
		first := other.start()
		a.wait().refused(http.StatusServiceUnavailable, idempotency.CodeStoreUnavailable)
		first.wait().created(1)
		other.send().replayed(1)
		b.ran(1)
		require.Equal(b, idempotency.OutcomeRefused, late.event().Outcome)
	})
}

// So may one be whose Hold took that long.
func TestHoldSlowerThanTheLease(t *testing.T) {
	bubble(t, func(b *bubbleWorld) {
		p := b.process(idempotency.WithLease(second), idempotency.WithAtMostOnce())
		p.fake.once("Extend", bubbleFault{delay: 1500 * time.Millisecond, deaf: true})
		p.send().refused(http.StatusServiceUnavailable, idempotency.CodeStoreUnavailable)
		b.ran(0)
		require.NoError(b, p.mw.Drain(b.Context()))
		p.send().created(1)
	})
}

// bubbleSlowReply is a store whose claims are made at once and answered late.
type bubbleSlowReply struct {
	idempotency.Store
	delay time.Duration
}

func (s *bubbleSlowReply) Claim(ctx context.Context, c idempotency.Claim, lease time.Duration) (*idempotency.Record, error) {
	held, err := s.Store.Claim(ctx, c, lease)
	time.Sleep(s.delay)
	return held, err
}
