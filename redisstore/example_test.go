package redisstore_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/redisstore"
)

func ExampleNew() {
	server := miniredis.NewMiniRedis() // stands for the one of the service
	if err := server.Start(); err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer func() { _ = client.Close() }()

	store := redisstore.New(client, redisstore.WithPrefix("shop:"))
	mw := idempotency.New(store, idempotency.UserFromHeader("X-User"))
	payments := 0
	handler := mw.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		payments++
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintf(w, "payment %d", payments)
	}))

	for range 2 { // the client sends it again
		r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader(`{"amount":100}`))
		r.Header.Set("X-User", "alice")
		r.Header.Set("Idempotency-Key", "4711")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Printf("%d %s, replayed: %t\n", w.Code, w.Body, w.Header().Get("Idempotent-Replayed") == "true")
	}
	fmt.Println(server.Keys())
	// Output:
	// 201 payment 1, replayed: false
	// 201 payment 1, replayed: true
	// [shop:{0a449770}alice|POST /payments|4711]
}

// At start-up a service asks whether the server keeps what it is given.
func ExampleStore_Check() {
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
	store := redisstore.New(client)
	if err := store.Check(context.Background()); err != nil {
		log.Fatal(err)
	}
}

// An operator looks at a key, and frees it.
func ExampleStore_Forget() {
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	store := redisstore.New(client)
	ctx := context.Background()
	key := idempotency.NewKey("alice", "POST /payments", "4711")
	rec, err := store.Lookup(ctx, key)
	if err != nil {
		log.Fatal(err)
	}
	if rec != nil && rec.Lapsed { // and the bank says that nothing was paid
		err = store.Forget(ctx, key)
	}
	if err != nil {
		log.Fatal(err)
	}
}
