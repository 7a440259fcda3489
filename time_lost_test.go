package idempotency_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
)

// A store that has forgotten the claim, while nobody else took it: the runner
// makes it again with its own token and goes on.
func TestForgottenClaimIsMadeAgain(t *testing.T) {
	for _, c := range []struct {
		name   string
		claim  func(nth int) bubbleFault // of the calls after the first
		remade time.Duration
	}{
		{"at once", func(int) bubbleFault { return bubbleFault{} }, 10 * second},
		{"after an error", func(nth int) bubbleFault {
			if nth == 2 {
				return bubbleFault{refuse: errBubbleDown}
			}
			return bubbleFault{}
		}, 10*second + 1001*time.Millisecond},
		{"after a lost reply", func(nth int) bubbleFault {
			if nth == 2 {
				return bubbleFault{lose: errBubbleDown}
			}
			return bubbleFault{}
		}, 10 * second},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(b *bubbleWorld) {
				b.takes(100 * second)
				p, other := b.process(), b.process()
				p.fake.on("Claim", c.claim)
				a := p.start()
				b.until(9 * second)
				b.forget()
				b.until(c.remade + time.Millisecond)
				for b.now() < 99*second {
					other.send().busy()
					b.until(b.now() + second)
				}
				claims := p.fake.log("Claim")
				require.Equal(b, claims[0].claim, claims[1].claim)
				a.wait().created(1)
				other.send().replayed(1)
				b.ran(1)
				require.Equal(b, idempotency.OutcomeExecuted, p.event().Outcome)
			})
		})
	}
}

// The claim is made again with the Hold that it had.
func TestForgottenClaimKeepsItsHold(t *testing.T) {
	bubble(t, func(b *bubbleWorld) {
		b.takes(100 * second)
		p, other := b.process(idempotency.WithAtMostOnce()), b.process(idempotency.WithAtMostOnce())
		a := p.start()
		b.until(9 * second)
		b.forget()
		b.until(11 * second)
		p.fake.die()
		b.until(41 * second)
		other.send().refused(http.StatusConflict, idempotency.CodeOutcomeUnknown)
		a.wait()
	})
}

// The store forgets the claim and a second process takes the key. The first
// runner learns of it at its next beat, its client gets its answer, and the
// second one's record is what counts.
func TestClaimTakenByAnother(t *testing.T) {
	for _, status := range []int{http.StatusCreated, http.StatusInternalServerError, http.StatusServiceUnavailable} {
		bubble(t, func(b *bubbleWorld) {
			var end bubbleEnd
			b.work = func(w http.ResponseWriter, r *http.Request, run int) {
				if run == 1 {
					<-r.Context().Done()
					end = bubbleEnd{b.now(), r.Context().Err()}
					time.Sleep(5 * second)
					w.WriteHeader(status)
					return
				}
				time.Sleep(50 * second)
				bubbleCreated(w, run)
			}
			p, other := b.process(), b.process()
			first := p.start()
			b.until(12 * second)
			b.forget()
			later := other.start()
			require.Equal(b, status, first.wait().Code)
			require.Equal(b, 20*second, end.at, "the first beat after the loss")
			require.Equal(b, 25*second, first.at)
			e := p.event()
			if status == http.StatusCreated {
				require.Equal(b, idempotency.OutcomeUnstored, e.Outcome)
				require.ErrorIs(b, e.Err, idempotency.ErrClaimLost)
			} else {
				require.Equal(b, idempotency.OutcomeReleased, e.Outcome)
			}
			require.Equal(b, 25*second, e.at)

			p.send().busy() // a stranger's settling has changed nothing
			later.wait().created(2)
			p.send().replayed(2)
			other.send().replayed(2)
			b.ran(2)
			require.Equal(b, idempotency.OutcomeExecuted, other.all()[0].Outcome)
		})
	}
}

// The cause is ErrClaimLost, and no beat follows.
func TestNoBeatAfterTheLoss(t *testing.T) {
	bubble(t, func(b *bubbleWorld) {
		ends := b.untilEnded()
		p := b.process()
		a := p.start()
		b.until(12 * second)
		b.forget()
		held, err := b.store.Claim(b.Context(), idempotency.Claim{Key: bubbleKey(), Token: "another"}, time.Hour)
		require.NoError(b, err)
		require.Nil(b, held)
		a.wait().created(1)
		require.Equal(b, []bubbleEnd{{20 * second, idempotency.ErrClaimLost}}, *ends)
		b.until(10 * time.Minute)
		require.Equal(b, every(10*second, 2), p.fake.times("Extend"))
		require.Len(b, p.fake.log("Complete"), 1, "a lost claim is not completed again and again")
	})
}

// Renewals that do not arrive: the key lapses and another process runs. What the
// first one does when it ends must not free the second one's claim.
func TestStaleReleaseFreesNothing(t *testing.T) {
	bubble(t, func(b *bubbleWorld) {
		release := make(chan struct{})
		b.work = func(w http.ResponseWriter, r *http.Request, run int) {
			if run == 1 {
				<-r.Context().Done()
				<-release
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			time.Sleep(100 * second)
			bubbleCreated(w, run)
		}
		p, other, third := b.process(), b.process(), b.process()
		p.fake.always("Extend", bubbleFault{refuse: errBubbleDown})
		a := p.start()
		b.until(30*second + time.Millisecond)
		taken := other.start()
		b.until(31 * second)
		close(release)
		require.Equal(b, http.StatusServiceUnavailable, a.wait().Code)
		require.Len(b, p.fake.log("Release"), 1)
		third.send().busy()
		taken.wait().created(2)
		third.send().replayed(2)
		b.ran(2)
	})
}

// A claim that lapsed unnoticed is completed late where nobody took it, and
// refused where somebody has completed the key.
func TestLateCompletion(t *testing.T) {
	for _, taken := range []bool{false, true} {
		bubble(t, func(b *bubbleWorld) {
			b.work = func(w http.ResponseWriter, _ *http.Request, run int) {
				if run == 1 {
					time.Sleep(50 * second)
				}
				bubbleCreated(w, run)
			}
			p, other := b.process(), b.process()
			p.fake.always("Extend", bubbleFault{refuse: errBubbleDown})
			a := p.start()
			b.until(40 * second)
			want := 1
			if taken {
				other.send().created(2)
				want = 2
			}
			a.wait().created(1)
			other.send().replayed(want)
			b.ran(want)
			if e := p.event(); taken {
				require.Equal(b, idempotency.OutcomeUnstored, e.Outcome)
				require.ErrorIs(b, e.Err, idempotency.ErrClaimLost)
			} else {
				require.Equal(b, idempotency.OutcomeExecuted, e.Outcome)
			}
		})
	}
}
