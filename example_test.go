package idempotency_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/memstore"
)

// post sends a POST request with a key to h and prints the answer.
func post(h http.Handler, path, key, body string) {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("X-User", "alice")
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	answer := strings.TrimSpace(w.Body.String())
	if w.Header().Get("Content-Type") == "application/problem+json" {
		var problem struct{ Error string }
		_ = json.Unmarshal(w.Body.Bytes(), &problem)
		answer = problem.Error
	}
	if w.Header().Get("Idempotent-Replayed") != "" {
		answer += " (replayed)"
	}
	fmt.Println(strings.TrimSpace(fmt.Sprint(w.Code, " ", strings.TrimSpace(answer))))
}

// payments is a handler that counts how often it runs.
func payments() http.Handler {
	n := 0
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n++
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintf(w, "payment %d", n)
	})
}

func Example() {
	mw := idempotency.New(memstore.New(), idempotency.UserFromHeader("X-User"))
	mux := http.NewServeMux()
	mux.Handle("POST /payments", mw.Handler(payments()))

	post(mux, "/payments", "order-1", `{"amount":100}`)
	post(mux, "/payments", "order-1", `{"amount":100}`) // the retry
	post(mux, "/payments", "order-1", `{"amount":999}`) // another payment under its key
	post(mux, "/payments", "order-2", `{"amount":100}`)
	// Output:
	// 201 payment 1
	// 201 payment 1 (replayed)
	// 409 idempotency_key_reused_with_different_params
	// 201 payment 2
}

func ExampleNew() {
	// The user comes from authentication, which is outside. An error of one's own
	// kind chooses the answer.
	type account struct{ id string }
	type accountKey struct{}
	currentUser := func(r *http.Request) (string, error) {
		a, ok := r.Context().Value(accountKey{}).(account)
		if !ok {
			return "", &idempotency.Error{Header: http.Header{"WWW-Authenticate": {"Bearer"}}}
		}
		return a.id, nil
	}
	mw := idempotency.New(memstore.New(), currentUser,
		idempotency.WithRequiredKey(),
		idempotency.WithKeyCheck(idempotency.RequireUUID))
	post(mw.Handler(payments()), "/payments", "9b2d7c1e-7d0b-4c5e-9c2f-0a1b2c3d4e5f", "")
	post(mw.Handler(payments()), "/payments", "order-1", "")
	post(mw.Handler(payments()), "/payments", "", "")
	// Output:
	// 401 user_unknown
	// 400 idempotency_key_invalid
	// 400 idempotency_key_missing
}

func ExampleMiddleware_With() {
	mw := idempotency.New(memstore.New(), idempotency.SharedKeys)
	strict := mw.With(idempotency.WithRequiredKey())

	post(mw.Handler(payments()), "/notes", "", "")
	post(strict.Handler(payments()), "/payments", "", "")
	// Output:
	// 201 payment 1
	// 400 idempotency_key_missing
}

func ExampleMiddleware_Drain() {
	mw := idempotency.New(memstore.New(), idempotency.SharedKeys)
	server := &http.Server{Handler: mw.Handler(payments())}

	// At the end of the process: first no more requests, then what goes on behind
	// those that have been answered.
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	fmt.Println(server.Shutdown(ctx), mw.Drain(ctx))
	// Output: <nil> <nil>
}

func ExampleWithFingerprint() {
	mw := idempotency.New(memstore.New(), idempotency.SharedKeys,
		idempotency.WithFingerprint(idempotency.FingerprintJSON))
	h := mw.Handler(payments())

	post(h, "/payments", "order-1", `{"amount":1.50,"to":"bob"}`)
	post(h, "/payments", "order-1", `{ "to": "bob", "amount": 1.5 }`)
	post(h, "/payments", "order-1", `{"amount":1.51,"to":"bob"}`)
	// Output:
	// 201 payment 1
	// 201 payment 1 (replayed)
	// 409 idempotency_key_reused_with_different_params
}

// A client that numbers its attempts inside the body: the number is not part of
// what is asked for.
func ExampleFingerprintFunc() {
	withoutAttempt := func(r *http.Request, body []byte) (idempotency.Fingerprint, error) {
		var message map[string]json.RawMessage
		if err := json.Unmarshal(body, &message); err != nil {
			return idempotency.Fingerprint{}, err // 400
		}
		delete(message, "attempt")
		rest, err := json.Marshal(message)
		if err != nil {
			return idempotency.Fingerprint{}, err
		}
		return idempotency.FingerprintJSON(r, rest)
	}
	mw := idempotency.New(memstore.New(), idempotency.SharedKeys, idempotency.WithFingerprint(withoutAttempt))
	h := mw.Handler(payments())

	post(h, "/payments", "order-1", `{"amount":100,"attempt":1}`)
	post(h, "/payments", "order-1", `{"amount":100,"attempt":2}`)
	post(h, "/payments", "order-1", `no JSON`)
	// Output:
	// 201 payment 1
	// 201 payment 1 (replayed)
	// 400 request_body_unreadable
}

func ExampleErrorHandler() {
	// An API with an error format of its own.
	inHouse := func(w http.ResponseWriter, r *http.Request, err *idempotency.Error) {
		w.Header().Set("Content-Type", "application/json")
		if err.RetryAfter > 0 {
			w.Header().Set("Retry-After", fmt.Sprint(int(err.RetryAfter.Seconds())))
		}
		w.WriteHeader(err.Status)
		_ = json.NewEncoder(w).Encode(map[string]any{"code": err.Code, "try_again": err.Retryable()})
	}
	mw := idempotency.New(memstore.New(), idempotency.SharedKeys,
		idempotency.WithRequiredKey(), idempotency.WithErrorHandler(inHouse))
	post(mw.Handler(payments()), "/payments", "", "")
	// Output: 400 {"code":"idempotency_key_missing","try_again":false}
}

func ExampleObserver() {
	count := make(map[string]int)
	observer := func(_ context.Context, e idempotency.Event) {
		count[string(e.Outcome)+" "+string(e.Code)]++ // from many goroutines in real life
	}
	mw := idempotency.New(memstore.New(), idempotency.SharedKeys, idempotency.WithObserver(observer))
	h := mw.Handler(payments())

	post(h, "/payments", "order-1", "a")
	post(h, "/payments", "order-1", "a")
	post(h, "/payments", "order-1", "b")
	fmt.Println(count)
	// Output:
	// 201 payment 1
	// 201 payment 1 (replayed)
	// 409 idempotency_key_reused_with_different_params
	// map[executed :1 refused idempotency_key_reused_with_different_params:1 replayed :1]
}

// The handler calls another system under a key of that call's own, so that a
// second run, after a crash, repeats the call and does not make a new one.
func ExampleFromContext() {
	charge := func(key string) { fmt.Println("charging under", key) }
	mw := idempotency.New(memstore.New(), idempotency.SharedKeys)
	h := mw.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		run := idempotency.FromContext(r.Context())
		charge(run.Derive("charge"))
		run.SetReference("ch_1") // an auditor finds the record by it
		w.WriteHeader(http.StatusCreated)
	}))
	post(h, "/payments", "order-1", "")
	// Output:
	// charging under b54133df-e915-8fa9-ba79-b5b74bf78761
	// 201
}

func ExampleExecution_Discard() {
	declined := true
	mw := idempotency.New(memstore.New(), idempotency.SharedKeys)
	h := mw.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if declined {
			declined = false
			// Nothing was done, and the customer will try the same key again.
			idempotency.FromContext(r.Context()).Discard()
			http.Error(w, "card declined", http.StatusPaymentRequired)
			return
		}
		w.WriteHeader(http.StatusCreated)
	}))
	post(h, "/payments", "order-1", "")
	post(h, "/payments", "order-1", "")
	// Output:
	// 402 card declined
	// 201
}

// After a crash the outcome of a run is unknown. The reconciler asks the payment
// provider, under the key that the handler derived for its call.
func ExampleWithReconciler() {
	provider := func(key string) (charge string, ok bool) { return "charge 1", true }
	store := memstore.New()
	mw := idempotency.New(store, idempotency.SharedKeys,
		idempotency.WithAtMostOnce(),
		idempotency.WithReconciler(func(ctx context.Context, e *idempotency.Execution) (*idempotency.Response, error) {
			charge, ok := provider(e.Derive("charge"))
			if !ok {
				return nil, idempotency.ErrNotExecuted // run the handler
			}
			return &idempotency.Response{Status: http.StatusCreated, Body: []byte(charge)}, nil
		}))

	// A process died while it ran this key, and its lease has lapsed.
	dead := idempotency.Claim{
		Key:         idempotency.NewKey("shared", "POST /payments", "order-1"),
		Token:       "of the dead process",
		Fingerprint: sha256.Sum256(nil),
		Hold:        24 * time.Hour,
	}
	_, _ = store.Claim(context.Background(), dead, time.Nanosecond)

	post(mw.Handler(payments()), "/payments", "order-1", "")
	post(mw.Handler(payments()), "/payments", "order-1", "")
	// Output:
	// 201 charge 1 (replayed)
	// 201 charge 1 (replayed)
}

// countingStore counts what its store is asked for. Embedding keeps the rest of
// the contract; a store that also is a Waiter or an Inspector loses that here,
// unless it is embedded by its own type.
type countingStore struct {
	idempotency.Store
	claims int
}

func (s *countingStore) Claim(ctx context.Context, c idempotency.Claim, lease time.Duration) (*idempotency.Record, error) {
	s.claims++
	return s.Store.Claim(ctx, c, lease)
}

func ExampleStore() {
	store := &countingStore{Store: memstore.New()}
	h := idempotency.New(store, idempotency.SharedKeys).Handler(payments())
	post(h, "/payments", "order-1", "")
	post(h, "/payments", "order-1", "")
	fmt.Println(store.claims, "claims")
	// Output:
	// 201 payment 1
	// 201 payment 1 (replayed)
	// 2 claims
}

// An operator finds out about a key, and frees it.
func ExampleInspector() {
	store := memstore.New()
	h := idempotency.New(store, idempotency.UserFromHeader("X-User")).Handler(payments())
	post(h, "/payments", "order-1", "")

	ctx := context.Background()
	key := idempotency.NewKey("alice", "POST /payments", "order-1")
	rec, err := store.Lookup(ctx, key)
	fmt.Println(key, "->", rec.Response.Status, string(rec.Response.Body), err)
	fmt.Println(store.Forget(ctx, key))
	post(h, "/payments", "order-1", "")
	// Output:
	// 201 payment 1
	// alice|POST /payments|order-1 -> 201 payment 1 <nil>
	// <nil>
	// 201 payment 2
}

// outageStore is a store that cannot be reached.
type outageStore struct{ idempotency.Store }

func (outageStore) Claim(context.Context, idempotency.Claim, time.Duration) (*idempotency.Record, error) {
	return nil, errors.New("connection refused")
}

func ExampleWithFailOpen() {
	silent := idempotency.WithLogger(discardLogger())
	closed := idempotency.New(outageStore{memstore.New()}, idempotency.SharedKeys, silent)
	post(closed.Handler(payments()), "/payments", "order-1", "")

	open := closed.With(idempotency.WithFailOpen())
	post(open.Handler(payments()), "/payments", "order-1", "")
	// Output:
	// 503 store_unavailable
	// 201 payment 1
}

func ExampleWriteProblem() {
	w := httptest.NewRecorder()
	idempotency.WriteProblem(w, httptest.NewRequest(http.MethodPost, "/payments", nil), &idempotency.Error{
		Code:       idempotency.CodeInProgress,
		RetryAfter: 2 * time.Second,
		Docs:       "https://api.example/docs/errors",
	})
	fmt.Println(w.Code, w.Header().Get("Retry-After"), w.Header().Get("Link"))
	_, _ = io.Copy(prefixed{}, w.Body)
	// Output:
	// 409 2 <https://api.example/docs/errors#request_in_progress>; rel="describedby"
	// {
	//   "type": "https://api.example/docs/errors#request_in_progress",
	//   "title": "Request in progress",
	//   "status": 409,
	//   "detail": "A request with this idempotency key is being processed. Send the same request again later.",
	//   "error": "request_in_progress",
	//   "retryable": true,
	//   "retry_after": 2
	// }
}
