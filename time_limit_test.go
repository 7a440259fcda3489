//go:build !race

// The race detector allows 8,128 goroutines at a time, and this needs more.

package idempotency_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
)

// With 10,000 recordings going on behind, the next one that fails is given up at
// once: a store that is down must not fill the memory.
func TestTooManyBehind(t *testing.T) {
	bubble(t, func(b *bubbleWorld) {
		const most = 10_000
		p := b.process(idempotency.WithMaxExecution(bubbleLease))
		p.fake.always("Complete", bubbleFault{refuse: errBubbleDown})
		before := b.goroutines()
		for i := range most {
			p.begin(bubbleRequest(b.Context(), strconv.Itoa(i), "b1")).wait().created(i + 1)
		}
		require.Empty(b, p.all())
		p.send().created(most + 1)
		e := p.event()
		require.Equal(b, idempotency.OutcomeUnstored, e.Outcome)
		require.ErrorIs(b, e.Err, errBubbleDown)
		require.Zero(b, e.at)
		p.send().busy() // the claim is not released

		p.fake.always("Complete", bubbleFault{})
		require.NoError(b, p.mw.Drain(b.Context()))
		require.Len(b, p.all(), most+2)
		require.Equal(b, before, b.goroutines())
		p.begin(bubbleRequest(b.Context(), "9999", "b1")).wait().replayed(most)
	})
}
