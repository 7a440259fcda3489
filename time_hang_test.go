package idempotency_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
)

// A store that hangs holds a request up for as long as each of its calls may
// take, and no longer.
func TestHangingStore(t *testing.T) {
	const limit = 700 * time.Millisecond
	created := func(w http.ResponseWriter) { bubbleCreated(w, 1) }
	unavailable := func(w http.ResponseWriter) { w.WriteHeader(http.StatusServiceUnavailable) }
	for _, c := range []struct {
		name   string
		opts   []idempotency.Option
		hangs  string
		work   func(w http.ResponseWriter)
		status int
		at     time.Duration
		ran    int
	}{
		{name: "claim", hangs: "Claim", work: created, status: 503, at: limit},
		{name: "claim, at most once", opts: []idempotency.Option{idempotency.WithAtMostOnce()}, hangs: "Claim", work: created, status: 503, at: limit},
		{name: "claim, waiting", opts: []idempotency.Option{idempotency.WithWait(time.Minute)}, hangs: "Claim", work: created, status: 503, at: limit},
		{name: "claim, fail open", opts: []idempotency.Option{idempotency.WithFailOpen()}, hangs: "Claim", work: created, status: 201, at: limit, ran: 1},
		{name: "hold", opts: []idempotency.Option{idempotency.WithAtMostOnce()}, hangs: "Extend", work: created, status: 503, at: limit},
		{name: "complete", hangs: "Complete", work: created, status: 201, at: limit, ran: 1},
		{name: "release", hangs: "Release", work: unavailable, status: 503, at: limit, ran: 1},
		{name: "release after a panic", hangs: "Release", work: func(http.ResponseWriter) { panic("boom") }, status: 200, at: limit, ran: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(b *bubbleWorld) {
				b.work = func(w http.ResponseWriter, _ *http.Request, _ int) { c.work(w) }
				p := b.process(append(c.opts, idempotency.WithStoreTimeout(limit))...)
				p.fake.always(c.hangs, bubbleFault{hang: true})
				a := p.send()
				require.Equal(b, c.status, a.Code)
				require.Equal(b, c.at, a.at)
				b.ran(c.ran)
				for _, call := range p.fake.log() {
					require.LessOrEqual(b, call.until-call.at, limit)
				}
			})
		})
	}
}

// Every call hangs: the sum is bounded, too, whatever comes of it.
func TestEverythingHangs(t *testing.T) {
	bubble(t, func(b *bubbleWorld) {
		p := b.process()
		for _, method := range []string{"Claim", "Extend", "Complete", "Release"} {
			p.fake.always(method, bubbleFault{hang: true})
		}
		a := p.send()
		a.refused(http.StatusServiceUnavailable, idempotency.CodeStoreUnavailable)
		require.Equal(b, 2*second, a.at)
		require.ErrorIs(b, p.event().Err, context.DeadlineExceeded)
		require.Equal(b, 2*second, p.event().Store)
		require.NoError(b, p.mw.Drain(b.Context()))
		require.Less(b, b.now(), 2*bubbleLease)
	})
}

// Slow calls count in the event, beats do not.
func TestEventDurations(t *testing.T) {
	bubble(t, func(b *bubbleWorld) {
		b.takes(25 * second)
		p := b.process()
		p.fake.always("Claim", bubbleFault{delay: 300 * time.Millisecond})
		p.fake.always("Extend", bubbleFault{delay: 500 * time.Millisecond})
		p.fake.always("Complete", bubbleFault{delay: 200 * time.Millisecond})
		p.send().created(1)
		e := p.event()
		require.Equal(b, 500*time.Millisecond, e.Store)
		require.Equal(b, 25*second, e.Handler)
		require.Zero(b, e.Wait)
		require.Equal(b, bubbleKey(), e.Key)
	})
}

// A store that does not heed its context: the handler's context ends with the
// lease, or the longest execution, all the same.
func TestBeatThatDoesNotHeedItsContext(t *testing.T) {
	for _, c := range []struct {
		longest time.Duration
		want    bubbleEnd
	}{
		{time.Hour, bubbleEnd{bubbleLease, idempotency.ErrClaimLost}},
		{bubbleLease, bubbleEnd{bubbleLease, idempotency.ErrMaxExecution}},
	} {
		bubble(t, func(b *bubbleWorld) {
			var end bubbleEnd
			b.work = func(w http.ResponseWriter, r *http.Request, run int) {
				<-r.Context().Done()
				end = bubbleEnd{b.now(), context.Cause(r.Context())}
				bubbleCreated(w, run)
			}
			p := b.process(idempotency.WithMaxExecution(c.longest))
			p.fake.once("Extend", bubbleFault{delay: time.Minute, deaf: true})
			p.send().created(1)
			require.Equal(b, c.want, end)
		})
	}
}
