package pgstore_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/pgstore"
)

// The test binary is its own child: a payment service that gets killed. These
// variables tell it what to be.
const (
	childRole   = "PGSTORE_TEST_CHILD" // "tx" or "lease"
	childURL    = "PGSTORE_TEST_URL"
	childTable  = "PGSTORE_TEST_TABLE"
	childLedger = "PGSTORE_TEST_LEDGER" // quoted
)

// childHeader is how a client tells the child's answers from those of any other
// server that has got its port.
const childHeader = "X-Ledger"

const childLease = 150 * time.Millisecond

// runChild serves until it is killed, or its standard input ends. It writes its
// address on one line.
func runChild(role string) {
	pool, err := pgxpool.New(context.Background(), os.Getenv(childURL))
	if err != nil {
		fail(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fail(err)
	}
	table := pgstore.WithTable(os.Getenv(childTable))
	var store idempotency.Store = pgstore.New(pool, table)
	if role == "tx" {
		store = pgstore.NewTx(pool, table)
	}
	mw := idempotency.New(store, idempotency.SharedKeys, idempotency.WithLease(childLease),
		idempotency.WithLogger(slog.New(slog.DiscardHandler)))
	go func() { fail(http.Serve(l, mw.Handler(childHandler(pool, os.Getenv(childLedger))))) }()
	fmt.Println(l.Addr())
	_, _ = io.Copy(io.Discard, os.Stdin)
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "child:", err)
	os.Exit(1)
}

// childHandler books one row for the key, in the claim's transaction if there is
// one, and answers with a number that no second run would give.
func childHandler(pool *pgxpool.Pool, ledger string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := idempotency.FromContext(r.Context()).Key().Value
		var err error
		if tx := pgstore.Tx(r.Context()); tx != nil {
			_, err = tx.Exec(r.Context(), "INSERT INTO "+ledger+" VALUES ($1, 100)", key)
		} else {
			_, err = pool.Exec(r.Context(), "INSERT INTO "+ledger+" VALUES ($1, 100)", key)
		}
		if err != nil {
			http.Error(w, "booking failed", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set(childHeader, ledger)
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, rand.Text())
	})
}
