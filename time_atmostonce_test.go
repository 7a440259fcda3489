package idempotency_test

import (
	"net/http"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
)

const bubbleTTL = 24 * time.Hour // the default, and with it the Hold

// unknown checks that the answer is outcome_unknown, and that nothing is said of
// trying again unless somebody could settle it.
func (a *bubbleAnswer) unknown(retryable bool) {
	a.world.Helper()
	p := a.refused(http.StatusConflict, idempotency.CodeOutcomeUnknown)
	require.Equal(a.world, retryable, p.Retryable)
	require.Equal(a.world, retryable, p.RetryAfter > 0)
}

// The claim begins to hold its key just before the handler runs, not before.
func TestHoldBeginsWithTheHandler(t *testing.T) {
	bubble(t, func(b *bubbleWorld) {
		var began int64
		b.work = func(w http.ResponseWriter, _ *http.Request, run int) {
			began = b.seq.Add(1)
			time.Sleep(15 * second)
			bubbleCreated(w, run)
		}
		p := b.process(idempotency.WithAtMostOnce())
		p.send().created(1)
		calls := p.fake.log()
		require.Len(b, calls, 4)
		require.Equal(b, "Claim", calls[0].method)
		require.Zero(b, calls[0].claim.Hold)
		require.Equal(b, "Extend", calls[1].method)
		require.Equal(b, bubbleTTL, calls[1].claim.Hold)
		require.Equal(b, bubbleLease, calls[1].lease)
		require.Less(b, calls[1].ended, began)
		require.Equal(b, "Extend", calls[2].method)
		require.Equal(b, 10*second, calls[2].at)
		require.Equal(b, bubbleTTL, calls[2].claim.Hold, "a beat keeps the Hold")
		require.Equal(b, "Complete", calls[3].method)
		p.send().replayed(1)
	})
}

// The beats count from the Extend, the last call that gave the lease.
func TestBeatsCountFromTheHold(t *testing.T) {
	bubble(t, func(b *bubbleWorld) {
		b.takes(15 * second)
		p := b.process(idempotency.WithAtMostOnce())
		p.fake.once("Claim", bubbleFault{delay: second})
		p.fake.once("Extend", bubbleFault{delay: second})
		p.send().created(1)
		require.Equal(b, []time.Duration{second, 11 * second}, p.fake.times("Extend"))
	})
}

// Without the Hold the handler does not run, and the key is freed.
func TestHoldFails(t *testing.T) {
	for _, fault := range []bubbleFault{{refuse: errBubbleDown}, {lose: errBubbleDown}, {refuse: idempotency.ErrClaimLost}} {
		bubble(t, func(b *bubbleWorld) {
			p := b.process(idempotency.WithAtMostOnce())
			p.fake.once("Extend", fault)
			a := p.send()
			a.refused(http.StatusServiceUnavailable, idempotency.CodeStoreUnavailable)
			require.Zero(b, a.at)
			b.ran(0)
			require.Equal(b, idempotency.OutcomeRefused, p.event().Outcome)
			require.NoError(b, p.mw.Drain(b.Context()))
			require.Less(b, b.now(), second)
			require.Nil(b, b.lookup())
			p.send().created(1)
		})
	}
}

// A process that dies while its handler runs: the key is busy for the rest of
// the lease, then unknown for one TTL, then free.
func TestCrashLeavesTheOutcomeUnknown(t *testing.T) {
	bubble(t, func(b *bubbleWorld) {
		b.work = func(w http.ResponseWriter, r *http.Request, run int) {
			if run == 1 {
				<-r.Context().Done()
			}
			bubbleCreated(w, run)
		}
		opts := []idempotency.Option{idempotency.WithAtMostOnce(), idempotency.WithTTL(time.Hour)}
		p, other := b.process(opts...), b.process(opts...)
		dead := p.start()
		b.until(second)
		p.fake.die()
		b.until(bubbleLease - time.Millisecond)
		other.send().busy()
		for _, after := range []time.Duration{time.Millisecond, time.Minute, time.Hour / 2, time.Hour - time.Millisecond} {
			b.until(bubbleLease + after)
			other.send().unknown(false)
			require.NoError(b, other.last().Err)
			require.Equal(b, idempotency.OutcomeRefused, other.last().Outcome)
		}
		different := other.begin(bubbleRequest(b.Context(), "K", "b2"))
		different.refused(http.StatusConflict, idempotency.CodeKeyReused)
		b.until(bubbleLease + time.Hour + time.Millisecond)
		other.send().created(2)
		dead.wait()
	})
}

// A waiting twin does not wait for a dead run.
func TestUnknownOutcomeEndsTheWaiting(t *testing.T) {
	forEachWaiter(t, func(b *bubbleWorld, process func(...idempotency.Option) *bubbleProcess, name string) {
		b.untilEnded()
		p := b.process(idempotency.WithAtMostOnce())
		other := process(idempotency.WithAtMostOnce(), idempotency.WithWait(10*time.Minute))
		dead := p.start()
		b.until(second)
		p.fake.die()
		twin := other.start()
		twin.wait().unknown(false)
		require.LessOrEqual(b, twin.at, bubbleLease+slack(name))
		dead.wait()
	})
}

// A process that dies between its claim and its handler frees the key after one
// lease: nothing was done.
func TestCrashBeforeTheHold(t *testing.T) {
	bubble(t, func(b *bubbleWorld) {
		p, other := b.process(idempotency.WithAtMostOnce()), b.process(idempotency.WithAtMostOnce())
		p.fake.once("Extend", bubbleFault{delay: second})
		dead := p.start()
		b.until(time.Millisecond)
		p.fake.die()
		b.until(bubbleLease - time.Millisecond)
		other.send().busy()
		b.until(bubbleLease + time.Millisecond)
		other.send().created(1)
		dead.refused(http.StatusServiceUnavailable, idempotency.CodeStoreUnavailable)
	})
}

// The runner that was only slow comes back: its answer is true and is recorded,
// also after the claim has lapsed.
func TestSlowRunCompletesIntoItsHold(t *testing.T) {
	bubble(t, func(b *bubbleWorld) {
		b.takes(2 * time.Minute)
		p, other := b.process(idempotency.WithAtMostOnce()), b.process(idempotency.WithAtMostOnce())
		p.fake.on("Extend", func(nth int) bubbleFault {
			if nth > 1 {
				return bubbleFault{refuse: errBubbleDown}
			}
			return bubbleFault{}
		})
		a := p.start()
		b.until(time.Minute)
		other.send().unknown(false)
		a.wait().created(1)
		other.send().replayed(1)
		b.ran(1)
	})
}

// A beat revives a claim that has lapsed into its Hold.
func TestBeatRevivesALapsedClaim(t *testing.T) {
	bubble(t, func(b *bubbleWorld) {
		b.takes(2 * time.Minute)
		p := b.process(idempotency.WithAtMostOnce())
		a := p.start()
		b.until(5 * second)
		// Another writer shortens the lease, as a store does that loses time.
		claim := p.fake.log("Extend")[0].claim
		require.NoError(b, b.store.Extend(b.Context(), claim, second))
		b.until(7 * second)
		p.send().unknown(false)
		b.until(11 * second)
		p.send().busy()
		a.wait().created(1)
	})
}

// How a run ends under WithAtMostOnce.
func TestEndingsAtMostOnce(t *testing.T) {
	execution := func(r *http.Request) *idempotency.Execution { return idempotency.FromContext(r.Context()) }
	for _, c := range []struct {
		name    string
		work    func(w http.ResponseWriter, r *http.Request)
		opts    []idempotency.Option
		outcome idempotency.Outcome
		unknown bool
	}{
		{name: "panic", work: func(http.ResponseWriter, *http.Request) { panic("boom") }, outcome: idempotency.OutcomeUnstored, unknown: true},
		{name: "abort", work: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, outcome: idempotency.OutcomeUnstored, unknown: true},
		{name: "Goexit", work: func(http.ResponseWriter, *http.Request) { runtime.Goexit() }, outcome: idempotency.OutcomeUnstored, unknown: true},
		{name: "panic after Keep", work: func(_ http.ResponseWriter, r *http.Request) {
			execution(r).Keep()
			panic("boom")
		}, outcome: idempotency.OutcomeUnstored, unknown: true},
		{name: "panic after Discard", work: func(_ http.ResponseWriter, r *http.Request) {
			execution(r).Discard()
			panic("boom")
		}, outcome: idempotency.OutcomeReleased},
		{name: "recorded panic", work: func(http.ResponseWriter, *http.Request) { panic("boom") },
			opts: []idempotency.Option{idempotency.WithPolicy(idempotency.RecordAll)}, outcome: idempotency.OutcomeExecuted},
		{name: "503", work: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }, outcome: idempotency.OutcomeReleased},
		{name: "503 kept", work: func(w http.ResponseWriter, r *http.Request) {
			execution(r).Keep()
			w.WriteHeader(503)
		}, outcome: idempotency.OutcomeExecuted},
		{name: "201 discarded", work: func(w http.ResponseWriter, r *http.Request) {
			execution(r).Discard()
			w.WriteHeader(201)
		}, outcome: idempotency.OutcomeReleased},
		{name: "500", work: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, outcome: idempotency.OutcomeExecuted},
		{name: "500 with RecordNon5xx", work: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) },
			opts: []idempotency.Option{idempotency.WithPolicy(idempotency.RecordNon5xx)}, outcome: idempotency.OutcomeReleased},
		{name: "short answer", work: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "10")
			_, _ = w.Write([]byte("short"))
		}, outcome: idempotency.OutcomeUnstored, unknown: true},
		{name: "short answer kept", work: func(w http.ResponseWriter, r *http.Request) {
			execution(r).Keep()
			w.Header().Set("Content-Length", "10")
		}, outcome: idempotency.OutcomeUnstored, unknown: true},
		{name: "short answer discarded", work: func(w http.ResponseWriter, r *http.Request) {
			execution(r).Discard()
			w.Header().Set("Content-Length", "10")
		}, outcome: idempotency.OutcomeReleased},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(b *bubbleWorld) {
				b.work = func(w http.ResponseWriter, r *http.Request, run int) {
					if run > 1 {
						bubbleCreated(w, run)
						return
					}
					time.Sleep(5 * second)
					c.work(w, r)
				}
				p := b.process(append(c.opts, idempotency.WithAtMostOnce())...)
				p.send()
				require.Equal(b, c.outcome, p.event().Outcome)
				switch {
				case c.unknown:
					p.send().busy()
					b.until(5*second + 25*second - time.Millisecond)
					p.send().busy()
					b.until(5*second + bubbleLease)
					p.send().unknown(false)
					b.forget()
					p.send().created(2)
				case c.outcome == idempotency.OutcomeReleased:
					p.send().created(2)
				default:
					require.Equal(b, "true", p.send().Header().Get("Idempotent-Replayed"))
					b.ran(1)
				}
			})
		})
	}
}

// Recording goes on behind, and the Hold with it: when it is given up, the
// outcome is unknown, not free.
func TestCompleteGivenUpAtMostOnce(t *testing.T) {
	bubble(t, func(b *bubbleWorld) {
		opts := []idempotency.Option{idempotency.WithAtMostOnce(), idempotency.WithMaxExecution(time.Minute)}
		p, other := b.process(opts...), b.process(opts...)
		p.fake.always("Complete", bubbleFault{refuse: errBubbleDown})
		p.send().created(1)
		require.NoError(b, p.mw.Drain(b.Context()))
		require.Equal(b, idempotency.OutcomeUnstored, p.event().Outcome)
		b.until(b.now() + bubbleLease)
		other.send().unknown(false)
		b.ran(1)
	})
}

// A Release that fails goes on behind; the claim does not become unknown
// meanwhile.
func TestReleaseBehindAtMostOnce(t *testing.T) {
	bubble(t, func(b *bubbleWorld) {
		b.work = func(w http.ResponseWriter, _ *http.Request, run int) {
			if run == 1 {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			bubbleCreated(w, run)
		}
		p := b.process(idempotency.WithAtMostOnce())
		p.fake.on("Release", func(int) bubbleFault {
			if b.now() < 5*time.Minute {
				return bubbleFault{refuse: errBubbleDown}
			}
			return bubbleFault{}
		})
		p.send()
		for at := time.Duration(0); at < 5*time.Minute; at += second {
			b.until(at + time.Millisecond)
			p.send().busy()
		}
		require.NoError(b, p.mw.Drain(b.Context()))
		require.Equal(b, idempotency.OutcomeReleased, p.last().Outcome)
		p.send().created(2)
	})
}
