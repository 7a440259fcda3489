package idempotencytest_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/retrysafe/idempotency/idempotencytest"
)

// ledger counts charges by idempotency key.
type ledger struct{ charges sync.Map }

func (l *ledger) charge(key string) {
	n, _ := l.charges.LoadOrStore(key, new(counter))
	n.(*counter).add()
}

func (l *ledger) chargesFor(key string) int {
	if n, ok := l.charges.Load(key); ok {
		return n.(*counter).get()
	}
	return 0
}

type counter struct {
	mu sync.Mutex
	n  int
}

func (c *counter) add() { c.mu.Lock(); c.n++; c.mu.Unlock() }

func (c *counter) get() int { c.mu.Lock(); defer c.mu.Unlock(); return c.n }

// hasty charges before it has looked at the payment.
func (l *ledger) hasty(w http.ResponseWriter, r *http.Request) {
	l.charge(r.Header.Get("Idempotency-Key"))
	var payment struct{ Amount int }
	if err := json.NewDecoder(r.Body).Decode(&payment); err != nil || payment.Amount <= 0 {
		http.Error(w, "no amount", http.StatusUnprocessableEntity)
		return
	}
	w.WriteHeader(http.StatusCreated)
}

// right looks at the payment first.
func (l *ledger) right(w http.ResponseWriter, r *http.Request) {
	var payment struct{ Amount int }
	if err := json.NewDecoder(r.Body).Decode(&payment); err != nil || payment.Amount <= 0 {
		http.Error(w, "no amount", http.StatusUnprocessableEntity)
		return
	}
	l.charge(r.Header.Get("Idempotency-Key"))
	w.WriteHeader(http.StatusCreated)
}

func newPayment(string) *http.Request {
	return httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader(`{"amount":100}`))
}

// In a test, t is the test's own.
func ExampleHammer() {
	test := func(t testing.TB) {
		var l ledger
		idempotencytest.Hammer(t, http.HandlerFunc(l.right), newPayment, idempotencytest.WithEffects(l.chargesFor))
	}
	t := &recorder{}
	test(t)
	fmt.Println("faults:", len(t.errors))
	// Output:
	// faults: 0
}

// A handler that charges before it validates: clients are told that the payment was
// refused, and are charged.
func ExampleCheck() {
	var l ledger
	err := idempotencytest.Check(http.HandlerFunc(l.hasty), newPayment, idempotencytest.WithEffects(l.chargesFor))

	var all interface{ Unwrap() []error }
	if errors.As(err, &all) {
		for _, err := range all.Unwrap() {
			var f *idempotencytest.Failure
			if errors.As(err, &f) {
				fmt.Printf("%s: %s\n", f.Scenario, f.Problem)
			}
		}
	}
	// Output:
	// a body that is empty: run 1 had its side effect and then refused the request with 422
	// a body that is cut off: run 1 had its side effect and then refused the request with 422
}
