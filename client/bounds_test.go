package client_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency/client"
)

func TestBounds(t *testing.T) {
	t.Parallel()
	busy := problemStep(409, `{"error":"request_in_progress"}`, "Retry-After", "1")
	asks := func(seconds string) []step {
		return []step{{status: 503, body: "no", header: headers("Retry-After", seconds)}}
	}
	tests := []struct {
		name     string
		rt       *client.Transport
		steps    []step
		deadline time.Duration
		attempts int
		status   int // 0: an error
		stop     client.Stop
		within   time.Duration
	}{
		{name: "attempts", steps: []step{{status: 503, body: "no"}}, attempts: 5, status: 503, stop: client.StopAttempts, within: 2 * time.Second},
		{name: "own attempts", rt: &client.Transport{MaxAttempts: 2}, steps: []step{{err: errReset}}, attempts: 2, stop: client.StopAttempts, within: time.Second},
		{name: "one attempt", rt: &client.Transport{MaxAttempts: 1}, steps: []step{busy}, attempts: 1, status: 409, stop: client.StopAttempts},
		{name: "waiting does not count", rt: &client.Transport{MaxAttempts: 2}, steps: []step{busy, busy, busy, busy, busy, {status: 503}, {status: 503}}, attempts: 7, status: 503, stop: client.StopAttempts, within: 7 * time.Second},
		{name: "waiting is bounded", steps: []step{busy}, attempts: -1, status: 409, stop: client.StopElapsed, within: 2 * time.Minute},
		{name: "deadline", deadline: 3 * time.Second, steps: asks("3"), attempts: 1, status: 503, stop: client.StopDeadline},
		{name: "deadline later", deadline: 10 * time.Second, steps: asks("3"), attempts: 4, status: 503, stop: client.StopDeadline, within: 10 * time.Second},
		{name: "elapsed", rt: &client.Transport{MaxElapsed: 3 * time.Second}, steps: asks("3"), attempts: 1, status: 503, stop: client.StopElapsed},
		{name: "elapsed cuts the attempt off", rt: &client.Transport{MaxElapsed: 3 * time.Second}, steps: []step{{hang: true}}, attempts: 1, stop: client.StopElapsed, within: 3 * time.Second},
		{name: "key lifetime", rt: &client.Transport{KeyLifetime: 2 * time.Second}, steps: asks("3"), attempts: 1, status: 503, stop: client.StopLifetime},
		{name: "key lifetime later", rt: &client.Transport{KeyLifetime: 2 * time.Second}, steps: asks("1"), attempts: 2, status: 503, stop: client.StopLifetime, within: 2 * time.Second},
		{name: "budget", rt: &client.Transport{RetryBudget: 2, MinBackoff: time.Nanosecond}, steps: []step{{status: 503}}, attempts: 3, status: 503, stop: client.StopBudget, within: time.Microsecond},
		{name: "waiting needs no budget", rt: &client.Transport{RetryBudget: 1, MinBackoff: time.Nanosecond}, steps: []step{busy, busy, busy, {status: 201}}, attempts: 4, status: 201, stop: client.StopAnswered, within: 5 * time.Second},
		{name: "no limits", rt: &client.Transport{MaxAttempts: -1, MaxElapsed: -1, AttemptTimeout: -1, KeyLifetime: -1, RetryBudget: -1, MaxRetryAfter: -1}, steps: append(repeat(asks("86400")[0], 100), step{status: 201}), attempts: 101, status: 201, stop: client.StopAnswered, within: 101 * 24 * time.Hour},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				base := &script{steps: tt.steps}
				rt := orZero(tt.rt)
				rt.Base = base
				var last client.Attempt
				rt.OnAttempt = func(a client.Attempt) { last = a }
				ctx := t.Context()
				if tt.deadline > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tt.deadline)
					defer cancel()
				}
				resp, body, took, err := inBubble(t, rt, ctx)
				if tt.attempts < 0 { // one a second and the jitter
					tt.attempts = len(base.list())
					require.InDelta(t, 115, tt.attempts, 5)
				}
				base.requireSame(t, tt.attempts, payment)
				require.Equal(t, tt.stop, last.Stop)
				require.Equal(t, tt.attempts, last.Number)
				require.LessOrEqual(t, took, tt.within, "it does not wait for nothing")
				if tt.status == 0 {
					u := unknown(t, err)
					require.Equal(t, tt.attempts, u.Attempts)
					return
				}
				require.NoError(t, err)
				require.Equal(t, tt.status, resp.StatusCode)
				require.Equal(t, tt.attempts, client.Info(resp).Attempts)
				require.Equal(t, tt.steps[len(tt.steps)-1].body, body, "the last answer is readable")
			})
		})
	}
}

func orZero(rt *client.Transport) *client.Transport {
	if rt == nil {
		return &client.Transport{}
	}
	return rt
}

func repeat(s step, n int) []step {
	all := make([]step, n)
	for i := range all {
		all[i] = s
	}
	return all
}

func TestBudgetIsSharedAndComesBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := &script{steps: []step{{status: 503}}}
		rt := &client.Transport{Base: base, RetryBudget: 10, MinBackoff: time.Nanosecond}
		for range 100 {
			_, _, _, err := inBubble(t, rt, t.Context())
			require.NoError(t, err)
		}
		// 100 first attempts, the burst of 10, and a fifth for each operation.
		require.InDelta(t, 100+10+20, len(base.list()), 2)

		before := len(base.list())
		<-time.After(5 * time.Second)
		for range 10 {
			_, _, _, err := inBubble(t, rt, t.Context())
			require.NoError(t, err)
		}
		// Half of the bucket is back.
		require.InDelta(t, 10+5+2, len(base.list())-before, 2)
	})
}
