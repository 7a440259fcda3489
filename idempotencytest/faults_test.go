package idempotencytest_test

import (
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/idempotencytest"
)

// faulty is a handler with a fault, and what is said of it.
type faulty struct {
	name    string
	handler func(b *bank) http.Handler
	request func(string) *http.Request
	opts    []idempotencytest.Option
	want    string
}

// worked makes a handler of what it does with a request that is in order.
func worked(work func(b *bank, w http.ResponseWriter, r *http.Request, key string)) func(b *bank) http.Handler {
	return func(b *bank) http.Handler {
		return b.handler(func(w http.ResponseWriter, r *http.Request, key string) { work(b, w, r, key) })
	}
}

// ofEffects are faults that show in the side effects.
func ofEffects() []faulty {
	return []faulty{
		{name: "a goroutine that outlives the request", handler: worked(func(b *bank, w http.ResponseWriter, _ *http.Request, key string) {
			go b.charge(key)
			created(w, "soon")
		}), want: "the handler went on after it had returned"},
		{name: "a slow goroutine that outlives the request", handler: worked(func(b *bank, w http.ResponseWriter, _ *http.Request, key string) {
			time.AfterFunc(10*time.Millisecond, func() { b.charge(key) })
			created(w, "soon")
		}), want: "the handler went on after it had returned: run 1 had 0 side effects when it returned, and 1 side effect later"},
		{name: "a goroutine that ends with the request", handler: worked(func(b *bank, w http.ResponseWriter, r *http.Request, key string) {
			go func() {
				select {
				case <-r.Context().Done():
				case <-time.After(time.Minute):
					b.charge(key)
				}
			}()
			created(w, "soon")
		}), want: "the request was carried out without a side effect"},
		{name: "a side effect before validation", handler: func(b *bank) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				answer := b.charge(r.Header.Get("Idempotency-Key"))
				if !payable(r) {
					http.Error(w, "no amount", http.StatusUnprocessableEntity)
					return
				}
				created(w, answer)
			})
		}, want: "run 1 had its side effect and then refused the request with 422"},
		{name: "a panic after the side effect", handler: func(b *bank) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				answer := b.charge(r.Header.Get("Idempotency-Key"))
				if !payable(r) {
					panic("no amount")
				}
				created(w, answer)
			})
		}, want: "run 1 panicked after its side effect, and a retry repeats it"},
		{name: "two side effects", handler: worked(func(b *bank, w http.ResponseWriter, _ *http.Request, key string) {
			b.charge(key)
			created(w, b.charge(key))
		}), want: "run 1 had 2 side effects, a run should have one"},
		{name: "busy after the side effect", handler: func(b *bank) http.Handler {
			var n atomic.Int64
			return b.handler(func(w http.ResponseWriter, _ *http.Request, key string) {
				answer := b.charge(key)
				if n.Add(1)%2 == 0 {
					w.WriteHeader(http.StatusServiceUnavailable)
					return
				}
				created(w, answer)
			})
		}, want: "had its side effect and then refused the request with 503"},
		{name: "a released failure after the side effect", handler: func(b *bank) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				answer := b.charge(r.Header.Get("Idempotency-Key"))
				if !payable(r) {
					w.WriteHeader(http.StatusInternalServerError)
					return
				}
				created(w, answer)
			})
		}, opts: []idempotencytest.Option{idempotencytest.WithMiddleware(idempotency.WithPolicy(idempotency.RecordNon5xx))},
			want: "run 1 had its side effect and its key was released, so a retry repeats it"},
		{name: "runtime.Goexit after the side effect", handler: func(b *bank) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				answer := b.charge(r.Header.Get("Idempotency-Key"))
				if !payable(r) {
					runtime.Goexit()
				}
				created(w, answer)
			})
		}, want: "run 1 ended by runtime.Goexit"},
		{name: "repeated after a crash", handler: (*bank).correct, opts: []idempotencytest.Option{idempotencytest.WithOneEffect()},
			want: "2 side effects for one key, with WithOneEffect"},
		{name: "effects of all keys", handler: (*bank).correct, opts: []idempotencytest.Option{
			idempotencytest.WithEffects(func(string) int { return 7 }),
		}, want: "the key had 7 side effects before the handler ran"},
		{name: "a record that expires at once", handler: worked(func(b *bank, w http.ResponseWriter, r *http.Request, key string) {
			idempotency.FromContext(r.Context()).SetTTL(1)
			created(w, b.charge(key))
		}), want: "the handler ran again although its answer had been recorded"},
		{name: "many runs", handler: worked(func(b *bank, w http.ResponseWriter, r *http.Request, key string) {
			idempotency.FromContext(r.Context()).SetTTL(1)
			created(w, b.charge(key))
		}), want: "and no crash, lost lease or released key explains more than 1"},
	}
}

// ofAnswers are faults that show in the answers.
func ofAnswers() []faulty {
	return []faulty{
		{name: "discards what it did", handler: worked(func(b *bank, w http.ResponseWriter, r *http.Request, key string) {
			idempotency.FromContext(r.Context()).Discard()
			created(w, b.charge(key))
		}), want: "run 1 answered 201 and its key was released, so a retry carries the request out again"},
		{name: "a policy that releases everything", handler: (*bank).correct, opts: []idempotencytest.Option{
			idempotencytest.WithMiddleware(idempotency.WithPolicy(func(idempotency.Ending) bool { return false })),
		}, want: "run 1 answered 201 and its key was released"},
		{name: "a second run answers otherwise", handler: func(b *bank) http.Handler {
			var n atomic.Int64
			return b.handler(func(w http.ResponseWriter, r *http.Request, key string) {
				b.chargeOnce(key, idempotency.FromContext(r.Context()).Derive("charge"))
				created(w, fmt.Sprint("answer ", n.Add(1)))
			})
		}, opts: []idempotencytest.Option{idempotencytest.WithOneEffect()}, want: "was answered otherwise than attempt"},
		{name: "invalid requests carried out", handler: func(b *bank) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				created(w, b.charge(r.Header.Get("Idempotency-Key")))
			})
		}, opts: []idempotencytest.Option{
			idempotencytest.WithInvalid(func(string) *http.Request { return paymentOf(`{"amount":-1}`) }),
		}, want: "a request of WithInvalid was answered with 201, not with 400 to 499"},
		{name: "a fingerprint without the body", handler: (*bank).correct, opts: []idempotencytest.Option{
			idempotencytest.WithMiddleware(idempotency.WithFingerprint(func(*http.Request, []byte) (idempotency.Fingerprint, error) {
				return idempotency.Fingerprint{}, nil
			})),
		}, want: "another body under the same key was not refused"},
	}
}

// ofUse are faults in the way Hammer is used, which would have it try nothing.
func ofUse() []faulty {
	var n atomic.Int64
	return []faulty{
		{name: "a request that is refused", handler: (*bank).correct, request: func(string) *http.Request { return paymentOf(`{}`) },
			want: "the handler did not carry out the request of newRequest"},
		{name: "another request every time", handler: (*bank).correct, request: func(string) *http.Request {
			return paymentOf(fmt.Sprintf(`{"amount":%d}`, n.Add(1)))
		}, want: "newRequest returned two different requests for one key"},
		{name: "no request", handler: (*bank).correct, request: func(string) *http.Request { return nil }, want: "newRequest returned nil"},
		{name: "a method that is not guarded", handler: worked(func(b *bank, w http.ResponseWriter, _ *http.Request, key string) {
			created(w, b.charge(key))
		}), request: func(string) *http.Request {
			r := paymentOf(`{"amount":100}`)
			r.Method = http.MethodPut
			return r
		}, want: "the request was not guarded: is its method, PUT, one that is, and its key header Idempotency-Key?"},
		{name: "a request that the guard refuses", handler: (*bank).correct, opts: []idempotencytest.Option{
			idempotencytest.WithMiddleware(idempotency.WithMaxRequestBytes(1)),
		}, want: "the handler was not reached by the request of newRequest"},
		{name: "a handler that panics", handler: worked(func(*bank, http.ResponseWriter, *http.Request, string) { panic("a fault") }),
			want: "the handler did not carry out the request of newRequest"},
	}
}

// Each of these handlers has one fault, and it is found.
func TestFaultsAreFound(t *testing.T) {
	t.Parallel()
	for _, list := range [][]faulty{ofEffects(), ofAnswers(), ofUse()} {
		for _, f := range list {
			t.Run(f.name, func(t *testing.T) {
				t.Parallel()
				b, r := newBank(), &recorder{TB: t}
				if f.request == nil {
					f.request = payment
				}
				opts := append([]idempotencytest.Option{idempotencytest.WithEffects(b.count)}, f.opts...)
				idempotencytest.Hammer(r, f.handler(b), f.request, opts...)
				require.NotEmpty(t, r.errors)
				for _, text := range r.errors {
					if strings.Contains(text, f.want) {
						return
					}
				}
				t.Errorf("none of the errors says %q: %q", f.want, r.errors)
			})
		}
	}
}

// A handler that does not end is reported, and does not keep Hammer for ever.
func TestHungHandler(t *testing.T) {
	t.Parallel()
	let := make(chan struct{})
	defer close(let)
	r := &recorder{TB: t}
	idempotencytest.Hammer(r, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-let }), payment,
		idempotencytest.WithPatience(100*time.Millisecond))
	require.NotEmpty(t, r.errors)
	require.Contains(t, r.errors[0], "attempt 1 had not ended after 100ms")
}
