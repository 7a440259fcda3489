package idempotency_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
)

// The whole of the three policies: what each does with every status.
func TestPolicies(t *testing.T) {
	t.Parallel()
	notCarriedOut := map[int]bool{401: true, 408: true, 421: true, 425: true, 429: true, 503: true}
	for status := 200; status <= 999; status++ {
		for _, panicked := range []bool{false, true} {
			for _, cause := range []error{nil, idempotency.ErrClaimLost, idempotency.ErrMaxExecution} {
				e := idempotency.Ending{Status: status, Panicked: panicked, Cause: cause}
				final := !notCarriedOut[status] && !panicked && (status < 500 || cause == nil)
				require.Equal(t, final, idempotency.RecordFinal(e), "RecordFinal(%+v)", e)
				require.Equal(t, final && status < 500, idempotency.RecordNon5xx(e), "RecordNon5xx(%+v)", e)
				require.True(t, idempotency.RecordAll(e), "RecordAll(%+v)", e)
			}
		}
	}
}

// What the middleware makes of them, and of what the handler wishes.
func TestPolicyDecides(t *testing.T) {
	policies := map[string]idempotency.Policy{
		"":        nil,
		"final":   idempotency.RecordFinal,
		"all":     idempotency.RecordAll,
		"non-5xx": idempotency.RecordNon5xx,
	}
	wishes := map[string]func(e *idempotency.Execution){
		"":                  func(*idempotency.Execution) {},
		"keep":              (*idempotency.Execution).Keep,
		"discard":           (*idempotency.Execution).Discard,
		"discard then keep": func(e *idempotency.Execution) { e.Discard(); e.Keep() },
		"keep then discard": func(e *idempotency.Execution) { e.Keep(); e.Discard() },
	}
	for name, policy := range policies {
		for _, status := range []int{200, 201, 204, 302, 304, 400, 401, 404, 408, 409, 421, 422, 425, 429, 499, 500, 502, 503, 504, 599, 999} {
			for wish, set := range wishes {
				t.Run(fmt.Sprintf("%s %d %s", name, status, wish), func(t *testing.T) {
					bubble(t, func(b *bubbleWorld) {
						b.work = func(w http.ResponseWriter, r *http.Request, _ int) {
							set(idempotency.FromContext(r.Context()))
							w.WriteHeader(status)
						}
						var opts []idempotency.Option
						record := idempotency.RecordFinal(idempotency.Ending{Status: status})
						if policy != nil {
							opts = append(opts, idempotency.WithPolicy(policy))
							record = policy(idempotency.Ending{Status: status})
						}
						switch wish {
						case "keep", "discard then keep":
							record = true
						case "discard", "keep then discard":
							record = false
						}
						p := b.process(opts...)
						require.Equal(b, status, p.send().Code)
						require.Equal(b, status, p.event().Status)
						require.Equal(b, record, b.lookup() != nil)
						if record {
							require.Equal(b, idempotency.OutcomeExecuted, p.event().Outcome)
							again := p.send()
							require.Equal(b, status, again.Code)
							require.Equal(b, "true", again.Header().Get("Idempotent-Replayed"))
							b.ran(1)
						} else {
							require.Equal(b, idempotency.OutcomeReleased, p.event().Outcome)
							p.send()
							b.ran(2)
						}
					})
				})
			}
		}
	}
}

// A policy is told how the run ended.
func TestEnding(t *testing.T) {
	for _, c := range []struct {
		name string
		work func(w http.ResponseWriter, r *http.Request)
		want idempotency.Ending
	}{
		{"answer", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(418) }, idempotency.Ending{Status: 418}},
		{"nothing", func(http.ResponseWriter, *http.Request) {}, idempotency.Ending{Status: 200}},
		{"panic", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(201); panic("boom") }, idempotency.Ending{Status: 500, Panicked: true}},
		{"out of time", func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done(); w.WriteHeader(504) },
			idempotency.Ending{Status: 504, Cause: idempotency.ErrMaxExecution}},
		{"panic out of time", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done(); panic("boom") },
			idempotency.Ending{Status: 500, Panicked: true, Cause: idempotency.ErrMaxExecution}},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(b *bubbleWorld) {
				b.work = func(w http.ResponseWriter, r *http.Request, _ int) { c.work(w, r) }
				var got []idempotency.Ending
				p := b.process(idempotency.WithPolicy(func(e idempotency.Ending) bool {
					got = append(got, e)
					return false
				}))
				p.send()
				require.Equal(b, []idempotency.Ending{c.want}, got)
			})
		})
	}
}

// A recorded panic is replayed as the refusal handler_panicked, and the first
// client's connection ends as it would have.
func TestRecordedPanic(t *testing.T) {
	for _, custom := range []bool{false, true} {
		for _, value := range []any{"boom", http.ErrAbortHandler} {
			bubble(t, func(b *bubbleWorld) {
				b.work = func(w http.ResponseWriter, _ *http.Request, _ int) {
					w.Header().Set("X-Half", "done")
					w.WriteHeader(http.StatusCreated)
					_, _ = w.Write([]byte("half an answ"))
					panic(value)
				}
				opts := []idempotency.Option{idempotency.WithPolicy(idempotency.RecordAll), idempotency.WithDocs("https://api.example/errors")}
				if custom {
					opts = append(opts, idempotency.WithErrorHandler(func(w http.ResponseWriter, _ *http.Request, e *idempotency.Error) {
						w.Header().Set("X-Code", string(e.Code))
						w.WriteHeader(e.Status)
						_ = json.NewEncoder(w).Encode(map[string]string{"docs": e.Docs})
					}))
				}
				p := b.process(opts...)
				a := p.send()
				require.Equal(b, value, a.panicked)
				require.Zero(b, a.wrote, "nothing of half an answer goes out")
				e := p.event()
				require.Equal(b, idempotency.OutcomeExecuted, e.Outcome)
				require.Equal(b, idempotency.CodePanicked, e.Code)
				require.Equal(b, http.StatusInternalServerError, e.Status)

				for range 2 {
					again := p.send()
					require.Nil(b, again.panicked)
					require.Equal(b, "true", again.Header().Get("Idempotent-Replayed"))
					require.NotContains(b, again.Header(), "X-Half")
					if custom {
						require.Equal(b, http.StatusInternalServerError, again.Code)
						require.Equal(b, "handler_panicked", again.Header().Get("X-Code"))
						require.JSONEq(b, `{"docs":"https://api.example/errors"}`, again.Body.String())
					} else {
						problem := again.refused(http.StatusInternalServerError, idempotency.CodePanicked)
						require.False(b, problem.Retryable)
						require.Equal(b, "no-store", again.Header().Get("Cache-Control"))
					}
				}
				b.ran(1)
			})
		}
	}
}

// Without RecordAll a panic frees the key and goes on unchanged.
func TestPanicFreesTheKey(t *testing.T) {
	for _, wish := range []func(*idempotency.Execution){func(*idempotency.Execution) {}, (*idempotency.Execution).Keep, (*idempotency.Execution).Discard} {
		for _, value := range []any{"boom", http.ErrAbortHandler} {
			bubble(t, func(b *bubbleWorld) {
				b.work = func(w http.ResponseWriter, r *http.Request, run int) {
					if run == 1 {
						wish(idempotency.FromContext(r.Context()))
						panic(value)
					}
					bubbleCreated(w, run)
				}
				p := b.process()
				require.Equal(b, value, p.send().panicked)
				require.Equal(b, idempotency.OutcomeReleased, p.event().Outcome)
				require.Equal(b, idempotency.CodePanicked, p.event().Code)
				p.send().created(2)
			})
		}
	}
}

// A policy that panics is taken for a handler that did: nobody is answered, and
// no key is stuck.
func TestPolicyThatPanics(t *testing.T) {
	for name, opts := range map[string][]idempotency.Option{"": nil, "at most once": {idempotency.WithAtMostOnce()}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bubbleWorld) {
				p := b.process(append(opts, idempotency.WithPolicy(func(idempotency.Ending) bool { panic("policy") }))...)
				a := p.send()
				require.Equal(b, "policy", a.panicked)
				require.Zero(b, a.wrote)
				require.Equal(b, idempotency.CodePanicked, p.event().Code)
				if name == "" {
					require.Equal(b, idempotency.OutcomeReleased, p.event().Outcome)
					require.Nil(b, b.lookup())
				} else {
					require.Equal(b, idempotency.OutcomeUnstored, p.event().Outcome)
					b.until(bubbleLease)
					p.send().unknown(false)
				}
			})
		})
	}
}

// Discard counts more than a policy that records panics.
func TestDiscardedPanicIsNotRecorded(t *testing.T) {
	bubble(t, func(b *bubbleWorld) {
		b.work = func(w http.ResponseWriter, r *http.Request, run int) {
			if run == 1 {
				idempotency.FromContext(r.Context()).Discard()
				panic("boom")
			}
			bubbleCreated(w, run)
		}
		p := b.process(idempotency.WithPolicy(idempotency.RecordAll))
		require.Equal(b, "boom", p.send().panicked)
		require.Equal(b, idempotency.OutcomeReleased, p.event().Outcome)
		p.send().created(2)
	})
}
