package idempotency_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
)

// bubbleUser is a value that an outer layer puts into a request's context.
type bubbleUser struct{}

func TestMaxExecution(t *testing.T) {
	for _, c := range []struct {
		name    string
		status  int
		beat    bubbleFault
		outcome idempotency.Outcome
	}{
		{name: "an answer is recorded", status: 201, outcome: idempotency.OutcomeExecuted},
		{name: "a final refusal is recorded", status: 422, outcome: idempotency.OutcomeExecuted},
		{name: "a 500 frees the key", status: 500, outcome: idempotency.OutcomeReleased},
		{name: "a 504 frees the key", status: 504, outcome: idempotency.OutcomeReleased},
		{name: "also while beats are slow", status: 500, beat: bubbleFault{delay: 1900 * time.Millisecond}, outcome: idempotency.OutcomeReleased},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(b *bubbleWorld) {
				var end bubbleEnd
				b.work = func(w http.ResponseWriter, r *http.Request, _ int) {
					<-r.Context().Done()
					end = bubbleEnd{b.now(), context.Cause(r.Context())}
					require.ErrorIs(b, r.Context().Err(), context.Canceled)
					w.WriteHeader(c.status)
				}
				p := b.process(idempotency.WithMaxExecution(65 * second))
				p.fake.always("Extend", c.beat)
				a := p.send()
				require.Equal(b, c.status, a.Code)
				require.Equal(b, bubbleEnd{65 * second, idempotency.ErrMaxExecution}, end)
				require.Equal(b, every(10*second, 6), p.fake.times("Extend"))
				require.Equal(b, c.outcome, p.event().Outcome)
				require.Equal(b, c.outcome == idempotency.OutcomeReleased, b.lookup() == nil)
			})
		})
	}
}

// A handler that goes on after its context has ended keeps its claim for what is
// left of the lease, and no longer.
func TestNoBeatAfterMaxExecution(t *testing.T) {
	bubble(t, func(b *bubbleWorld) {
		b.work = func(w http.ResponseWriter, _ *http.Request, run int) {
			if run == 1 {
				time.Sleep(time.Hour)
			}
			bubbleCreated(w, run)
		}
		p, other := b.process(idempotency.WithMaxExecution(65*second)), b.process()
		a := p.start()
		b.until(90*second - time.Millisecond) // the last beat was at 60 s
		other.send().busy()
		b.until(90*second + time.Millisecond)
		other.send().created(2)
		a.wait().created(1)
		require.Len(b, p.fake.log("Extend"), 6)
		require.Equal(b, idempotency.OutcomeUnstored, p.event().Outcome)
		other.send().replayed(2)
	})
}

// A beat that hangs does not put off the end of the longest execution.
func TestMaxExecutionWhileABeatHangs(t *testing.T) {
	bubble(t, func(b *bubbleWorld) {
		ends := b.untilEnded()
		p := b.process(idempotency.WithMaxExecution(61 * second))
		p.fake.on("Extend", func(nth int) bubbleFault { return bubbleFault{hang: nth == 6} })
		p.send().created(1)
		require.Equal(b, []bubbleEnd{{61 * second, idempotency.ErrMaxExecution}}, *ends)
	})
}

// The client's hanging up does not end the handler, and what it answers is
// recorded. The values of the request's context stay.
func TestClientHangsUp(t *testing.T) {
	bubble(t, func(b *bubbleWorld) {
		b.work = func(w http.ResponseWriter, r *http.Request, run int) {
			require.Equal(b, "ann", r.Context().Value(bubbleUser{}))
			require.NotNil(b, idempotency.FromContext(r.Context()))
			_, deadline := r.Context().Deadline()
			require.False(b, deadline)
			select {
			case <-r.Context().Done():
				w.WriteHeader(http.StatusServiceUnavailable)
			case <-time.After(50 * second):
				bubbleCreated(w, run)
			}
		}
		p := b.process()
		ctx, hangUp := context.WithCancel(context.WithValue(b.Context(), bubbleUser{}, "ann"))
		a := p.begin(bubbleRequest(ctx, "K", "b1"))
		b.until(second)
		hangUp()
		b.until(49 * second)
		p.send().busy()
		a.wait().created(1)
		p.send().replayed(1)
		b.ran(1)
	})
}

// The key is freed after the client has left, too.
func TestReleaseAfterTheClientHungUp(t *testing.T) {
	bubble(t, func(b *bubbleWorld) {
		b.work = func(w http.ResponseWriter, _ *http.Request, run int) {
			if run == 1 {
				time.Sleep(5 * second)
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			bubbleCreated(w, run)
		}
		p := b.process()
		ctx, hangUp := context.WithCancel(b.Context())
		a := p.begin(bubbleRequest(ctx, "K", "b1"))
		b.until(second)
		hangUp()
		a.wait()
		require.Equal(b, idempotency.OutcomeReleased, p.event().Outcome)
		p.send().created(2)
		b.ran(2)
	})
}

// Whatever the deadline of a request, its key is not stuck after a lease.
func TestRequestWithADeadline(t *testing.T) {
	for _, left := range []time.Duration{-time.Hour, 0, time.Millisecond, second} {
		for _, opts := range [][]idempotency.Option{nil, {idempotency.WithAtMostOnce()}, {idempotency.WithWait(5 * second)}} {
			bubble(t, func(b *bubbleWorld) {
				b.takes(5 * second)
				p := b.process(opts...)
				ctx, cancel := context.WithTimeout(b.Context(), left)
				defer cancel()
				a := p.begin(bubbleRequest(ctx, "K", "b1")).wait()
				if left <= 0 {
					require.Equal(b, http.StatusBadRequest, a.Code)
					require.Equal(b, idempotency.CodeBodyUnreadable, p.event().Code)
					require.Equal(b, idempotency.OutcomeRefused, p.event().Outcome)
					require.Empty(b, p.fake.log(), "something was claimed for a client that has gone")
					b.ran(0)
					p.send().created(1)
					return
				}
				a.created(1)
				p.send().replayed(1)
			})
		}
	}
}

// A store call is not ended by the client, but by its own time limit, and has
// the request's values.
func TestStoreCallsAreDetached(t *testing.T) {
	bubble(t, func(b *bubbleWorld) {
		b.takes(25 * second)
		fake := &bubbleStore{inner: b.store, world: b}
		probe := &bubbleProbe{Store: fake, world: b}
		p := b.processOn(fake, probe, idempotency.WithAtMostOnce(), idempotency.WithStoreTimeout(700*time.Millisecond))
		ctx, hangUp := context.WithCancel(context.WithValue(b.Context(), bubbleUser{}, "ann"))
		a := p.begin(bubbleRequest(ctx, "K", "b1"))
		b.until(second)
		hangUp()
		a.wait().created(1)
		require.Equal(b, 1+3+1, probe.calls)
	})
}

type bubbleProbe struct {
	idempotency.Store
	world *bubbleWorld
	calls int
}

func (s *bubbleProbe) check(ctx context.Context) {
	s.calls++
	until, ok := ctx.Deadline()
	require.True(s.world, ok)
	require.Equal(s.world, 700*time.Millisecond, time.Until(until))
	require.NoError(s.world, ctx.Err())
	require.Equal(s.world, "ann", ctx.Value(bubbleUser{}))
}

func (s *bubbleProbe) Claim(ctx context.Context, c idempotency.Claim, lease time.Duration) (*idempotency.Record, error) {
	s.check(ctx)
	return s.Store.Claim(ctx, c, lease)
}

func (s *bubbleProbe) Extend(ctx context.Context, c idempotency.Claim, lease time.Duration) error {
	s.check(ctx)
	return s.Store.Extend(ctx, c, lease)
}

func (s *bubbleProbe) Complete(ctx context.Context, c idempotency.Claim, resp *idempotency.Response, ttl time.Duration) error {
	s.check(ctx)
	return s.Store.Complete(ctx, c, resp, ttl)
}
