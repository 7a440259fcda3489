package pgstore_test

import (
	"context"
	"log"
	"log/slog"
	"net/http"
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

// The ledger row and the record of the answer commit together.
func ExampleNewTx() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://app@localhost/payments")
	if err != nil {
		log.Fatal(err)
	}
	store := pgstore.NewTx(pool)
	if err := store.Migrate(ctx); err != nil {
		log.Fatal(err)
	}
	mw := idempotency.New(store, currentUser, idempotency.WithRequiredKey())

	pay := func(w http.ResponseWriter, r *http.Request) {
		_, err := pgstore.Tx(r.Context()).Exec(r.Context(), "INSERT INTO ledger (amount) VALUES (100)")
		if err != nil {
			http.Error(w, "not paid", http.StatusInternalServerError) // rolls back
			return
		}
		w.WriteHeader(http.StatusCreated)
	}
	http.Handle("POST /payments", mw.Handler(http.HandlerFunc(pay)))
}

// A handler whose effect is outside this database: an unknown outcome blocks its
// key instead of being repeated. The table is swept, and what is swept is kept.
func ExampleNew() {
	ctx := context.Background()
	config, err := pgxpool.ParseConfig("postgres://app@pgbouncer:6432/payments")
	if err != nil {
		log.Fatal(err)
	}
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // a pooler in transaction mode
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		log.Fatal(err)
	}
	store := pgstore.New(pool, pgstore.WithHistory("idempotency_history"), pgstore.WithReplayAudit())
	if err := store.Migrate(ctx); err != nil {
		log.Fatal(err)
	}
	go store.SweepEvery(ctx, time.Minute, 1000, func(err error) { slog.Error("sweep", "err", err) })

	mw := idempotency.New(store, currentUser, idempotency.WithAtMostOnce())
	http.Handle("POST /payouts", mw.Handler(http.NotFoundHandler()))
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
