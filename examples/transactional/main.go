// Transactional is a payment API whose ledger row and whose answer's record
// commit in one PostgreSQL transaction, so that a crash at any moment leaves both
// or neither. Any PostgreSQL will do; the tables are made at the start.
//
//	export POSTGRES_URL='postgres://postgres@localhost:5432/postgres'
//	go run ./examples/transactional
//
// In a second terminal. The same line twice: one ledger row, and the second
// answer is the first one again, marked "Idempotent-Replayed: true".
//
//	curl -i -u alice: -H 'Idempotency-Key: order-1' -d '{"amount":100}' localhost:8080/payments
//
// An answer of 500 rolls back: no ledger row, and the key is free again. The
// second of two such requests pays.
//
//	curl -i -u alice: -H 'Idempotency-Key: order-2' -d '{"amount":100}' 'localhost:8080/payments?fail=1'
//	curl -i -u alice: -H 'Idempotency-Key: order-2' -d '{"amount":100}' localhost:8080/payments
//
// What became of a key, in SQL:
//
//	SELECT status, status_code, reference, created_at, completed_at, replays
//	FROM example_keys WHERE idempotency_key = 'order-1';
//
// With -kill this program kills its own servers, 50 of each kind, at random
// moments under clients that retry until they have an answer, and prints how
// often each kind booked a payment twice:
//
//	go run ./examples/transactional -kill 50
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
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/pgstore"
)

type settings struct {
	database string
	addr     string
	prefix   string        // of the tables' names
	leases   bool          // pgstore.New instead of pgstore.NewTx
	lease    time.Duration // of a claim with pgstore.New
}

func main() {
	var s settings
	flag.StringVar(&s.database, "db", os.Getenv("POSTGRES_URL"), "`URL` of the database; by default POSTGRES_URL from the environment")
	flag.StringVar(&s.addr, "addr", "127.0.0.1:8080", "where to listen")
	flag.StringVar(&s.prefix, "prefix", "example", "what the names of the tables begin with")
	flag.BoolVar(&s.leases, "leases", false, "keep the record apart from the payment, for comparison")
	flag.DurationVar(&s.lease, "lease", 30*time.Second, "how long a claim lives, with -leases")
	kill := flag.Int("kill", 0, "kill this many servers of each kind, and count")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if s.database == "" {
		log.Fatal("no database: set POSTGRES_URL, or give -db")
	}
	var err error
	if *kill > 0 {
		err = demonstrate(ctx, s.database, *kill)
	} else {
		err = serve(ctx, s, func(addr net.Addr) { fmt.Println("listening on", addr) })
	}
	if err != nil {
		log.Fatal(err)
	}
}

// serve serves until ctx ends. ready is told where.
func serve(ctx context.Context, s settings, ready func(net.Addr)) error {
	pool, err := pgxpool.New(ctx, s.database)
	if err != nil {
		return err
	}
	defer pool.Close()
	store, err := newStore(ctx, pool, s)
	if err != nil {
		return err
	}
	bank := &bank{pool: pool, insert: fmt.Sprintf("INSERT INTO %s_ledger (account, amount, key) VALUES ($1, $2, $3) RETURNING id", s.prefix)}
	mw := idempotency.New(store, user, idempotency.WithRequiredKey(), idempotency.WithLease(s.lease))
	mux := http.NewServeMux()
	mux.Handle("POST /payments", mw.Handler(http.HandlerFunc(bank.pay)))

	listener, err := net.Listen("tcp", s.addr)
	if err != nil {
		return err
	}
	ready(listener.Addr())
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	down := make(chan error, 1)
	go func() {
		<-ctx.Done()
		down <- server.Shutdown(context.Background())
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return errors.Join(<-down, mw.Drain(context.Background()))
}

// newStore makes the tables, and the store over them. It also sweeps, until ctx
// ends.
func newStore(ctx context.Context, pool *pgxpool.Pool, s settings) (idempotency.Store, error) {
	options := []pgstore.Option{pgstore.WithTable(s.prefix + "_keys"), pgstore.WithReplayAudit()}
	store := pgstore.New(pool, options...)
	if err := store.Migrate(ctx); err != nil {
		return nil, err
	}
	_, err := pool.Exec(ctx, fmt.Sprintf(`CREATE TABLE IF NOT EXISTS %s_ledger (
		id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, account text NOT NULL, amount bigint NOT NULL, key text NOT NULL)`, s.prefix))
	if err != nil {
		return nil, err
	}
	go store.SweepEvery(ctx, time.Minute, 1000, func(err error) { log.Print(err) })
	if s.leases {
		return store, nil
	}
	return pgstore.NewTx(pool, options...), nil
}

// user names the caller. A real service checks the password.
func user(r *http.Request) (string, error) {
	name, _, ok := r.BasicAuth()
	if !ok {
		return "", &idempotency.Error{Header: http.Header{"Www-Authenticate": {`Basic realm="payments"`}}}
	}
	return name, nil
}

type bank struct {
	pool   *pgxpool.Pool
	insert string
}

func (b *bank) pay(w http.ResponseWriter, r *http.Request) {
	var payment struct {
		Amount int64 `json:"amount"`
	}
	if err := json.NewDecoder(r.Body).Decode(&payment); err != nil || payment.Amount <= 0 {
		http.Error(w, "amount must be above zero", http.StatusBadRequest)
		return
	}
	execution := idempotency.FromContext(r.Context())
	id, err := b.book(r.Context(), execution.Key().User, payment.Amount, execution.Key().Value)
	if err != nil || r.FormValue("fail") != "" {
		// A 5xx rolls the transaction back, the ledger row with it.
		http.Error(w, "the payment was not made", http.StatusInternalServerError)
		return
	}
	execution.SetReference(fmt.Sprintf("payment-%d", id))
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Location", fmt.Sprintf("/payments/%d", id))
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(map[string]int64{"payment": id, "amount": payment.Amount})
}

// book writes the ledger row, in the transaction of the request if it has one.
func (b *bank) book(ctx context.Context, account string, amount int64, key string) (id int64, err error) {
	if tx := pgstore.Tx(ctx); tx != nil {
		err = tx.QueryRow(ctx, b.insert, account, amount, key).Scan(&id)
	} else {
		err = b.pool.QueryRow(ctx, b.insert, account, amount, key).Scan(&id)
	}
	return id, err
}
