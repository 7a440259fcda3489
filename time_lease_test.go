package idempotency_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
)

// bubbleLease is the default lease, which most tests here use.
const bubbleLease = 30 * second

// every returns d, 2d, 3d … up to n times d.
func every(d time.Duration, n int) []time.Duration {
	var at []time.Duration
	for i := range n {
		at = append(at, time.Duration(i+1)*d)
	}
	return at
}

// untilEnded makes every run of the handler last until its context ends, and
// then answer 201. It returns where the runs say when that was and why.
func (b *bubbleWorld) untilEnded() *[]bubbleEnd {
	ends := new([]bubbleEnd)
	b.work = func(w http.ResponseWriter, r *http.Request, run int) {
		<-r.Context().Done()
		*ends = append(*ends, bubbleEnd{b.now(), context.Cause(r.Context())})
		bubbleCreated(w, run)
	}
	return ends
}

type bubbleEnd struct {
	at    time.Duration
	cause error
}

func TestHeartbeatEveryThirdOfTheLease(t *testing.T) {
	bubble(t, func(b *bubbleWorld) {
		b.takes(95 * second)
		p := b.process()
		a := p.start()
		a.wait().created(1)

		require.Equal(b, every(10*second, 9), p.fake.times("Extend"))
		claim := p.fake.log("Claim")[0].claim
		for _, c := range p.fake.log("Extend") {
			require.Equal(b, claim, c.claim)
			require.Equal(b, bubbleLease, c.lease)
			require.NoError(b, c.err)
		}
		b.until(time.Hour)
		require.Len(b, p.fake.log(), 1+9+1, "a claim, nine beats, a completion, and nothing after it")
		require.Equal(b, idempotency.OutcomeExecuted, p.event().Outcome)
		require.Equal(b, 95*second, p.event().Handler)
	})
}

func TestNoGoroutineBetweenBeats(t *testing.T) {
	bubble(t, func(b *bubbleWorld) {
		b.takes(95 * second)
		p := b.process()
		bare := bubbleRequest(b.Context(), "", "b1")
		bare.Header.Del("Idempotency-Key")
		before := b.goroutines()
		require.Positive(b, before, "goroutines of the bubble cannot be counted")
		unguarded := p.begin(bare)
		require.Equal(b, before+1, b.goroutines())

		a := p.start()
		for at := range 9 {
			b.until(time.Duration(at)*10*second + second)
			require.Equal(b, before+2, b.goroutines(), "at %v", b.now())
		}
		a.wait().created(2)
		unguarded.wait()
		require.Equal(b, before, b.goroutines())
	})
}

// A handler of many leases, with twins from another process all the while.
func TestTwinsOfALongRun(t *testing.T) {
	for _, lease := range []time.Duration{300 * time.Millisecond, 1500 * time.Millisecond, bubbleLease} {
		t.Run(lease.String(), func(t *testing.T) {
			bubble(t, func(b *bubbleWorld) {
				b.takes(5 * lease)
				p, other := b.process(idempotency.WithLease(lease)), b.process(idempotency.WithLease(lease))
				a := p.start()
				for i := range 50 {
					b.until(time.Duration(i)*lease/10 + lease/100)
					require.LessOrEqual(b, other.send().busy(), max(lease, second))
				}
				a.wait().created(1)
				other.send().replayed(1)
				p.send().replayed(1)
				b.ran(1)
				for _, e := range other.all()[:50] {
					require.Equal(b, idempotency.OutcomeRefused, e.Outcome)
					require.Equal(b, idempotency.CodeInProgress, e.Code)
				}
			})
		})
	}
}

// A claim whose beats fail is lost when its lease has lapsed, counted from the
// start of the last call that went well, and not a moment before.
func TestFailingBeats(t *testing.T) {
	down := bubbleFault{refuse: errBubbleDown}
	for _, c := range []struct {
		name  string
		claim bubbleFault
		beat  func(at time.Duration) bubbleFault
		lost  time.Duration // 0: not lost in 100 s
	}{
		{name: "none"},
		{name: "one", beat: func(at time.Duration) bubbleFault {
			if at == 40*second {
				return down
			}
			return bubbleFault{}
		}},
		{name: "replies lost", beat: func(at time.Duration) bubbleFault {
			if at < 50*second {
				return bubbleFault{lose: errBubbleDown}
			}
			return bubbleFault{}
		}, lost: bubbleLease}, // it cannot be known that they arrived
		{name: "for almost a lease", beat: func(at time.Duration) bubbleFault {
			if at >= 10*second && at < 28*second {
				return down
			}
			return bubbleFault{}
		}},
		{name: "for almost a lease, in the middle", beat: func(at time.Duration) bubbleFault {
			if at > 40*second && at < 68*second {
				return down
			}
			return bubbleFault{}
		}},
		{name: "for ever", beat: func(time.Duration) bubbleFault { return down }, lost: bubbleLease},
		{name: "for ever after one", beat: func(at time.Duration) bubbleFault {
			if at > 10*second {
				return down
			}
			return bubbleFault{}
		}, lost: 40 * second},
		{name: "for ever after a slow one", beat: func(at time.Duration) bubbleFault {
			if at == 10*second {
				return bubbleFault{delay: 1500 * time.Millisecond}
			}
			return down
		}, lost: 40 * second},
		{name: "for ever after a slow claim", claim: bubbleFault{delay: 1900 * time.Millisecond},
			beat: func(time.Duration) bubbleFault { return down }, lost: bubbleLease},
		{name: "hanging", beat: func(time.Duration) bubbleFault { return bubbleFault{hang: true} }, lost: bubbleLease},
		{name: "hanging once", beat: func(at time.Duration) bubbleFault { return bubbleFault{hang: at == 20*second} }},
		{name: "slow", beat: func(time.Duration) bubbleFault { return bubbleFault{delay: 1900 * time.Millisecond} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(b *bubbleWorld) {
				ended := new(bubbleEnd)
				b.work = func(w http.ResponseWriter, r *http.Request, run int) {
					select {
					case <-r.Context().Done():
						*ended = bubbleEnd{b.now(), context.Cause(r.Context())}
					case <-time.After(100*second - b.now()):
					}
					bubbleCreated(w, run)
				}
				p, other := b.process(), b.process()
				p.fake.always("Claim", c.claim)
				if c.beat != nil {
					p.fake.on("Extend", func(int) bubbleFault { return c.beat(b.now()) })
				}
				a := p.start()
				lives := 100 * second
				if c.lost > 0 {
					lives = c.lost
				}
				b.until(2 * second)
				for at := 3 * second; at < lives; at += second {
					b.until(at - time.Millisecond)
					other.send().busy()
				}
				a.wait().created(1)
				if c.lost > 0 {
					require.Equal(b, bubbleEnd{c.lost, idempotency.ErrClaimLost}, *ended)
				} else {
					require.Equal(b, bubbleEnd{}, *ended)
				}
				// Nobody has taken the claim: its answer is recorded all the same.
				other.send().replayed(1)
				b.ran(1)
				require.Equal(b, idempotency.OutcomeExecuted, p.event().Outcome)
			})
		})
	}
}

// The first beat is due a third of the lease after the claim was begun, not
// after its reply.
func TestFirstBeatCountsFromTheClaim(t *testing.T) {
	bubble(t, func(b *bubbleWorld) {
		b.takes(25 * second)
		p := b.process()
		p.fake.once("Claim", bubbleFault{delay: 1900 * time.Millisecond})
		p.send().created(1)
		require.Equal(b, every(10*second, 2), p.fake.times("Extend"))
	})
}

// A beat in flight when the handler ends is ended and waited for, so that no
// beat extends a claim that is being settled.
func TestBeatInFlightAtTheEnd(t *testing.T) {
	for _, c := range []struct {
		name   string
		work   func(w http.ResponseWriter)
		settle string
	}{
		{"complete", func(w http.ResponseWriter) { bubbleCreated(w, 1) }, "Complete"},
		{"release", func(w http.ResponseWriter) { w.WriteHeader(http.StatusServiceUnavailable) }, "Release"},
		{"panic", func(http.ResponseWriter) { panic("boom") }, "Release"},
	} {
		for _, beat := range []struct {
			name    string
			fault   bubbleFault
			settled time.Duration
		}{
			{"ends with its context", bubbleFault{delay: second}, 10500 * time.Millisecond},
			{"does not", bubbleFault{delay: second, deaf: true}, 11 * second},
			{"hangs", bubbleFault{hang: true}, 10500 * time.Millisecond},
		} {
			t.Run(c.name+", and the beat "+beat.name, func(t *testing.T) {
				bubble(t, func(b *bubbleWorld) {
					b.work = func(w http.ResponseWriter, _ *http.Request, _ int) {
						time.Sleep(10500 * time.Millisecond)
						c.work(w)
					}
					p := b.process()
					p.fake.always("Extend", beat.fault)
					p.send()
					extend, settle := p.fake.log("Extend"), p.fake.log(c.settle)
					require.Len(b, extend, 1)
					require.Len(b, settle, 1)
					require.Equal(b, beat.settled, settle[0].at)
					require.Less(b, extend[0].ended, settle[0].began)
					b.until(time.Hour)
					require.Len(b, p.fake.log(), 3)
				})
			})
		}
	}
}

// The answer goes out after it has been recorded, or after the key is free.
func TestSettledBeforeTheAnswer(t *testing.T) {
	for status, method := range map[int]string{201: "Complete", 503: "Release"} {
		bubble(t, func(b *bubbleWorld) {
			b.work = func(w http.ResponseWriter, _ *http.Request, _ int) { w.WriteHeader(status) }
			p := b.process()
			p.fake.always(method, bubbleFault{delay: second})
			a := p.send()
			settled := p.fake.log(method)[0]
			require.Greater(b, settled.ended, settled.began)
			require.Less(b, settled.ended, a.wrote)
			require.Equal(b, second, a.at)
		})
	}
}
