package memstore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/memstore"
)

// A service of one process: the second request with the same key gets the answer
// of the first, and the handler does not run again.
func Example() {
	mw := idempotency.New(memstore.New(), idempotency.UserFromHeader("X-User"))

	payments := 0
	mux := http.NewServeMux()
	mux.Handle("POST /payments", mw.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		payments++
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "payment %d", payments)
	})))
	server := httptest.NewServer(mux)
	defer server.Close()

	for range 2 {
		req, err := http.NewRequest(http.MethodPost, server.URL+"/payments", strings.NewReader(`{"amount":100}`))
		if err != nil {
			log.Fatal(err)
		}
		req.Header.Set("X-User", "alice")
		req.Header.Set("Idempotency-Key", "8e03978e-40d5-43e8-bc93-6894a57f9324")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			log.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s %q replayed=%s\n", resp.Status, body, resp.Header.Get("Idempotent-Replayed"))
	}
	// Output:
	// 201 Created "payment 1" replayed=
	// 201 Created "payment 1" replayed=true
}

// A full store refuses new keys and keeps what it has.
func ExampleWithMaxEntries() {
	store := memstore.New(memstore.WithMaxEntries(1))
	claim := func(key, token string) {
		c := idempotency.Claim{Key: idempotency.NewKey("alice", "POST /payments", key), Token: token}
		rec, err := store.Claim(context.Background(), c, 30*time.Second)
		fmt.Println(key, "refused:", errors.Is(err, idempotency.ErrStoreFull), "held:", rec != nil)
	}
	claim("first", "a")
	claim("second", "b")
	claim("first", "c")
	// Output:
	// first refused: false held: false
	// second refused: true held: false
	// first refused: false held: true
}

// Bytes and Len are for a metric that tells before the store is full.
func ExampleStore_Bytes() {
	const limit = 64 << 20
	store := memstore.New(memstore.WithMaxBytes(limit))
	fmt.Printf("%d keys, %.0f%% full\n", store.Len(), 100*float64(store.Bytes())/limit)
	// Output:
	// 0 keys, 0% full
}
