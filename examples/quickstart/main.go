// Quickstart is a payment API behind the middleware, in one file.
//
//	go run ./examples/quickstart
//
// In a second terminal. The same line twice: one charge, and the second answer is
// the first one again, marked "Idempotent-Replayed: true".
//
//	curl -i -u alice: -H 'Idempotency-Key: order-1' -d '{"amount":100}' localhost:8080/payments
//
// Another amount under the same key is refused with 409, since it cannot be a
// retry of the same payment:
//
//	curl -i -u alice: -H 'Idempotency-Key: order-1' -d '{"amount":999}' localhost:8080/payments
//
// Bob's order-1 is not Alice's:
//
//	curl -i -u bob: -H 'Idempotency-Key: order-1' -d '{"amount":100}' localhost:8080/payments
//
// Without a key there is nothing to recognise a retry by; this API wants one:
//
//	curl -i -u alice: -d '{"amount":100}' localhost:8080/payments
//
// The first request still runs (it takes ten seconds) when the second one comes:
// 409 with Retry-After, and not a second charge. The client of the first hangs up
// after one second; its charge is made and recorded all the same.
//
//	curl -i -u alice: -H 'Idempotency-Key: order-2' -m 1 -d '{"amount":100}' 'localhost:8080/payments?slow=1'
//	curl -i -u alice: -H 'Idempotency-Key: order-2' -d '{"amount":100}' 'localhost:8080/payments?slow=1'
//
// A handler that panics has answered nothing, so its key is free again: the
// second of two such requests charges.
//
//	curl -i -u alice: -H 'Idempotency-Key: order-3' -d '{"amount":100}' 'localhost:8080/payments?panic=1'
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/memstore"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "where to listen")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *addr, func(addr net.Addr) { log.Printf("listening on %v", addr) }); err != nil {
		log.Fatal(err)
	}
}

// run serves until ctx ends. ready is told where.
func run(ctx context.Context, addr string, ready func(net.Addr)) error {
	bank := &bank{panics: make(map[string]bool)}
	mw := idempotency.New(memstore.New(), user, idempotency.WithRequiredKey())
	mux := http.NewServeMux()
	mux.Handle("POST /payments", mw.Handler(http.HandlerFunc(bank.pay)))

	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	ready(listener.Addr())
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		<-ctx.Done()
		_ = server.Shutdown(context.Background())
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return mw.Drain(context.Background())
}

// user names the caller. A real service checks the password.
func user(r *http.Request) (string, error) {
	name, _, ok := r.BasicAuth()
	if !ok {
		return "", &idempotency.Error{Header: http.Header{"Www-Authenticate": {`Basic realm="payments"`}}}
	}
	return name, nil
}

// bank is where the money is.
type bank struct {
	mu      sync.Mutex
	charges int
	panics  map[string]bool // keys that have panicked already
}

func (b *bank) pay(w http.ResponseWriter, r *http.Request) {
	var payment struct {
		Amount int `json:"amount"`
	}
	if err := json.NewDecoder(r.Body).Decode(&payment); err != nil || payment.Amount <= 0 {
		http.Error(w, "amount must be above zero", http.StatusBadRequest)
		return
	}
	key := idempotency.FromContext(r.Context()).Key().String()
	if r.FormValue("panic") != "" && b.firstTime(key) {
		panic("the payment handler has a bug")
	}
	if r.FormValue("slow") != "" {
		select {
		case <-time.After(10 * time.Second):
		case <-r.Context().Done(): // not when the client hangs up
			http.Error(w, "took too long", http.StatusServiceUnavailable)
			return
		}
	}
	n := b.charge()
	log.Printf("charge %d: %d for %s", n, payment.Amount, key)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Location", fmt.Sprintf("/payments/%d", n))
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(map[string]int{"payment": n, "amount": payment.Amount})
}

func (b *bank) charge() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.charges++
	return b.charges
}

func (b *bank) firstTime(key string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	first := !b.panics[key]
	b.panics[key] = true
	return first
}
