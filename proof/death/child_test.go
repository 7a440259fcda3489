package death_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/pgstore"
	"github.com/retrysafe/idempotency/proof/internal/servers"
	"github.com/retrysafe/idempotency/redisstore"
)

// The test binary is its own child: a payment service that gets killed. These
// variables tell it what to be.
const (
	childKind   = "PROOF_CHILD"  // redis, lease or tx
	childServer = "PROOF_SERVER" // address or URL
	childPrefix = "PROOF_SCHEMA" // of what it writes
	lease       = 200 * time.Millisecond
)

func TestMain(m *testing.M) {
	if kind := os.Getenv(childKind); kind != "" {
		serve(kind, os.Getenv(childServer), os.Getenv(childPrefix))
		return
	}
	code := m.Run()
	servers.Stop()
	os.Exit(code)
}

// serve serves until it is killed, or its standard input ends. It writes its
// address on one line.
func serve(kind, server, prefix string) {
	store, book := backend(kind, server, prefix)
	mw := idempotency.New(store, idempotency.SharedKeys, idempotency.WithLease(lease),
		idempotency.WithLogger(slog.New(slog.DiscardHandler)))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	go func() {
		check(http.Serve(l, mw.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := book(r.Context(), r.Header.Get("Idempotency-Key")); err != nil {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			w.WriteHeader(http.StatusCreated)
			fmt.Fprint(w, rand.Text()) // no second run would give the same
		}))))
	}()
	fmt.Println(l.Addr())
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// backend returns the store of a kind, and how a payment is booked beside it.
func backend(kind, server, prefix string) (idempotency.Store, func(context.Context, string) error) {
	if kind == "redis" {
		client := redis.NewClient(&redis.Options{Addr: server, ContextTimeoutEnabled: true})
		return redisstore.New(client, redisstore.WithPrefix(prefix+":")), func(ctx context.Context, key string) error {
			return client.HIncrBy(ctx, prefix+":ledger", key, 1).Err()
		}
	}
	pool, err := pgxpool.New(context.Background(), server)
	check(err)
	insert := "INSERT INTO " + prefix + ".ledger VALUES ($1)"
	table := pgstore.WithTable(prefix + ".records")
	if kind == "tx" {
		return pgstore.NewTx(pool, table), func(ctx context.Context, key string) error {
			_, err := pgstore.Tx(ctx).Exec(ctx, insert, key)
			return err
		}
	}
	return pgstore.New(pool, table), func(ctx context.Context, key string) error {
		_, err := pool.Exec(ctx, insert, key)
		return err
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		os.Exit(1)
	}
}
