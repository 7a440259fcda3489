package client_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency/client"
)

// An attempt that fails, or is answered, in the instant in which its time is up
// is over in either case: it has an error or an answer, never neither.
func TestAttemptEndsAsItsTimeIsUp(t *testing.T) {
	t.Parallel()
	for _, answered := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var attempt context.Context
			base := roundTripper(func(r *http.Request) (*http.Response, error) {
				attempt = r.Context()
				time.Sleep(time.Second)
				if !answered {
					return nil, errReset
				}
				// A body of unknown length, which is not read ahead.
				return &http.Response{StatusCode: 201, Body: stream(payment), ContentLength: -1, Request: r}, nil
			})
			rt := &client.Transport{Base: base, AttemptTimeout: time.Second, MaxAttempts: 1}
			for range 500 {
				resp, err := rt.RoundTrip(post(t, t.Context(), anywhere, strings.NewReader(payment)))
				if err == nil {
					require.True(t, answered)
					synctest.Wait()
					require.NoError(t, attempt.Err(), "the body can still be read")
					resp.Body.Close()
				} else {
					require.NotNil(t, unknown(t, err).Err)
				}
			}
		})
	}
}
