package pgstore_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/pgstore"
)

func currentUser(r *http.Request) (string, error) {
	name, _, _ := r.BasicAuth()
	return name, nil
}

// The ledger row and the record of the answer commit together, so a request that
// is sent twice is booked once, whatever dies when.
func ExampleNewTx() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	store := pgstore.NewTx(pool)
	if err := store.Migrate(ctx); err != nil {
		log.Fatal(err)
	}
	mw := idempotency.New(store, currentUser, idempotency.WithRequiredKey())
	pay := mw.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := pgstore.Tx(r.Context()).Exec(r.Context(), "INSERT INTO ledger (amount) VALUES (100)")
		if err != nil {
			http.Error(w, "not paid", http.StatusInternalServerError) // rolls back
			return
		}
		w.WriteHeader(http.StatusCreated)
	}))

	for range 2 { // the client sends it again
		r := httptest.NewRequest(http.MethodPost, "/payments", nil)
		r.SetBasicAuth("alice", "")
		r.Header.Set("Idempotency-Key", "order-1")
		w := httptest.NewRecorder()
		pay.ServeHTTP(w, r)
		fmt.Printf("%d, replayed: %t\n", w.Code, w.Header().Get("Idempotent-Replayed") == "true")
	}
	var booked int
	if err := pool.QueryRow(ctx, "SELECT count(*) FROM ledger").Scan(&booked); err != nil {
		log.Fatal(err)
	}
	fmt.Println("booked:", booked)
	// With a table named ledger this prints:
	//
	// 201, replayed: false
	// 201, replayed: true
	// booked: 1
}

// A handler whose effect is outside this database: an unknown outcome blocks its
// key instead of being repeated. The table is swept, and what is swept is kept.
func ExampleNew() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	config, err := pgxpool.ParseConfig(os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // a pooler in transaction mode
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	store := pgstore.New(pool, pgstore.WithHistory("idempotency_history"), pgstore.WithReplayAudit())
	if err := store.Migrate(ctx); err != nil {
		log.Fatal(err)
	}
	go store.SweepEvery(ctx, time.Minute, 1000, func(err error) { slog.Error("sweep", "err", err) })

	mw := idempotency.New(store, currentUser, idempotency.WithAtMostOnce())
	mux := http.NewServeMux()
	mux.Handle("POST /payouts", mw.Handler(http.NotFoundHandler()))
	// … and serve mux
}

func ExampleTx() {
	handler := func(w http.ResponseWriter, r *http.Request) {
		tx := pgstore.Tx(r.Context())
		// A part that may fail and be undone, without breaking the rest.
		err := pgx.BeginFunc(r.Context(), tx, func(part pgx.Tx) error {
			_, err := part.Exec(r.Context(), "INSERT INTO coupons (code) VALUES ('WELCOME')")
			return err
		})
		if err != nil {
			slog.Info("no coupon", "err", err)
		}
		w.WriteHeader(http.StatusCreated)
	}
	_ = handler
}
