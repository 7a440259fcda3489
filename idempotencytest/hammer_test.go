package idempotencytest_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/idempotencytest"
)

// A handler without a fault passes, whatever it is guarded with.
func TestCorrectHandlers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		handler func(b *bank) http.Handler
		request func(string) *http.Request
		opts    []idempotencytest.Option
	}{
		{name: "plain"},
		{name: "at most once", opts: []idempotencytest.Option{
			idempotencytest.WithMiddleware(idempotency.WithAtMostOnce()), idempotencytest.WithOneEffect(),
		}},
		{name: "twins that wait", opts: []idempotencytest.Option{
			idempotencytest.WithMiddleware(idempotency.WithWait(time.Minute), idempotency.WithMismatchStatus(422)),
		}},
		{name: "strict", opts: []idempotencytest.Option{
			idempotencytest.WithMiddleware(idempotency.WithKeyCheck(idempotency.RequireUUID), idempotency.WithRequiredKey()),
		}},
		{name: "JSON", opts: []idempotencytest.Option{
			idempotencytest.WithMiddleware(idempotency.WithFingerprint(idempotency.FingerprintJSON)),
		}},
		{name: "one effect", handler: (*bank).careful, opts: []idempotencytest.Option{idempotencytest.WithOneEffect()}},
		{name: "a reconciler", handler: (*bank).careful, opts: []idempotencytest.Option{
			idempotencytest.WithOneEffect(),
			idempotencytest.WithMiddleware(idempotency.WithAtMostOnce(),
				idempotency.WithReconciler(func(context.Context, *idempotency.Execution) (*idempotency.Response, error) {
					return nil, idempotency.ErrNotExecuted
				})),
		}},
		{name: "a short lease", opts: []idempotencytest.Option{
			idempotencytest.WithMiddleware(idempotency.WithLease(time.Second), idempotency.WithMaxExecution(time.Minute)),
		}},
		{name: "a large answer", handler: func(b *bank) http.Handler {
			return b.handler(func(w http.ResponseWriter, _ *http.Request, key string) {
				created(w, b.charge(key)+strings.Repeat(" ", 2<<20))
			})
		}},
		{name: "invalid requests", opts: []idempotencytest.Option{
			idempotencytest.WithInvalid(func(string) *http.Request { return paymentOf(`{"amount":-1}`) }),
		}},
		{name: "a stream", handler: func(b *bank) http.Handler {
			return b.handler(func(w http.ResponseWriter, r *http.Request, key string) {
				answer := b.charge(key)
				for range 3 {
					_, _ = fmt.Fprintln(w, answer)
					w.(http.Flusher).Flush()
				}
			})
		}},
		{name: "another header, and authentication", handler: func(b *bank) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Authorization") != "Bearer token" || r.Host != "bank.test" {
					w.WriteHeader(http.StatusUnauthorized)
					return
				}
				created(w, b.charge(r.Header.Get("Request-Key")))
			})
		}, request: func(key string) *http.Request {
			r, err := http.NewRequest(http.MethodPatch, "https://bank.test/payments/"+key, nil)
			if err != nil {
				panic(err)
			}
			r.Header.Set("Authorization", "Bearer token")
			return r
		}, opts: []idempotencytest.Option{idempotencytest.WithKeyHeader("request-key")}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBank()
			if c.handler == nil {
				c.handler = (*bank).correct
			}
			if c.request == nil {
				c.request = payment
			}
			idempotencytest.Hammer(t, c.handler(b), c.request, append(c.opts, idempotencytest.WithEffects(b.count))...)
		})
	}
}

// A handler whose effects are not counted can be tried, too.
func TestWithoutEffects(t *testing.T) {
	t.Parallel()
	idempotencytest.Hammer(t, newBank().correct(), payment)
}

// What passes once passes every time.
func TestCorrectHandlerPassesEveryTime(t *testing.T) {
	t.Parallel()
	for range 20 {
		b := newBank()
		require.NoError(t, idempotencytest.Check(b.correct(), payment, idempotencytest.WithEffects(b.count), idempotencytest.WithGrace(0)))
	}
}

// recorder is a testing.TB that keeps what it is told.
type recorder struct {
	testing.TB
	logs, errors []string
}

func (r *recorder) Helper() {}
func (r *recorder) Logf(format string, args ...any) {
	r.logs = append(r.logs, fmt.Sprintf(format, args...))
}
func (r *recorder) Errorf(format string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}

// Hammer says for every key how often the handler ran and whether the answers agree.
func TestReport(t *testing.T) {
	t.Parallel()
	b, r := newBank(), &recorder{TB: t}
	idempotencytest.Hammer(r, b.correct(), payment, idempotencytest.WithEffects(b.count))
	require.Empty(t, r.errors)
	logs := strings.Join(r.logs, "\n")
	for _, want := range []string{
		"a request and its retries: 1 run of the handler, 4 answers, all equal, 1 side effect (key ",
		"twins: 1 run of the handler, ",
		"a client that hangs up before its request is complete: 1 run of the handler, 2 answers",
		"a client that hangs up before the handler works: 1 run of the handler, 2 answers",
		"a client that hangs up before it is answered: 1 run of the handler, 2 answers",
		"a lost lease: 2 runs of the handler, 3 answers, all equal, 2 side effects",
		"a crash in Claim, before it took effect: 1 run of the handler, 2 answers",
		"a crash in Claim, after it took effect: 1 run of the handler, 2 answers",
		"a crash in Complete, before it took effect: 2 runs of the handler, 2 answers, all equal, 2 side effects",
		"a crash in Complete, after it took effect: 1 run of the handler, 2 answers, all equal, 1 side effect",
		"a body that is empty: 1 run of the handler, 3 answers, all equal, 0 side effects",
		"a body that is cut off: 1 run of the handler, 3 answers, all equal, 0 side effects",
		"a body that is followed by garbage: 1 run of the handler, 3 answers, all equal, 1 side effect",
	} {
		require.Contains(t, logs, want)
	}
	require.Len(t, r.logs, 13)
}

// A failure tells the story of its key.
func TestStory(t *testing.T) {
	t.Parallel()
	b, r := newBank(), &recorder{TB: t}
	idempotencytest.Hammer(r, b.handler(func(w http.ResponseWriter, _ *http.Request, key string) {
		b.charge(key)
		created(w, b.charge(key))
	}), payment, idempotencytest.WithEffects(b.count))
	require.NotEmpty(t, r.errors)
	require.Regexp(t, `^idempotencytest: a request and its retries: run 1 had 2 side effects, a run should have one
	key [0-9a-f-]{36}:
	  1\. attempt 1, the first, was sent to process 1
	  2\. run 1 of the handler began, for attempt 1 \(side effects so far: 0\)
	  3\. run 1 returned \(side effects so far: 2\)
	  4\. attempt 1 was answered 201 "charge 2" \(the Middleware: executed\)
	  5\. attempt 2, a retry, was sent to process 1
	  6\. attempt 2 was answered 201 "charge 2" \(the Middleware: replayed\)
	  7\. attempt 3, a retry, was sent to process 2
	  8\. attempt 3 was answered 201 "charge 2" \(the Middleware: replayed\)
	  9\. attempt 4, with another body, was sent to process 1
	 10\. attempt 4 was answered 409 .* \(the Middleware: refused, idempotency_key_reused_with_different_params\)
	 11\. attempt 5, a retry, was sent to process 1
	 12\. attempt 5 was answered 201 "charge 2" \(the Middleware: replayed\)
	 13\. at the end \(side effects so far: 2\)$`, r.errors[0])
}

// The scenarios do to a key what they say.
func TestScenarios(t *testing.T) {
	t.Parallel()
	b := newBank()
	err := idempotencytest.Check(b.handler(func(w http.ResponseWriter, _ *http.Request, key string) {
		b.charge(key) // so that every scenario fails and tells its story
		b.charge(key)
		created(w, "charged")
	}), payment, idempotencytest.WithEffects(b.count))
	joined, ok := err.(interface{ Unwrap() []error })
	require.True(t, ok)
	stories := make(map[string]string)
	for _, err := range joined.Unwrap() {
		var f *idempotencytest.Failure
		require.ErrorAs(t, err, &f)
		stories[f.Scenario] = strings.Join(f.Story, "; ")
	}
	for scenario, want := range map[string]string{
		"a client that hangs up before the handler works": "attempt 1, the first, was sent to process 1; the client of attempt 1 hung up; " +
			"run 1 of the handler began, for attempt 1 (side effects so far: 0); run 1 returned (side effects so far: 2); " +
			"attempt 1 got no answer (the Middleware: executed); attempt 2, a retry, was sent to process 1; ",
		"a client that hangs up before it is answered": "attempt 1, the first, was sent to process 1; " +
			"run 1 of the handler began, for attempt 1 (side effects so far: 0); run 1 returned (side effects so far: 2); " +
			"the client of attempt 1 hung up; attempt 1 got no answer (the Middleware: executed); ",
		"a lost lease": "attempt 1, the first, was sent to process 1; " +
			"run 1 of the handler began, for attempt 1 (side effects so far: 0); run 1 returned (side effects so far: 2); " +
			"process 1 stalled; the lease ended; attempt 2, a retry, was sent to process 2; " +
			"run 2 of the handler began, for attempt 2 (side effects so far: 2); run 2 returned (side effects so far: 4); " +
			"attempt 2 was answered 201 \"charged\" (the Middleware: executed); process 1 woke up; " +
			"attempt 1 was answered 201 \"charged\" (the Middleware: unstored); attempt 3, a retry, was sent to process 1; " +
			"attempt 3 was answered 201 \"charged\" (the Middleware: replayed); ",
		"a crash in Claim, after it took effect": "attempt 1, the first, was sent to process 1; " +
			"process 1 died in its call Claim, which took effect; attempt 1 got no answer (the Middleware: refused, store_unavailable); " +
			"the lease ended; attempt 2, a retry, was sent to process 2; run 1 of the handler began, for attempt 2 ",
		"a crash in Complete, before it took effect": "attempt 1, the first, was sent to process 1; " +
			"run 1 of the handler began, for attempt 1 (side effects so far: 0); run 1 returned (side effects so far: 2); " +
			"process 1 died in its call Complete, which did not take effect; attempt 1 got no answer (the Middleware: unstored); " +
			"the lease ended; attempt 2, a retry, was sent to process 2; run 2 of the handler began, for attempt 2 ",
		"a crash in Complete, after it took effect": "attempt 1, the first, was sent to process 1; " +
			"run 1 of the handler began, for attempt 1 (side effects so far: 0); run 1 returned (side effects so far: 2); " +
			"process 1 died in its call Complete, which took effect; attempt 1 got no answer (the Middleware: unstored); " +
			"the lease ended; attempt 2, a retry, was sent to process 2; attempt 2 was answered 201 \"charged\" (the Middleware: replayed); ",
	} {
		require.True(t, strings.HasPrefix(stories[scenario], want), "%s: %s", scenario, stories[scenario])
	}
	twins := stories["twins"]
	require.Equal(t, 1, strings.Count(twins, "of the handler began"))
	require.Equal(t, 8, strings.Count(twins, ", a twin, was sent to process"))
	require.Contains(t, twins, "the Middleware: refused, request_in_progress")
}

func TestSenselessArguments(t *testing.T) {
	t.Parallel()
	handler := http.NotFoundHandler()
	for name, f := range map[string]func(){
		"handler":     func() { _ = idempotencytest.Check(nil, payment) },
		"newRequest":  func() { _ = idempotencytest.Check(handler, nil) },
		"WithEffects": func() { idempotencytest.WithEffects(nil) },
		"WithInvalid": func() { idempotencytest.WithInvalid(nil) },
	} {
		require.Panics(t, f, name)
	}
}
