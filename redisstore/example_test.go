package redisstore_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

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

// At start-up a service asks whether the server keeps what it is given. One that
// does not tell, as many managed ones and this one for tests, is no error: what
// could not be found out is logged.
func ExampleStore_Check() {
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	defer func() { _ = client.Close() }()

	logger := slog.New(slog.DiscardHandler) // leave WithLogger out to see the warnings
	store := redisstore.New(client, redisstore.WithLogger(logger))
	if err := store.Check(context.Background()); err != nil {
		log.Fatal(err) // says what is wrong with the server, and why it matters
	}
	fmt.Println("nothing is known to be wrong")
	// Output: nothing is known to be wrong
}

// An operator looks at a key whose run has died, and frees it.
func ExampleStore_Forget() {
	server := miniredis.NewMiniRedis() // stands for the one of the service
	if err := server.Start(); err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer func() { _ = client.Close() }()
	store := redisstore.New(client)
	ctx := context.Background()
	key := idempotency.NewKey("alice", "POST /payments", "4711")
	dead := idempotency.Claim{Key: key, Token: "of the dead process", Hold: 24 * time.Hour}
	if _, err := store.Claim(ctx, dead, 30*time.Second); err != nil {
		log.Fatal(err)
	}
	server.FastForward(time.Minute)

	rec, err := store.Lookup(ctx, key)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("lapsed:", rec.Lapsed)
	if rec.Lapsed { // and the bank says that nothing was paid
		fmt.Println("forgotten:", store.Forget(ctx, key))
	}
	rec, err = store.Lookup(ctx, key)
	fmt.Println("held:", rec, err)
	// Output:
	// lapsed: true
	// forgotten: <nil>
	// held: <nil> <nil>
}
