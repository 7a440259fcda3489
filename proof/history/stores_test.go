package history_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/memstore"
	"github.com/retrysafe/idempotency/pgstore"
	"github.com/retrysafe/idempotency/proof/internal/servers"
	"github.com/retrysafe/idempotency/redisstore"
)

// stores are the stores that the promises are checked over.
var stores = []struct {
	name string
	open func(t *testing.T) idempotency.Store
}{
	{"memstore", func(*testing.T) idempotency.Store { return memstore.New() }},
	{"redisstore on miniredis", func(t *testing.T) idempotency.Store {
		return onRedis(t, miniredis.RunT(t).Addr())
	}},
	{"redisstore on Redis", func(t *testing.T) idempotency.Store { return onRedis(t, servers.RedisAddr(t)) }},
	{"pgstore", func(t *testing.T) idempotency.Store {
		pool, table := onPostgres(t)
		return pgstore.New(pool, pgstore.WithTable(table))
	}},
	{"pgstore in a transaction", func(t *testing.T) idempotency.Store { return newLedger(t) }},
}

func onRedis(t *testing.T, addr string) idempotency.Store {
	client := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	return redisstore.New(client, redisstore.WithPrefix("proof:"+rand.Text()+":"))
}

// onPostgres returns a pool and a table of the test's own.
func onPostgres(t *testing.T) (*pgxpool.Pool, string) {
	t.Helper()
	config, err := pgxpool.ParseConfig(servers.PostgresURL(t))
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 24 // more than requests at a time: a claim holds one in a transaction
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	schema := "proof_" + strings.ToLower(rand.Text()[:12])
	exec := func(format string) {
		if _, err := pool.Exec(t.Context(), fmt.Sprintf(format, schema)); err != nil {
			t.Fatal(err)
		}
	}
	exec("CREATE SCHEMA %s")
	t.Cleanup(func() { dropSchema(t, pool, schema) })
	table := schema + ".records"
	if err := pgstore.New(pool, pgstore.WithTable(table)).Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return pool, table
}

func dropSchema(t *testing.T, pool *pgxpool.Pool, schema string) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if _, err := pool.Exec(ctx, "DROP SCHEMA "+schema+" CASCADE"); err != nil {
		t.Error(err)
	}
}

func TestMain(m *testing.M) {
	code := m.Run()
	servers.Stop()
	os.Exit(code)
}
