package client_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency/client"
)

// inBubble sends one payment over base on a fake clock and says how long it took.
func inBubble(t *testing.T, rt *client.Transport, ctx context.Context) (*http.Response, string, time.Duration, error) {
	t.Helper()
	began := time.Now()
	resp, body, err := roundTrip(t, rt, post(t, ctx, anywhere, strings.NewReader(payment)))
	return resp, body, time.Since(began), err
}

func TestWhatIsRepeated(t *testing.T) {
	t.Parallel()
	busy := `{"error":"request_in_progress","retryable":true}`
	unknownOutcome := `{"error":"outcome_unknown","retryable":true}`
	tests := []struct {
		name     string
		first    step
		repeated bool
	}{
		{"200", step{status: 200}, false},
		{"201", step{status: 201}, false},
		{"304", step{status: 304}, false},
		{"400", step{status: 400}, false},
		{"401", step{status: 401}, false},
		{"403", step{status: 403}, false},
		{"404", step{status: 404}, false},
		{"408", step{status: 408}, true},
		{"409 of the application", step{status: 409, body: "taken"}, false},
		{"409 of the application with Retry-After", step{status: 409, header: headers("Retry-After", "1")}, false},
		{"409 of another problem", problemStep(409, `{"error":"seat_taken"}`, "Retry-After", "1"), false},
		{"409 in progress", problemStep(409, busy, "Retry-After", "1"), true},
		{"409 in progress without Retry-After", problemStep(409, busy), true},
		{"409 in progress in plain JSON", step{status: 409, body: busy, header: headers("Content-Type", "application/json")}, false},
		{"409 in progress with a charset", step{status: 409, body: busy, header: headers("Content-Type", "application/problem+json; charset=utf-8")}, true},
		{"409 in progress, but not to be retried", problemStep(409, `{"error":"request_in_progress","retryable":false}`, "Retry-After", "1"), false},
		{"409 mismatch", problemStep(409, `{"error":"idempotency_key_reused_with_different_params"}`, "Retry-After", "1"), false},
		{"409 not replayable", problemStep(409, `{"error":"response_not_replayable"}`, "Retry-After", "1"), false},
		{"409 outcome unknown", problemStep(409, unknownOutcome), false},
		{"409 outcome unknown with Retry-After", problemStep(409, unknownOutcome, "Retry-After", "1"), true},
		{"409 outcome unknown for good", problemStep(409, `{"error":"outcome_unknown","retryable":false}`, "Retry-After", "1"), false},
		{"409 with a broken problem", problemStep(409, `{"error":"request_in_pro`, "Retry-After", "1"), false},
		{"409 with an endless problem", problemStep(409, strings.Repeat(" ", 1<<20)+busy, "Retry-After", "1"), false},
		{"413", step{status: 413}, false},
		{"422", step{status: 422}, false},
		{"425", step{status: 425}, true},
		{"429", step{status: 429}, true},
		{"500", step{status: 500}, true},
		{"500 replayed", step{status: 500, header: headers("Idempotent-Replayed", "true")}, false},
		{"503 replayed", step{status: 503, header: headers("Idempotent-Replayed", "true")}, false},
		{"500 not replayed", step{status: 500, header: headers("Idempotent-Replayed", "false")}, true},
		{"500 unguarded", step{status: 500, header: headers("Idempotency-Unguarded", "true")}, false},
		{"500 record corrupt", problemStep(500, `{"error":"record_corrupt","retryable":false}`), false},
		{"503 for good", problemStep(503, `{"error":"closed_for_ever","retryable":false}`), false},
		{"501", step{status: 501}, false},
		{"502", step{status: 502}, true},
		{"503", step{status: 503}, true},
		{"503 of the middleware", problemStep(503, `{"error":"store_unavailable","retryable":true}`, "Retry-After", "1"), true},
		{"504", step{status: 504}, true},
		{"connection reset", step{err: errReset}, true},
		{"certificate", step{err: &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}}, false},
		{"unknown authority", step{err: x509.UnknownAuthorityError{}}, false},
		{"wrong host", step{err: x509.HostnameError{Certificate: &x509.Certificate{}}}, false},
		{"expired certificate", step{err: x509.CertificateInvalidError{Reason: x509.Expired}}, false},
		{"attempt timed out", step{hang: true}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				base := &script{steps: []step{tt.first, {status: 201, body: "second"}}}
				resp, body, _, err := inBubble(t, &client.Transport{Base: base}, t.Context())
				if tt.repeated {
					require.NoError(t, err)
					require.Equal(t, "second", body)
					base.requireSame(t, 2, payment)
					return
				}
				base.requireSame(t, 1, payment)
				if tt.first.err != nil {
					require.ErrorIs(t, err, tt.first.err)
					var u *client.UnknownOutcomeError
					require.NotErrorAs(t, err, &u, "no request was sent")
					return
				}
				require.NoError(t, err)
				require.Equal(t, tt.first.status, resp.StatusCode)
				require.Equal(t, tt.first.body, body, "nothing of the body is lost")
			})
		})
	}
}

func TestWaits(t *testing.T) {
	t.Parallel()
	date := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(http.TimeFormat) }
	const jitter = 100*time.Millisecond + time.Microsecond
	tests := []struct {
		name   string
		first  func() step // made inside the bubble
		rt     *client.Transport
		lo, hi time.Duration
	}{
		{name: "back-off", first: func() step { return step{status: 503} }, hi: jitter},
		{name: "own back-off", first: func() step { return step{status: 503} }, rt: &client.Transport{MinBackoff: time.Nanosecond}, hi: time.Microsecond},
		{name: "seconds", first: func() step { return step{status: 503, header: headers("Retry-After", "7")} }, lo: 7 * time.Second, hi: 7*time.Second + jitter},
		{name: "zero", first: func() step { return step{status: 503, header: headers("Retry-After", "0")} }, hi: jitter},
		{name: "capped", first: func() step { return step{status: 503, header: headers("Retry-After", "3600")} }, lo: 30 * time.Second, hi: 30*time.Second + jitter},
		{name: "own cap", first: func() step { return step{status: 503, header: headers("Retry-After", "60")} }, rt: &client.Transport{MaxRetryAfter: time.Second}, lo: time.Second, hi: time.Second + jitter},
		{name: "no cap", first: func() step { return step{status: 503, header: headers("Retry-After", "60")} }, rt: &client.Transport{MaxRetryAfter: -1}, lo: time.Minute, hi: time.Minute + jitter},
		{name: "huge", first: func() step { return step{status: 503, header: headers("Retry-After", strings.Repeat("9", 30))} }, lo: 30 * time.Second, hi: 30*time.Second + jitter},
		{name: "negative", first: func() step { return step{status: 503, header: headers("Retry-After", "-5")} }, hi: jitter},
		{name: "nonsense", first: func() step { return step{status: 503, header: headers("Retry-After", "soon")} }, hi: jitter},
		{name: "date", first: func() step { return step{status: 503, header: headers("Retry-After", date(5*time.Second))} }, lo: 5 * time.Second, hi: 5*time.Second + jitter},
		{name: "past date", first: func() step { return step{status: 503, header: headers("Retry-After", date(-time.Hour))} }, hi: jitter},
		{name: "date by a clock that is fast", first: func() step {
			return step{status: 503, header: headers("Retry-After", date(time.Hour+5*time.Second), "Date", date(time.Hour))}
		}, lo: 5 * time.Second, hi: 5*time.Second + jitter},
		{name: "attempt time-out", first: func() step { return step{hang: true} }, lo: 30 * time.Second, hi: 30*time.Second + jitter},
		{name: "own attempt time-out", first: func() step { return step{hang: true} }, rt: &client.Transport{AttemptTimeout: time.Second}, lo: time.Second, hi: time.Second + jitter},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				base := &script{steps: []step{tt.first(), {status: 201}}}
				rt := orZero(tt.rt)
				rt.Base = base
				resp, _, took, err := inBubble(t, rt, t.Context())
				require.NoError(t, err)
				require.Equal(t, 201, resp.StatusCode)
				require.GreaterOrEqual(t, took, tt.lo)
				require.LessOrEqual(t, took, tt.hi)
			})
		})
	}
}

// The ceiling of the wait doubles up to MaxBackoff, and the waits are spread
// from zero to the ceiling.
func TestBackoffGrowsAndIsSpread(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ceilings := []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Second, 5 * time.Second}
		low, high := make([]time.Duration, len(ceilings)), make([]time.Duration, len(ceilings))
		const rounds = 200
		for range rounds {
			i := 0
			rt := &client.Transport{
				Base:       &script{steps: []step{{status: 503}}},
				MinBackoff: time.Second, MaxBackoff: 5 * time.Second, MaxAttempts: len(ceilings) + 1, RetryBudget: -1,
				OnAttempt: func(a client.Attempt) {
					if a.Stop != "" {
						return
					}
					require.LessOrEqual(t, a.Wait, ceilings[i]+time.Microsecond)
					if a.Wait < ceilings[i]/4 {
						low[i]++
					}
					if a.Wait > ceilings[i]*3/4 {
						high[i]++
					}
					i++
				},
			}
			_, _, _, err := inBubble(t, rt, t.Context())
			require.NoError(t, err)
			require.Equal(t, len(ceilings), i)
		}
		for i := range ceilings {
			// A quarter each is expected; fewer than 10 of 200 never happens by chance.
			require.Greater(t, low[i], time.Duration(10))
			require.Greater(t, high[i], time.Duration(10))
		}
	})
}

func TestCancelledWhileWaiting(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		wait step
		sent bool
	}{
		{"after an answer", step{status: 503, header: headers("Retry-After", "20")}, true},
		{"during an attempt", step{hang: true}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				base := &script{steps: []step{tt.wait}}
				ctx, cancel := context.WithCancelCause(t.Context())
				why := errors.New("the user has left")
				time.AfterFunc(time.Second, func() { cancel(why) })
				_, _, took, err := inBubble(t, &client.Transport{Base: base}, ctx)
				require.Equal(t, time.Second, took)
				u := unknown(t, err)
				require.Equal(t, base.requireSame(t, 1, payment), u.Key)
				require.NotContains(t, err.Error(), u.Key)
				if tt.name == "after an answer" {
					require.ErrorIs(t, err, why)
					require.ErrorContains(t, err, "status 503")
				}
			})
		})
	}
}

func TestClientTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		// http.Client tells an unknown RoundTripper in two ways; both are heeded.
		base := &script{steps: []step{{status: 503, header: headers("Retry-After", "20")}}}
		c := &http.Client{Transport: &client.Transport{Base: base}, Timeout: 5 * time.Second}
		resp, err := c.Do(post(t, t.Context(), anywhere, nil))
		require.NoError(t, err, "it returns the answer rather than wait past the time-out")
		require.Equal(t, 503, resp.StatusCode)
		resp.Body.Close()

		c.Transport = &client.Transport{Base: &script{steps: []step{{hang: true}}}}
		began := time.Now()
		_, err = c.Do(post(t, t.Context(), anywhere, nil))
		require.Equal(t, 5*time.Second-50*time.Millisecond, time.Since(began))
		require.NotEmpty(t, unknown(t, err).Key, "http.Client has not thrown the error away")
		var timeout interface{ Timeout() bool }
		require.ErrorAs(t, err, &timeout)
		require.True(t, timeout.Timeout())
	})
}

func TestLegacyCancel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := &script{steps: []step{{status: 503, header: headers("Retry-After", "20")}}}
		req := post(t, t.Context(), anywhere, nil)
		stop := make(chan struct{})
		req.Cancel = stop //nolint:staticcheck // callers may still use it
		time.AfterFunc(time.Second, func() { close(stop) })
		began := time.Now()
		_, err := (&client.Transport{Base: base}).RoundTrip(req)
		require.Equal(t, time.Second, time.Since(began))
		unknown(t, err)
	})
}

func TestJudge(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		first    step
		attempts int
	}{
		{"vendor says retry", step{status: 409, header: headers("Stripe-Should-Retry", "true")}, 2},
		{"vendor says no", step{status: 503, header: headers("Stripe-Should-Retry", "false")}, 1},
		{"vendor says nothing", step{status: 503}, 2},
		{"replayed stays final", step{status: 500, header: headers("Stripe-Should-Retry", "true", "Idempotent-Replayed", "true")}, 1},
		{"success is not asked about", step{status: 200, header: headers("Stripe-Should-Retry", "true")}, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			base := &script{steps: []step{tt.first, {status: 201}}}
			rt := fast(base)
			rt.Judge = client.StripeShouldRetry
			_, _, err := roundTrip(t, rt, post(t, t.Context(), anywhere, nil))
			require.NoError(t, err)
			require.Len(t, base.list(), tt.attempts)
		})
	}
}
