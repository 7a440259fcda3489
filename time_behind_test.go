package idempotency_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
)

// Recording fails: the client has its answer at once, the claim stays, twins are
// told to wait for as long as it takes, and then get the answer.
func TestCompleteGoesOnBehind(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault bubbleFault
		at    time.Duration // of the client's answer
	}{
		{"refused", bubbleFault{refuse: errBubbleDown}, 0},
		{"hanging", bubbleFault{hang: true}, 2 * second},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(b *bubbleWorld) {
				p, other := b.process(), b.process()
				p.fake.always("Complete", c.fault)
				a := p.send().created(1)
				require.Equal(b, c.at, a.at)
				for at := 3 * second; at < 10*bubbleLease; at += second {
					b.until(at + time.Millisecond)
					other.send().busy()
				}
				require.Empty(b, p.all(), "settled before it was")
				p.fake.always("Complete", bubbleFault{})
				mended := b.now()
				require.NoError(b, p.mw.Drain(b.Context()))
				require.LessOrEqual(b, b.now(), mended+bubbleLease/3+2*second)
				e := p.event()
				require.Equal(b, idempotency.OutcomeExecuted, e.Outcome)
				require.Equal(b, http.StatusCreated, e.Status)
				require.NoError(b, e.Err)
				require.Equal(b, b.now(), e.at)
				other.send().replayed(1)
				b.ran(1)
				b.until(b.now() + time.Hour)
				calls := len(p.fake.log())
				b.until(b.now() + time.Hour)
				require.Len(b, p.fake.log(), calls)
			})
		})
	}
}

// The pauses between the tries grow, so that a store that is down is not stormed.
func TestTriesBehindAreFew(t *testing.T) {
	bubble(t, func(b *bubbleWorld) {
		p := b.process()
		p.fake.always("Complete", bubbleFault{refuse: errBubbleDown})
		p.send().created(1)
		b.until(15 * time.Minute)
		tries := len(p.fake.log("Complete"))
		require.Greater(b, tries, 90)  // at least one in ten seconds
		require.Less(b, tries, 10+180) // at most one in five, but for the first few
		require.Less(b, p.fake.times("Complete")[1], 21*time.Millisecond)
	})
}

// A store that stays away: it is given up when the longest execution is over,
// and the key is free a lease later.
func TestCompleteGivenUp(t *testing.T) {
	for _, takes := range []time.Duration{0, 55 * second} {
		bubble(t, func(b *bubbleWorld) {
			b.takes(takes)
			opt := idempotency.WithMaxExecution(time.Minute)
			p, other := b.process(opt), b.process(opt)
			p.fake.always("Complete", bubbleFault{refuse: errBubbleDown})
			p.send().created(1)
			until := max(time.Minute, takes+bubbleLease) // but for one lease at least
			b.until(until - time.Millisecond)
			other.send().busy()
			require.Empty(b, p.all())
			require.NoError(b, p.mw.Drain(b.Context()))
			require.LessOrEqual(b, b.now(), until+bubbleLease/3)
			e := p.event()
			require.Equal(b, idempotency.OutcomeUnstored, e.Outcome)
			require.Equal(b, http.StatusCreated, e.Status)
			require.ErrorIs(b, e.Err, errBubbleDown)
			calls := len(p.fake.log())
			b.until(b.now() + bubbleLease + time.Millisecond)
			require.Len(b, p.fake.log(), calls)
			other.send().created(2)
		})
	}
}

// Somebody else has the key: trying again would be of no use.
func TestCompleteBehindEndsWithTheClaim(t *testing.T) {
	bubble(t, func(b *bubbleWorld) {
		p, other := b.process(), b.process()
		p.fake.always("Complete", bubbleFault{refuse: errBubbleDown})
		p.send().created(1)
		b.until(second)
		b.forget()
		other.send().created(2)
		p.fake.always("Complete", bubbleFault{})
		require.NoError(b, p.mw.Drain(b.Context()))
		require.Less(b, b.now(), 12*second)
		e := p.event()
		require.Equal(b, idempotency.OutcomeUnstored, e.Outcome)
		require.ErrorIs(b, e.Err, idempotency.ErrClaimLost)
		other.send().replayed(2)
	})
}

// The reply was lost, not the record: the second try finds it made.
func TestCompleteWithALostReply(t *testing.T) {
	bubble(t, func(b *bubbleWorld) {
		p, other := b.process(), b.process()
		p.fake.once("Complete", bubbleFault{lose: errBubbleDown})
		p.send().created(1)
		other.send().replayed(1)
		require.NoError(b, p.mw.Drain(b.Context()))
		require.Len(b, p.fake.log("Complete"), 2)
		require.Equal(b, idempotency.OutcomeExecuted, p.event().Outcome)
		other.send().replayed(1)
		b.ran(1)
	})
}

// What is recorded behind has the TTL and the reference that the handler set.
func TestCompleteBehindKeepsTheWishes(t *testing.T) {
	bubble(t, func(b *bubbleWorld) {
		b.work = func(w http.ResponseWriter, r *http.Request, run int) {
			e := idempotency.FromContext(r.Context())
			e.SetTTL(time.Hour)
			e.SetReference("charge 7")
			bubbleCreated(w, run)
		}
		p := b.process()
		p.fake.on("Complete", func(nth int) bubbleFault {
			if nth < 10 {
				return bubbleFault{refuse: errBubbleDown}
			}
			return bubbleFault{}
		})
		p.send().created(1)
		require.NoError(b, p.mw.Drain(b.Context()))
		require.Equal(b, time.Hour, b.lookup().ExpiresIn)
		require.Equal(b, "charge 7", b.lookup().Response.Reference)
		require.Zero(b, b.lookup().Response.Time.Sub(b.start), "the answer's time is the handler's end")
	})
}

// A release that failed goes on behind, too: the client need not wait for the
// lease to lapse.
func TestReleaseGoesOnBehind(t *testing.T) {
	for _, end := range []string{"an answer", "a panic", "a short answer"} {
		t.Run(end, func(t *testing.T) {
			bubble(t, func(b *bubbleWorld) {
				b.work = func(w http.ResponseWriter, _ *http.Request, run int) {
					switch {
					case run > 1:
						bubbleCreated(w, run)
					case end == "a panic":
						panic("boom")
					case end == "a short answer":
						w.Header().Set("Content-Length", "10")
					default:
						w.WriteHeader(http.StatusServiceUnavailable)
					}
				}
				p := b.process()
				p.fake.on("Release", func(int) bubbleFault {
					if b.now() < 2*second {
						return bubbleFault{refuse: errBubbleDown}
					}
					return bubbleFault{}
				})
				a := p.send()
				require.Zero(b, a.at)
				require.Equal(b, end == "a panic", a.panicked != nil)
				b.until(second)
				p.send().busy()
				require.NoError(b, p.mw.Drain(b.Context()))
				require.Less(b, b.now(), 5*second)
				require.Equal(b, idempotency.OutcomeReleased, p.last().Outcome)
				require.NoError(b, p.last().Err)
				require.Empty(b, p.fake.log("Extend"), "a claim that is to go is not extended")
				p.send().created(2)
			})
		})
	}
}

func TestReleaseGivenUp(t *testing.T) {
	bubble(t, func(b *bubbleWorld) {
		b.work = func(w http.ResponseWriter, _ *http.Request, _ int) { w.WriteHeader(http.StatusServiceUnavailable) }
		p := b.process(idempotency.WithMaxExecution(time.Minute))
		p.fake.always("Release", bubbleFault{refuse: errBubbleDown})
		p.send()
		require.NoError(b, p.mw.Drain(b.Context()))
		require.Equal(b, idempotency.OutcomeUnstored, p.event().Outcome)
		require.ErrorIs(b, p.event().Err, errBubbleDown)
		require.Nil(b, b.lookup(), "the lease has lapsed meanwhile")
	})
}

// A claim that failed may have been made. It is released behind the refusal,
// until that succeeds or the lease is over.
func TestFailedClaimIsReleased(t *testing.T) {
	for _, away := range []time.Duration{0, 5 * second, time.Hour} {
		bubble(t, func(b *bubbleWorld) {
			p, other := b.process(), b.process()
			p.fake.once("Claim", bubbleFault{lose: errBubbleDown})
			p.fake.on("Release", func(int) bubbleFault {
				if b.now() < away {
					return bubbleFault{refuse: errBubbleDown}
				}
				return bubbleFault{}
			})
			a := p.send()
			require.Equal(b, second, time.Duration(a.refused(http.StatusServiceUnavailable, idempotency.CodeStoreUnavailable).RetryAfter)*second)
			require.Zero(b, a.at)
			require.ErrorIs(b, p.event().Err, errBubbleDown)
			other.send().busy()
			require.NoError(b, p.mw.Drain(b.Context()))
			require.LessOrEqual(b, b.now(), min(2*away+time.Second, bubbleLease+10*second))
			calls := len(p.fake.log())
			other.send().created(1)
			b.until(time.Hour)
			require.Len(b, p.fake.log(), calls)
			require.Len(b, p.all(), 1)
			b.ran(1)
		})
	}
}

// Where nothing was claimed for certain, nothing is released.
func TestNothingToRelease(t *testing.T) {
	for err, code := range map[error]idempotency.Code{
		idempotency.ErrStoreFull: idempotency.CodeStoreUnavailable,
		idempotency.ErrCorrupt:   idempotency.CodeRecordCorrupt,
	} {
		bubble(t, func(b *bubbleWorld) {
			p := b.process()
			p.fake.always("Claim", bubbleFault{refuse: errors.Join(errors.New("with words round it"), err)})
			a := p.send()
			require.Equal(b, code, p.event().Code)
			require.Contains(b, []int{http.StatusServiceUnavailable, http.StatusInternalServerError}, a.Code)
			require.NoError(b, p.mw.Drain(b.Context()))
			require.Len(b, p.fake.log(), 1)
			b.ran(0)
		})
	}
}

func TestDrain(t *testing.T) {
	bubble(t, func(b *bubbleWorld) {
		p := b.process()
		ended, cancel := context.WithCancel(b.Context())
		cancel()
		require.NoError(b, p.mw.Drain(ended), "there is nothing to wait for")

		p.fake.on("Complete", func(int) bubbleFault {
			if b.now() < time.Minute {
				return bubbleFault{refuse: errBubbleDown}
			}
			return bubbleFault{}
		})
		route := p.mw.With(idempotency.WithTTL(time.Hour))
		p.handler = route.Handler(b)
		p.send().created(1)
		p.begin(bubbleRequest(b.Context(), "K2", "b1")).wait().created(2)

		require.ErrorIs(b, p.mw.Drain(ended), context.Canceled)
		short, cancel2 := context.WithTimeout(b.Context(), second)
		defer cancel2()
		require.ErrorIs(b, p.mw.Drain(short), context.DeadlineExceeded)
		require.Equal(b, second, b.now())

		var drained []time.Duration
		done := make(chan time.Duration, 3)
		for _, mw := range []*idempotency.Middleware{p.mw, route, p.mw} {
			go func() {
				_ = mw.Drain(context.Background())
				done <- b.now()
			}()
		}
		for range 3 {
			drained = append(drained, <-done)
		}
		require.GreaterOrEqual(b, drained[0], time.Minute)
		require.Equal(b, drained[0], drained[2])
		require.Len(b, p.all(), 2)
		require.NoError(b, p.mw.Drain(ended))
	})
}
