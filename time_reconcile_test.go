package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
)

// settled is what a Reconciler of these tests finds out.
func settled() *idempotency.Response {
	return &idempotency.Response{
		Status: http.StatusCreated,
		Header: http.Header{"Location": {"/things/1"}},
		Body:   []byte("thing 1"),
	}
}

// brokenOff has a first process die while it runs the handler, and lets its
// lease lapse. Later runs answer at once.
func (b *bubbleWorld) brokenOff() {
	b.work = func(w http.ResponseWriter, r *http.Request, run int) {
		if run == 1 {
			<-r.Context().Done()
		}
		bubbleCreated(w, run)
	}
	p := b.process(idempotency.WithAtMostOnce())
	dead := p.start()
	b.until(second)
	p.fake.die()
	b.until(bubbleLease + time.Millisecond)
	dead.wait()
}

// reconciling returns a process with a Reconciler.
func (b *bubbleWorld) reconciling(r idempotency.Reconciler, opts ...idempotency.Option) *bubbleProcess {
	return b.process(append([]idempotency.Option{idempotency.WithAtMostOnce(), idempotency.WithReconciler(r)}, opts...)...)
}

func TestReconciled(t *testing.T) {
	bubble(t, func(b *bubbleWorld) {
		b.brokenOff()
		asked := 0
		p := b.reconciling(func(ctx context.Context, e *idempotency.Execution) (*idempotency.Response, error) {
			asked++
			require.Equal(b, bubbleKey(), e.Key())
			require.Same(b, e, idempotency.FromContext(ctx))
			require.Equal(b, "ann", ctx.Value(bubbleUser{}))
			require.NoError(b, ctx.Err())
			e.SetReference("charge 7")
			e.SetTTL(time.Hour)
			return settled(), nil
		})
		ctx, hangUp := context.WithCancel(context.WithValue(b.Context(), bubbleUser{}, "ann"))
		defer hangUp()
		p.begin(bubbleRequest(ctx, "K", "b1")).wait().replayed(1)
		e := p.event()
		require.Equal(b, idempotency.OutcomeReconciled, e.Outcome)
		require.Equal(b, http.StatusCreated, e.Status)
		require.NoError(b, e.Err)
		record := b.lookup()
		require.Equal(b, "charge 7", record.Response.Reference)
		require.Equal(b, time.Hour, record.ExpiresIn)
		require.Zero(b, time.Since(record.Response.Time))

		p.send().replayed(1)
		require.Equal(b, idempotency.OutcomeReplayed, p.last().Outcome)
		require.Equal(b, 1, asked)
		b.ran(1)
	})
}

// The takeover names the dead run's token and holds the key from the beginning.
func TestTakeoverClaim(t *testing.T) {
	bubble(t, func(b *bubbleWorld) {
		b.brokenOff()
		dead := b.lookup().Token
		p := b.reconciling(func(context.Context, *idempotency.Execution) (*idempotency.Response, error) { return settled(), nil })
		p.send().replayed(1)
		claims := p.fake.log("Claim")
		require.Len(b, claims, 2)
		require.Empty(b, claims[0].claim.Replaces)
		require.Zero(b, claims[0].claim.Hold)
		require.Equal(b, dead, claims[1].claim.Replaces)
		require.Equal(b, bubbleTTL, claims[1].claim.Hold)
		require.Equal(b, claims[0].claim.Token, claims[1].claim.Token)
		require.NotEqual(b, dead, claims[1].claim.Token)
		for _, c := range p.fake.log("Extend", "Complete") {
			require.Empty(b, c.claim.Replaces)
		}
	})
}

// What the Reconciler leaves in the answer that is never recorded, or is too
// large to be.
func TestReconciledAnswerIsRecordedLikeAHandlers(t *testing.T) {
	bubble(t, func(b *bubbleWorld) {
		b.brokenOff()
		p := b.reconciling(func(context.Context, *idempotency.Execution) (*idempotency.Response, error) {
			r := settled()
			r.Header.Set("Set-Cookie", "session=1")
			r.Header.Set("Idempotent-Replayed", "false")
			r.Body = make([]byte, 11)
			return r, nil
		}, idempotency.WithMaxResponseBytes(10))
		a := p.send()
		require.Equal(b, http.StatusCreated, a.Code)
		require.Len(b, a.Body.Bytes(), 11)
		require.Equal(b, []string{"true"}, a.Header()["Idempotent-Replayed"])
		record := b.lookup().Response
		require.True(b, record.BodyLost)
		require.Empty(b, record.Body)
		require.Equal(b, http.Header{"Location": {"/things/1"}}, record.Header)
		require.Equal(b, http.StatusCreated, p.send().refused(http.StatusConflict, idempotency.CodeNotReplayable).OriginalStatus)
	})
}

func TestNotExecuted(t *testing.T) {
	for _, err := range []error{idempotency.ErrNotExecuted, fmt.Errorf("asked the bank: %w", idempotency.ErrNotExecuted)} {
		bubble(t, func(b *bubbleWorld) {
			b.brokenOff()
			b.takes(95 * second)
			began := b.now()
			p := b.reconciling(func(context.Context, *idempotency.Execution) (*idempotency.Response, error) {
				time.Sleep(2 * second)
				return nil, err
			})
			other := b.process(idempotency.WithAtMostOnce())
			a := p.start()
			for at := began; at < began+97*second; at += second {
				b.until(at + time.Millisecond)
				other.send().busy()
			}
			a.wait().created(2)
			require.Equal(b, idempotency.OutcomeExecuted, p.event().Outcome)
			require.Equal(b, 95*second, p.event().Handler)
			beats := p.fake.log("Extend")
			require.Len(b, beats, 9, "the beats go on from the reconciling into the handler")
			for _, c := range beats {
				require.Equal(b, bubbleTTL, c.claim.Hold)
			}
			other.send().replayed(2)
		})
	}
}

// What a Reconciler does that does not know either. The outcome stays unknown,
// and whoever comes after the lease asks again.
func TestStillUnknown(t *testing.T) {
	for _, c := range []struct {
		name string
		ask  idempotency.Reconciler
		says string
	}{
		{"error", func(context.Context, *idempotency.Execution) (*idempotency.Response, error) {
			return nil, errBubbleDown
		}, errBubbleDown.Error()},
		{"error beside an answer", func(context.Context, *idempotency.Execution) (*idempotency.Response, error) {
			return settled(), errBubbleDown
		}, errBubbleDown.Error()},
		{"panic", func(context.Context, *idempotency.Execution) (*idempotency.Response, error) { panic("boom") }, "boom"},
		{"abort", func(context.Context, *idempotency.Execution) (*idempotency.Response, error) {
			panic(http.ErrAbortHandler)
		}, "abort"},
		{"nothing", func(context.Context, *idempotency.Execution) (*idempotency.Response, error) { return nil, nil }, "neither"},
		{"no status", func(context.Context, *idempotency.Execution) (*idempotency.Response, error) {
			return &idempotency.Response{}, nil
		}, "status 0"},
		{"bad status", func(context.Context, *idempotency.Execution) (*idempotency.Response, error) {
			return &idempotency.Response{Status: 103}, nil
		}, "status 103"},
		{"huge status", func(context.Context, *idempotency.Execution) (*idempotency.Response, error) {
			return &idempotency.Response{Status: 1000}, nil
		}, "status 1000"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(b *bubbleWorld) {
				b.brokenOff()
				asked := 0
				p := b.reconciling(func(ctx context.Context, e *idempotency.Execution) (*idempotency.Response, error) {
					if asked++; asked < 3 {
						return c.ask(ctx, e)
					}
					return settled(), nil
				})
				for i := range 2 {
					b.until(time.Duration(i+1)*bubbleLease + 2*time.Millisecond)
					p.send().unknown(true)
					e := p.last()
					require.ErrorContains(b, e.Err, c.says)
					require.Equal(b, idempotency.OutcomeRefused, e.Outcome)
					p.send().busy() // the claim is left to lapse
					require.Equal(b, i+1, asked)
				}
				b.until(time.Hour)
				require.Empty(b, p.fake.log("Extend", "Release", "Complete"))
				p.send().replayed(1)
				require.Equal(b, 3, asked)
				b.ran(1)
			})
		})
	}
}

// Goexit in the Reconciler takes the request's goroutine with it, as it does in
// a handler. Nothing is left: no beat, no goroutine.
func TestGoexitInTheReconciler(t *testing.T) {
	bubble(t, func(b *bubbleWorld) {
		b.brokenOff()
		before := b.goroutines()
		var ctx context.Context
		p := b.reconciling(func(c context.Context, _ *idempotency.Execution) (*idempotency.Response, error) {
			ctx = c
			time.Sleep(15 * second)
			runtime.Goexit()
			return nil, nil
		})
		a := p.send()
		require.True(b, a.goexit)
		require.Error(b, ctx.Err())
		require.Equal(b, idempotency.OutcomeRefused, p.event().Outcome)
		require.Equal(b, idempotency.CodeOutcomeUnknown, p.event().Code)
		require.Equal(b, before, b.goroutines())
		b.until(time.Hour)
		require.Len(b, p.fake.log("Extend"), 1)
		b.process(idempotency.WithAtMostOnce()).send().unknown(false)
	})
}

// The Reconciler's context ends like a handler's.
func TestReconcilersContext(t *testing.T) {
	for _, taken := range []bool{false, true} {
		bubble(t, func(b *bubbleWorld) {
			b.brokenOff()
			began := b.now()
			var end bubbleEnd
			p := b.reconciling(func(ctx context.Context, _ *idempotency.Execution) (*idempotency.Response, error) {
				<-ctx.Done()
				end = bubbleEnd{b.now() - began, context.Cause(ctx)}
				return nil, errors.New("out of time")
			}, idempotency.WithMaxExecution(65*second))
			a := p.start()
			b.until(began + 5*second)
			if taken {
				b.forget()
				b.process().send().created(2)
			}
			if a.wait().unknown(true); taken {
				require.Equal(b, bubbleEnd{10 * second, idempotency.ErrClaimLost}, end)
			} else {
				require.Equal(b, bubbleEnd{65 * second, idempotency.ErrMaxExecution}, end)
			}
		})
	}
}

// A Reconciler that finds out too late that nothing was done, after its claim is
// lost or its time is over: another may have run the handler by then.
func TestNotExecutedTooLate(t *testing.T) {
	for _, cause := range []error{idempotency.ErrClaimLost, idempotency.ErrMaxExecution} {
		bubble(t, func(b *bubbleWorld) {
			b.brokenOff()
			began := b.now()
			p := b.reconciling(func(ctx context.Context, _ *idempotency.Execution) (*idempotency.Response, error) {
				<-ctx.Done()
				return nil, idempotency.ErrNotExecuted
			}, idempotency.WithMaxExecution(65*second))
			a := p.start()
			b.until(began + 5*second)
			if errors.Is(cause, idempotency.ErrClaimLost) {
				p.fake.always("Extend", bubbleFault{refuse: errBubbleDown})
			}
			a.wait().unknown(true)
			require.ErrorIs(b, p.event().Err, cause)
			require.Equal(b, idempotency.OutcomeRefused, p.event().Outcome)
			b.ran(1) // the one that broke off
		})
	}
}
