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

// bubbleWaiters are the ways in which a twin can learn of the end of a run.
var bubbleWaiters = map[string]func(b *bubbleWorld, opts ...idempotency.Option) *bubbleProcess{
	"told":    (*bubbleWorld).waiting,
	"polling": (*bubbleWorld).process,
	"told nothing": func(b *bubbleWorld, opts ...idempotency.Option) *bubbleProcess {
		p := b.waiting(opts...)
		p.fake.always("Wait", bubbleFault{refuse: errors.New("cannot watch")})
		return p
	},
	"told at once": func(b *bubbleWorld, opts ...idempotency.Option) *bubbleProcess {
		fake := &bubbleStore{inner: b.store, world: b}
		return b.processOn(fake, bubbleHasty{fake}, opts...)
	},
}

// bubbleHasty is a store whose Wait never waits.
type bubbleHasty struct{ *bubbleStore }

func (s bubbleHasty) Wait(ctx context.Context, key idempotency.Key) error {
	return s.call(ctx, "Wait", idempotency.Claim{Key: key}, 0, func() error { return nil })
}

func forEachWaiter(t *testing.T, f func(b *bubbleWorld, process func(opts ...idempotency.Option) *bubbleProcess, name string)) {
	for name, process := range bubbleWaiters {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bubbleWorld) {
				f(b, func(opts ...idempotency.Option) *bubbleProcess { return process(b, opts...) }, name)
			})
		})
	}
}

// slack is how late a twin may learn of the end of a run.
func slack(name string) time.Duration {
	if name == "told" {
		return 0
	}
	return 500 * time.Millisecond
}

// Fifty twins wait, and every second client gives up: the others all get the
// answer when it is there.
func TestWaitingTwins(t *testing.T) {
	forEachWaiter(t, func(b *bubbleWorld, process func(...idempotency.Option) *bubbleProcess, name string) {
		b.takes(time.Minute)
		p, other := b.process(), process(idempotency.WithWait(2*time.Minute))
		before := b.goroutines()
		a := p.start()
		b.until(time.Millisecond)
		var twins []*bubbleAnswer
		for i := range 50 {
			ctx := b.Context()
			if i%2 == 1 {
				short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
				defer cancel()
				ctx = short
			}
			twins = append(twins, other.begin(bubbleRequest(ctx, "K", "b1")))
		}
		for i, twin := range twins {
			if i%2 == 1 {
				twin.wait()
				require.Equal(b, 101*time.Millisecond, twin.at)
				require.Equal(b, http.StatusBadRequest, twin.Code)
			}
		}
		a.wait().created(1)
		for i, twin := range twins {
			if i%2 == 0 {
				twin.wait().replayed(1)
				require.GreaterOrEqual(b, twin.at, time.Minute)
				require.LessOrEqual(b, twin.at, time.Minute+slack(name))
			}
		}
		b.ran(1)
		require.Equal(b, before, b.goroutines())
		replayed, refused := 0, 0
		for _, e := range other.all() {
			switch e.Outcome {
			case idempotency.OutcomeReplayed:
				replayed++
				require.GreaterOrEqual(b, e.Wait, time.Minute-time.Millisecond)
			case idempotency.OutcomeRefused:
				refused++
				require.Equal(b, idempotency.CodeBodyUnreadable, e.Code)
				require.Equal(b, 100*time.Millisecond, e.Wait)
			}
			require.Zero(b, e.Handler)
		}
		require.Equal(b, 25, replayed)
		require.Equal(b, 25, refused)
	})
}

// A twin waits for as long as was set, and is then told to come again. It looks
// a bounded number of times, however the store's Wait behaves.
func TestWaitLimit(t *testing.T) {
	forEachWaiter(t, func(b *bubbleWorld, process func(...idempotency.Option) *bubbleProcess, _ string) {
		b.takes(time.Minute)
		p, other := b.process(), process(idempotency.WithWait(20*second))
		a := p.start()
		b.until(second)
		twin := other.start()
		twin.busy()
		require.Equal(b, 21*second, twin.at)
		require.Equal(b, 20*second, other.event().Wait)
		require.Less(b, len(other.fake.log("Claim")), 250)
		require.Less(b, len(other.fake.log("Wait")), 250)
		a.wait()
	})
}

// Without the option a twin does not wait at all.
func TestNoWait(t *testing.T) {
	forEachWaiter(t, func(b *bubbleWorld, process func(...idempotency.Option) *bubbleProcess, _ string) {
		b.takes(second)
		p := process()
		a := p.start()
		b.until(time.Millisecond)
		twin := p.send()
		twin.busy()
		require.Equal(b, time.Millisecond, twin.at)
		require.Empty(b, p.fake.log("Wait"))
		a.wait()
	})
}

// The first run ends without a record: one of those who wait runs, the others
// wait for that one.
func TestOneWaiterRunsNext(t *testing.T) {
	forEachWaiter(t, func(b *bubbleWorld, process func(...idempotency.Option) *bubbleProcess, name string) {
		running, most := 0, 0
		b.work = func(w http.ResponseWriter, _ *http.Request, run int) {
			running++
			most = max(most, running)
			time.Sleep(5 * second)
			running--
			switch run {
			case 1:
				w.WriteHeader(http.StatusServiceUnavailable)
			case 2:
				panic("boom")
			default:
				bubbleCreated(w, run)
			}
		}
		p := process(idempotency.WithWait(time.Minute))
		first := p.start()
		b.until(time.Millisecond)
		var twins []*bubbleAnswer
		for range 25 {
			twins = append(twins, p.start())
		}
		require.Equal(b, http.StatusServiceUnavailable, first.wait().Code)
		panicked, created := 0, 0
		for _, twin := range twins {
			switch twin.wait(); {
			case twin.panicked != nil:
				panicked++
			case twin.Header().Get("Idempotent-Replayed") == "":
				twin.created(3)
				created++
			default:
				twin.replayed(3)
			}
			require.LessOrEqual(b, twin.at, 15*second+2*slack(name))
		}
		require.Equal(b, 1, panicked)
		require.Equal(b, 1, created)
		require.Equal(b, 1, most, "runs at a time")
		b.ran(3)
	})
}

// The first process dies: whoever waits takes over when its lease has lapsed.
func TestWaiterTakesOverFromTheDead(t *testing.T) {
	forEachWaiter(t, func(b *bubbleWorld, process func(...idempotency.Option) *bubbleProcess, name string) {
		b.work = func(w http.ResponseWriter, r *http.Request, run int) {
			if run == 1 {
				<-r.Context().Done()
			}
			bubbleCreated(w, run)
		}
		p, other := b.process(), process(idempotency.WithWait(time.Minute))
		dead := p.start()
		b.until(second)
		p.fake.die()
		twin := other.start()
		twin.wait().created(2)
		require.GreaterOrEqual(b, twin.at, bubbleLease)
		require.LessOrEqual(b, twin.at, bubbleLease+slack(name))
		dead.wait()
	})
}

// A client that has gone while it waited gets nothing claimed for it.
func TestWaitingClientHangsUp(t *testing.T) {
	forEachWaiter(t, func(b *bubbleWorld, process func(...idempotency.Option) *bubbleProcess, _ string) {
		b.work = func(w http.ResponseWriter, _ *http.Request, _ int) {
			time.Sleep(10 * second)
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		p, other := b.process(), process(idempotency.WithWait(time.Minute))
		a := p.start()
		b.until(second)
		ctx, hangUp := context.WithCancel(b.Context())
		twin := other.begin(bubbleRequest(ctx, "K", "b1"))
		b.until(5*second + time.Microsecond)
		claims := len(other.fake.log("Claim"))
		hangUp()
		require.True(b, twin.over(), "it goes on waiting for nobody")
		require.Len(b, other.fake.log("Claim"), claims)
		e := other.event()
		require.Equal(b, idempotency.CodeBodyUnreadable, e.Code)
		require.ErrorIs(b, e.Err, context.Canceled)
		a.wait()
		require.Nil(b, b.lookup())
		b.ran(1)
	})
}

// While a twin waits the key is freed and used for another request: it is
// refused as soon as it finds out.
func TestMismatchAfterWaiting(t *testing.T) {
	forEachWaiter(t, func(b *bubbleWorld, process func(...idempotency.Option) *bubbleProcess, name string) {
		b.work = func(w http.ResponseWriter, _ *http.Request, run int) {
			time.Sleep(10 * second)
			if run == 1 {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		}
		p, other := b.process(), process(idempotency.WithWait(time.Minute))
		a := p.start()
		b.until(second)
		twin := other.start()
		b.until(9 * second)
		b.forget()
		next := p.begin(bubbleRequest(b.Context(), "K", "b2"))
		twin.refused(http.StatusConflict, idempotency.CodeKeyReused)
		require.LessOrEqual(b, twin.at, 9*second+slack(name))
		require.InDelta(b, 8*second, other.event().Wait, float64(slack(name)))
		a.wait()
		next.wait()
	})
}

// A different request does not wait at all: it can never succeed.
func TestMismatchDoesNotWait(t *testing.T) {
	forEachWaiter(t, func(b *bubbleWorld, process func(...idempotency.Option) *bubbleProcess, _ string) {
		b.takes(10 * second)
		p := process(idempotency.WithWait(time.Minute))
		a := p.start()
		b.until(second)
		twin := p.begin(bubbleRequest(b.Context(), "K", "b2")).wait()
		twin.refused(http.StatusConflict, idempotency.CodeKeyReused)
		require.Equal(b, second, twin.at)
		a.wait().created(1)
	})
}

// A store that fails while a twin waits ends the waiting.
func TestStoreFailsWhileWaiting(t *testing.T) {
	forEachWaiter(t, func(b *bubbleWorld, process func(...idempotency.Option) *bubbleProcess, name string) {
		b.takes(10 * second)
		p, other := b.process(), process(idempotency.WithWait(time.Minute))
		a := p.start()
		b.until(second)
		twin := other.start()
		b.until(5 * second)
		other.fake.always("Claim", bubbleFault{refuse: errBubbleDown})
		twin.refused(http.StatusServiceUnavailable, idempotency.CodeStoreUnavailable)
		require.LessOrEqual(b, twin.at, 10*second+slack(name))
		a.wait().created(1)
		p.send().replayed(1)
	})
}
