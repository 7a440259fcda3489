package idempotency_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/memstore"
)

// shared is a Middleware for examples in which nobody asks whose key it is.
func shared(opts ...idempotency.Option) *idempotency.Middleware {
	return idempotency.New(memstore.New(), idempotency.SharedKeys, opts...)
}

func ExampleWithRequiredKey() {
	post(shared().Handler(payments()), "/payments", "", "")
	post(shared(idempotency.WithRequiredKey()).Handler(payments()), "/payments", "", "")
	// Output:
	// 201 payment 1
	// 400 idempotency_key_missing
}

// Keys of this API begin with the year, and it says so to whoever gets it wrong.
func ExampleWithKeyCheck() {
	year := regexp.MustCompile(`^20[0-9][0-9]-`)
	h := shared(idempotency.WithKeyCheck(func(key string) error {
		if !year.MatchString(key) {
			return &idempotency.Error{Detail: "A key begins with the year, such as 2026-order-1."}
		}
		return nil
	})).Handler(payments())

	post(h, "/payments", "2026-order-1", "")
	post(h, "/payments", "order-1", "")
	// Output:
	// 201 payment 1
	// 400 idempotency_key_invalid
}

// A route pattern as the endpoint lets a key be found whatever the resource. The
// path then counts as part of the request, so another resource is a mismatch.
func ExampleWithEndpoint() {
	mw := idempotency.New(memstore.New(), idempotency.SharedKeys,
		idempotency.WithEndpoint(func(r *http.Request) string { return r.Pattern }))
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}/pay", mw.Handler(payments()))

	post(mux, "/orders/1/pay", "K", "")
	post(mux, "/orders/2/pay", "K", "")
	// Output:
	// 201 payment 1
	// 409 idempotency_key_reused_with_different_params
}

func ExampleWithPolicy() {
	// Nothing that failed on our side is kept, and a 404 neither: the resource may
	// yet appear.
	policy := func(e idempotency.Ending) bool {
		return e.Status != http.StatusNotFound && idempotency.RecordNon5xx(e)
	}
	mw := idempotency.New(memstore.New(), idempotency.SharedKeys, idempotency.WithPolicy(policy))
	answers := []int{http.StatusNotFound, http.StatusBadGateway, http.StatusCreated}
	n := -1
	h := mw.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n++
		w.WriteHeader(answers[n])
	}))

	for range 4 {
		post(h, "/payments", "order-1", "")
	}
	// Output:
	// 404
	// 502
	// 201
	// 201 (replayed)
}

func ExampleWithMismatchStatus() {
	h := shared(idempotency.WithMismatchStatus(http.StatusUnprocessableEntity)).Handler(payments())
	post(h, "/payments", "order-1", `{"amount":100}`)
	post(h, "/payments", "order-1", `{"amount":999}`)
	// Output:
	// 201 payment 1
	// 422 idempotency_key_reused_with_different_params
}

// PUT says what is to be there, so repeating it does no harm, unless it also sends
// a letter.
func ExampleWithMethods() {
	h := shared(idempotency.WithMethods(http.MethodPost, http.MethodPut)).Handler(payments())
	for range 2 {
		r := httptest.NewRequest(http.MethodPut, "/subscriptions/1", strings.NewReader(`{"plan":"gold"}`))
		r.Header.Set("Idempotency-Key", "upgrade-1")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		fmt.Printf("%s %q\n", w.Body, w.Header().Get("Idempotent-Replayed"))
	}
	// Output:
	// payment 1 ""
	// payment 1 "true"
}

// A search is a POST and changes nothing.
func ExampleWithSkip() {
	mw := shared(idempotency.WithSkip(func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/search") }))
	h := mw.Handler(payments())
	post(h, "/payments/search", "K", "")
	post(h, "/payments/search", "K", "")
	// Output:
	// 201 payment 1
	// 201 payment 2
}

// The twin comes while the first request runs, waits, and gets its answer.
func ExampleWithWait() {
	running, proceed := make(chan struct{}), make(chan struct{})
	h := shared(idempotency.WithWait(time.Minute)).Handler(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			close(running) // a second run would panic
			<-proceed
			w.WriteHeader(http.StatusCreated)
		}))

	first := make(chan struct{})
	go func() {
		defer close(first)
		post(h, "/payments", "order-1", "")
	}()
	<-running
	time.AfterFunc(time.Millisecond, func() { close(proceed) })
	post(h, "/payments", "order-1", "")
	<-first
	// Unordered output:
	// 201
	// 201 (replayed)
}

// A process dies in mid-run. With the option its key stays blocked after the
// lease, until somebody who has found out what happened frees it.
func ExampleWithAtMostOnce() {
	store := memstore.New()
	key := idempotency.NewKey("shared", "POST /payments", "order-1")
	dead := idempotency.Claim{Key: key, Token: "of the dead process", Fingerprint: sha256.Sum256(nil), Hold: 24 * time.Hour}
	ctx := context.Background()
	_, _ = store.Claim(ctx, dead, time.Nanosecond)

	h := idempotency.New(store, idempotency.SharedKeys, idempotency.WithAtMostOnce()).Handler(payments())
	post(h, "/payments", "order-1", "")
	fmt.Println("an operator frees it:", store.Forget(ctx, key))
	post(h, "/payments", "order-1", "")
	// Output:
	// 409 outcome_unknown
	// an operator frees it: <nil>
	// 201 payment 1
}

// A trace id belongs to one request and not to the answer.
func ExampleWithUnrecordedHeaders() {
	h := shared(idempotency.WithUnrecordedHeaders("Trace-Id")).Handler(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Trace-Id", "4bf92f35")
			w.Header().Set("Location", "/payments/1")
			w.WriteHeader(http.StatusCreated)
		}))
	for range 2 {
		r := httptest.NewRequest(http.MethodPost, "/payments", nil)
		r.Header.Set("Idempotency-Key", "order-1")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		fmt.Printf("%q %q\n", w.Header().Get("Location"), w.Header().Get("Trace-Id"))
	}
	// Output:
	// "/payments/1" "4bf92f35"
	// "/payments/1" ""
}

// An answer that is too large to keep is sent, and not made again.
func ExampleWithMaxResponseBytes() {
	h := shared(idempotency.WithMaxResponseBytes(5)).Handler(payments())
	post(h, "/payments", "order-1", "")
	post(h, "/payments", "order-1", "")
	// Output:
	// 201 payment 1
	// 409 response_not_replayable
}

func ExampleWithMaxRequestBytes() {
	h := shared(idempotency.WithMaxRequestBytes(20)).Handler(payments())
	post(h, "/payments", "order-1", `{"amount":100}`)
	post(h, "/payments", "order-2", `{"amount":100,"note":"for the tea"}`)
	// Output:
	// 201 payment 1
	// 413 request_body_too_large
}

// Abnormal ends are logged, with a hash in the place of user and key.
func ExampleWithLogger() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{} // the same every time, for this example
			}
			return a
		},
	}))
	mw := idempotency.New(outageStore{memstore.New()}, idempotency.SharedKeys, idempotency.WithLogger(logger))
	post(mw.Handler(payments()), "/payments", "order-1", "")
	// Output:
	// level=ERROR msg="idempotency: request ended abnormally" outcome=refused code=store_unavailable endpoint="POST /payments" key_hash=aea63f3842ae4083 status=503 error="connection refused"
	// 503 store_unavailable
}

// The answer to a payment is kept for a day, and that to a quotation for as long
// as it is valid.
func ExampleExecution_SetTTL() {
	store := memstore.New()
	mw := idempotency.New(store, idempotency.SharedKeys, idempotency.WithTTL(24*time.Hour))
	h := mw.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/quotations" {
			idempotency.FromContext(r.Context()).SetTTL(15 * time.Minute)
		}
		w.WriteHeader(http.StatusCreated)
	}))
	for _, path := range []string{"/payments", "/quotations"} {
		post(h, path, "K", "")
		rec, err := store.Lookup(context.Background(), idempotency.NewKey("shared", "POST "+path, "K"))
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(path, "kept for", rec.ExpiresIn.Round(time.Minute))
	}
	// Output:
	// 201
	// /payments kept for 24h0m0s
	// 201
	// /quotations kept for 15m0s
}

// A validation error is an answer that this handler wants kept, although its
// policy frees the key after it.
func ExampleExecution_Keep() {
	only2xx := func(e idempotency.Ending) bool { return e.Status < 300 }
	h := shared(idempotency.WithPolicy(only2xx)).Handler(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/payments" {
				idempotency.FromContext(r.Context()).Keep()
			}
			http.Error(w, "no amount", http.StatusBadRequest)
		}))
	for _, path := range []string{"/payments", "/payments", "/notes", "/notes"} {
		post(h, path, "K", "")
	}
	// Output:
	// 400 no amount
	// 400 no amount (replayed)
	// 400 no amount
	// 400 no amount
}

// A gateway sets the header, and strips it from what clients send. Two lines mean
// that it did not.
func ExampleUserFromHeader() {
	user := idempotency.UserFromHeader("X-Account")
	r := httptest.NewRequest(http.MethodPost, "/payments", nil)
	r.Header.Add("X-Account", "acct_1")
	fmt.Println(user(r))
	r.Header.Add("X-Account", "acct_2")
	_, err := user(r)
	fmt.Println(err != nil)
	// Output:
	// acct_1 <nil>
	// true
}
