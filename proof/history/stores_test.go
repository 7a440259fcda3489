package history_test

import (
	"context"
	"crypto/rand"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/memstore"
	"github.com/retrysafe/idempotency/pgstore"
	"github.com/retrysafe/idempotency/proof/internal/servers"
	"github.com/retrysafe/idempotency/redisstore"
)

// place is what a scenario is played over: a store, and a way to it through a
// proxy.
type place struct {
	store  idempotency.Store
	pool   *pgxpool.Pool
	table  string
	ledger *ledger // nil: handlers write nothing

	network, server string // where the server of the store listens; "": there is none
	// through opens the store by another address than the server's, for one
	// request whose calls end after timeout.
	through  func(addr *net.TCPAddr, timeout time.Duration) (store idempotency.Store, closeStore func())
	patience time.Duration // that timeout
	// repeats says that the client which through uses sends again what has had
	// no reply.
	repeats bool
}

// stores are the stores that the promises are checked over.
var stores = []struct {
	name string
	open func(t *testing.T) place
}{
	{"memstore", func(*testing.T) place { return place{store: memstore.New()} }},
	{"redisstore on miniredis", func(t *testing.T) place { return onRedis(t, miniredis.RunT(t).Addr(), false) }},
	{"redisstore on miniredis, repeating", func(t *testing.T) place { return onRedis(t, miniredis.RunT(t).Addr(), true) }},
	{"redisstore on Redis", func(t *testing.T) place { return onRedis(t, servers.RedisAddr(t), false) }},
	{"redisstore on Redis, repeating", func(t *testing.T) place { return onRedis(t, servers.RedisAddr(t), true) }},
	{"pgstore", func(t *testing.T) place {
		return onPostgres(t, func(pool *pgxpool.Pool, table string) idempotency.Store {
			return pgstore.New(pool, pgstore.WithTable(table))
		})
	}},
	{"pgstore in a transaction", onPostgresTx},
}

// onRedis returns a redisstore. repeats says what its clients through a proxy do:
// give up with the store timeout, or, as go-redis does by itself, send a command
// again that has had no reply for a while, and go on behind a call that was given
// up.
func onRedis(t *testing.T, addr string, repeats bool) place {
	prefix := redisstore.WithPrefix("proof:" + rand.Text() + ":")
	open := func(o redis.Options) (idempotency.Store, func()) {
		client := redis.NewClient(&o)
		return redisstore.New(client, prefix), func() { _ = client.Close() }
	}
	store, closeStore := open(redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	t.Cleanup(closeStore)
	patience := wireTimeout
	if repeats {
		patience *= 2 // in which it tries three times
	}
	return place{
		store: store, network: "tcp", server: addr, repeats: repeats, patience: patience,
		through: func(addr *net.TCPAddr, timeout time.Duration) (idempotency.Store, func()) {
			if repeats {
				return open(redis.Options{Addr: addr.String(), ReadTimeout: timeout / 3})
			}
			return open(redis.Options{Addr: addr.String(), MaxRetries: -1, ContextTimeoutEnabled: true})
		},
	}
}

// onPostgres returns a store that open makes of a pool and a table of the test's
// own.
func onPostgres(t *testing.T, open func(pool *pgxpool.Pool, table string) idempotency.Store) place {
	t.Helper()
	config, err := pgxpool.ParseConfig(servers.PostgresURL(t))
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 10 // more than scenarios at a time: one handler of each may hold a transaction for long
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	schema := "proof_" + strings.ToLower(rand.Text()[:12])
	if _, err := pool.Exec(t.Context(), "CREATE SCHEMA "+schema); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dropSchema(t, pool, schema) })
	table := schema + ".records"
	if err := pgstore.New(pool, pgstore.WithTable(table)).Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	p := place{store: open(pool, table), pool: pool, table: table, patience: wireTimeout}
	p.network, p.server = pgconn.NetworkAddress(config.ConnConfig.Host, config.ConnConfig.Port)
	p.through = func(addr *net.TCPAddr, timeout time.Duration) (idempotency.Store, func()) {
		pool := throughProxy(config, addr, timeout)
		return open(pool, table), pool.Close
	}
	return p
}

func onPostgresTx(t *testing.T) place {
	p := onPostgres(t, func(pool *pgxpool.Pool, table string) idempotency.Store {
		return pgstore.NewTx(pool, pgstore.WithTable(table))
	})
	p.ledger = newLedger(t, p)
	return p
}

// throughProxy returns a pool for one request. The time to connect in is bounded,
// because a pool goes on connecting when the caller has given up.
func throughProxy(config *pgxpool.Config, addr *net.TCPAddr, timeout time.Duration) *pgxpool.Pool {
	config = config.Copy()
	config.MaxConns = 3
	config.ConnConfig.Host, config.ConnConfig.Port = addr.IP.String(), uint16(addr.Port)
	config.ConnConfig.Fallbacks = nil
	config.ConnConfig.ConnectTimeout = 4 * timeout
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		panic(err) // of the configuration, which has worked before
	}
	return pool
}

func dropSchema(t *testing.T, pool *pgxpool.Pool, schema string) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if _, err := pool.Exec(ctx, "DROP SCHEMA "+schema+" CASCADE"); err != nil {
		t.Error(err)
	}
}

// quiet keeps to itself what go-redis has to say about connections that break.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

func TestMain(m *testing.M) {
	redis.SetLogger(quiet{})
	code := m.Run()
	servers.Stop()
	os.Exit(code)
}
