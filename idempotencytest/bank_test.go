package idempotencytest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"

	"github.com/retrysafe/idempotency"
)

// bank is where the handlers of these tests have their side effects.
type bank struct {
	mu      sync.Mutex
	charges map[string]int    // by idempotency key
	made    map[string]string // the answer of a charge, by its derived key
	total   int
}

func newBank() *bank {
	return &bank{charges: make(map[string]int), made: make(map[string]string)}
}

// charge charges the card and returns the answer.
func (b *bank) charge(key string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.charges[key]++
	b.total++
	return fmt.Sprintf("charge %d", b.total)
}

// chargeOnce charges the card unless that was done under the same derived key.
func (b *bank) chargeOnce(key, derived string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.made[derived] == "" {
		b.charges[key]++
		b.total++
		b.made[derived] = fmt.Sprintf("charge %d", b.total)
	}
	return b.made[derived]
}

// count is for WithEffects.
func (b *bank) count(key string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.charges[key]
}

// handler is one that checks the request and then has work do it.
func (b *bank) handler(work func(w http.ResponseWriter, r *http.Request, key string)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !payable(r) {
			http.Error(w, "no amount", http.StatusUnprocessableEntity)
			return
		}
		work(w, r, r.Header.Get("Idempotency-Key"))
	})
}

// correct is the handler that has no fault.
func (b *bank) correct() http.Handler {
	return b.handler(func(w http.ResponseWriter, _ *http.Request, key string) { created(w, b.charge(key)) })
}

// careful is the handler that does not repeat its former run's work.
func (b *bank) careful() http.Handler {
	return b.handler(func(w http.ResponseWriter, r *http.Request, key string) {
		created(w, b.chargeOnce(key, idempotency.FromContext(r.Context()).Derive("charge")))
	})
}

func payable(r *http.Request) bool {
	var payment struct{ Amount int }
	return json.NewDecoder(r.Body).Decode(&payment) == nil && payment.Amount > 0
}

func created(w http.ResponseWriter, body string) {
	w.WriteHeader(http.StatusCreated)
	_, _ = fmt.Fprintln(w, body)
}

// payment is the newRequest of these tests.
func payment(string) *http.Request { return paymentOf(`{"amount":100}`) }

func paymentOf(body string) *http.Request {
	return httptest.NewRequest(http.MethodPost, "/payments?currency=EUR", strings.NewReader(body))
}
