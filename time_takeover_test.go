package idempotency_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
)

// Of many retries one reconciles; the others are told to wait, or do, and get
// what it has found out.
func TestOneReconciles(t *testing.T) {
	for _, wait := range []time.Duration{0, 10 * time.Minute} {
		bubble(t, func(b *bubbleWorld) {
			b.brokenOff()
			asked, began := 0, b.now()
			p := b.reconciling(func(context.Context, *idempotency.Execution) (*idempotency.Response, error) {
				asked++
				time.Sleep(95 * second)
				return settled(), nil
			}, idempotency.WithWait(wait))
			var answers []*bubbleAnswer
			for range 20 {
				answers = append(answers, p.start())
			}
			b.until(began + 50*second)
			late := p.start()
			b.until(began + 60*second)
			if wait == 0 {
				late.busy()
			}
			replayed, busy := 0, 0
			for _, a := range answers {
				if a.wait().Code == http.StatusCreated {
					a.replayed(1)
					replayed++
				} else {
					a.busy()
					busy++
				}
			}
			late.wait()
			if wait == 0 {
				require.Equal(b, 1, replayed)
			} else {
				require.Equal(b, 20, replayed)
				late.replayed(1)
			}
			require.Equal(b, 1, asked, "the lease is extended while it is being asked")
			require.Len(b, p.fake.log("Extend"), 9)
			outcomes := make(map[idempotency.Outcome]int)
			for _, e := range p.all() {
				outcomes[e.Outcome]++
			}
			require.Equal(b, 1, outcomes[idempotency.OutcomeReconciled])
			b.ran(1)
		})
	}
}

// A process that dies while it reconciles leaves the outcome as unknown as it
// was, for the next one to settle.
func TestCrashWhileReconciling(t *testing.T) {
	bubble(t, func(b *bubbleWorld) {
		b.brokenOff()
		began := b.now()
		p := b.reconciling(func(ctx context.Context, _ *idempotency.Execution) (*idempotency.Response, error) {
			<-ctx.Done()
			return settled(), nil
		})
		other := b.reconciling(func(context.Context, *idempotency.Execution) (*idempotency.Response, error) { return settled(), nil })
		dead := p.start()
		b.until(began + second)
		p.fake.die()
		b.until(began + bubbleLease - time.Millisecond)
		other.send().busy()
		b.until(began + bubbleLease + time.Millisecond)
		b.process(idempotency.WithAtMostOnce()).send().unknown(false)
		other.send().replayed(1)
		require.Equal(b, idempotency.OutcomeReconciled, other.last().Outcome)
		b.ran(1)
		dead.wait()
	})
}

// The runner that was given up comes back after somebody else has settled its
// outcome: what it brings is refused, and the record stays.
func TestFormerOwnerComesBack(t *testing.T) {
	bubble(t, func(b *bubbleWorld) {
		var end bubbleEnd
		b.work = func(w http.ResponseWriter, r *http.Request, run int) {
			<-r.Context().Done()
			end = bubbleEnd{b.now(), context.Cause(r.Context())}
			time.Sleep(time.Minute)
			bubbleCreated(w, run+100)
		}
		p := b.process(idempotency.WithAtMostOnce())
		p.fake.on("Extend", func(nth int) bubbleFault {
			if nth > 1 {
				return bubbleFault{refuse: errBubbleDown}
			}
			return bubbleFault{}
		})
		first := p.start()
		b.until(bubbleLease + time.Millisecond)
		other := b.reconciling(func(context.Context, *idempotency.Execution) (*idempotency.Response, error) { return settled(), nil })
		other.send().replayed(1)
		first.wait().created(101)
		require.Equal(b, bubbleEnd{bubbleLease, idempotency.ErrClaimLost}, end)
		require.Equal(b, idempotency.OutcomeUnstored, p.event().Outcome)
		require.ErrorIs(b, p.event().Err, idempotency.ErrClaimLost)
		other.send().replayed(1)
		p.send().replayed(1)
	})
}

// The same while the Reconciler is still being asked: a beat, and a Release, of
// the former owner change nothing.
func TestFormerOwnerComesBackWhileReconciling(t *testing.T) {
	bubble(t, func(b *bubbleWorld) {
		b.work = func(w http.ResponseWriter, r *http.Request, run int) {
			<-r.Context().Done()
			w.WriteHeader(http.StatusServiceUnavailable) // which frees the key
		}
		p := b.process(idempotency.WithAtMostOnce())
		p.fake.on("Extend", func(nth int) bubbleFault { return bubbleFault{hang: nth > 1} })
		first := p.start()
		b.until(bubbleLease - time.Millisecond)
		// The last beat hangs; the key is taken over the moment it lapses.
		other := b.reconciling(func(context.Context, *idempotency.Execution) (*idempotency.Response, error) {
			time.Sleep(5 * second)
			return settled(), nil
		})
		require.NoError(b, b.store.Extend(b.Context(), p.fake.log("Extend")[0].claim, time.Microsecond))
		b.until(bubbleLease - time.Millisecond/2)
		a := other.start()
		first.wait()
		require.Equal(b, http.StatusServiceUnavailable, first.Code)
		require.Len(b, p.fake.log("Release"), 1)
		other.send().busy()
		a.wait().replayed(1)
		other.send().replayed(1)
	})
}

// What was found out cannot be recorded at first: it goes on behind, like a
// handler's answer.
func TestReconciledGoesOnBehind(t *testing.T) {
	bubble(t, func(b *bubbleWorld) {
		b.brokenOff()
		began := b.now()
		p := b.reconciling(func(context.Context, *idempotency.Execution) (*idempotency.Response, error) { return settled(), nil })
		p.fake.on("Complete", func(int) bubbleFault {
			if b.now() < began+5*time.Minute {
				return bubbleFault{refuse: errBubbleDown}
			}
			return bubbleFault{}
		})
		a := p.send().replayed(1)
		require.Equal(b, began, a.at)
		for at := began; at < began+5*time.Minute; at += second {
			b.until(at + time.Millisecond)
			p.send().busy()
		}
		require.NoError(b, p.mw.Drain(b.Context()))
		require.Equal(b, idempotency.OutcomeReconciled, p.last().Outcome)
		p.send().replayed(1)
		b.ran(1)
	})
}

// A takeover that failed may have been made. It is not released: that would free
// a key whose outcome is unknown.
func TestFailedTakeoverIsNotReleased(t *testing.T) {
	for _, fault := range []bubbleFault{{refuse: errBubbleDown}, {lose: errBubbleDown}} {
		bubble(t, func(b *bubbleWorld) {
			b.brokenOff()
			began := b.now()
			p := b.reconciling(func(context.Context, *idempotency.Execution) (*idempotency.Response, error) { return settled(), nil })
			p.fake.on("Claim", func(nth int) bubbleFault {
				if nth == 2 {
					return fault
				}
				return bubbleFault{}
			})
			p.send().refused(http.StatusServiceUnavailable, idempotency.CodeStoreUnavailable)
			require.NoError(b, p.mw.Drain(b.Context()))
			require.Empty(b, p.fake.log("Release"))
			b.until(began + bubbleLease + time.Millisecond)
			b.process(idempotency.WithAtMostOnce()).send().unknown(false)
			p.send().replayed(1)
			b.ran(1)
		})
	}
}

// A takeover that was answered too late to hold its key is not used, nor
// released.
func TestSlowTakeover(t *testing.T) {
	bubble(t, func(b *bubbleWorld) {
		b.brokenOff()
		p := b.reconciling(func(context.Context, *idempotency.Execution) (*idempotency.Response, error) {
			require.Fail(b, "asked under a claim that may have lapsed")
			return nil, nil
		}, idempotency.WithLease(second))
		p.fake.on("Claim", func(nth int) bubbleFault {
			if nth == 2 {
				return bubbleFault{delay: 1100 * time.Millisecond}
			}
			return bubbleFault{}
		})
		p.send().refused(http.StatusServiceUnavailable, idempotency.CodeStoreUnavailable)
		require.NoError(b, p.mw.Drain(b.Context()))
		require.Empty(b, p.fake.log("Release"))
	})
}

// The dead run's key is freed, or settled, between the look and the takeover.
func TestTakeoverComesTooLate(t *testing.T) {
	bubble(t, func(b *bubbleWorld) {
		b.brokenOff()
		p := b.reconciling(func(context.Context, *idempotency.Execution) (*idempotency.Response, error) {
			require.Fail(b, "nothing is left to be asked about")
			return nil, nil
		})
		p.fake.on("Claim", func(nth int) bubbleFault {
			if nth == 2 {
				return bubbleFault{delay: second}
			}
			return bubbleFault{}
		})
		began := b.now()
		a := p.start()
		b.until(began + second/2)
		b.forget()
		b.process().send().created(2)
		a.wait().replayed(2)
		require.Equal(b, idempotency.OutcomeReplayed, p.event().Outcome)
		b.ran(2)
	})
}
