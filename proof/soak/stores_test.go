package soak_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/memstore"
	"github.com/retrysafe/idempotency/pgstore"
	"github.com/retrysafe/idempotency/redisstore"
)

// poolSize is how many connections each process may have to its server.
const poolSize = 8

// backend is a store as two processes share it, and what can be measured of it.
type backend struct {
	stores [2]idempotency.Store
	limit  int // the most connections that both may keep at rest
	// looks is how often a key may be found in progress a lease after all calls
	// on it have returned, before it counts as stuck. A server may carry out a
	// call for a while after its caller has given it up, a store in memory not.
	looks   int
	measure func(ctx context.Context, s *sample) error
	// rest closes the connections that are not in use, where that can be done: each
	// keeps a buffer as large as the last record it has read.
	rest  func()
	cut   func(ctx context.Context) error // cuts the connections; nil: there are none
	close func()                          // of stores and pools; measure still works
	end   func()                          // of measuring
}

// openBackend opens the store of an order.
func openBackend(ctx context.Context, o order) (*backend, error) {
	switch o.Store {
	case "memstore":
		return inMemory(), nil
	case "redisstore":
		return onRedis(ctx, o.Server, o.Place)
	}
	return onPostgres(ctx, o.Server, o.Place, o.Store == "pgstore.NewTx")
}

func inMemory() *backend {
	store := memstore.New()
	return &backend{
		stores: [2]idempotency.Store{store, store},
		looks:  1,
		measure: func(_ context.Context, s *sample) error {
			s.Keys, s.Held = store.Len(), store.Bytes()
			return nil
		},
		rest:  func() {},
		close: func() {},
		end:   func() {},
	}
}

func onRedis(ctx context.Context, addr, place string) (*backend, error) {
	meter := redis.NewClient(&redis.Options{Addr: addr, PoolSize: 1})
	if err := meter.Ping(ctx).Err(); err != nil { // connects, so that its connection is no news later
		return nil, err
	}
	b := &backend{limit: 2 * poolSize, looks: 2, rest: func() {}, end: func() { _ = meter.Close() }}
	var clients [2]*redis.Client
	for i := range clients {
		clients[i] = redis.NewClient(&redis.Options{
			Addr: addr, ClientName: place, PoolSize: poolSize, MaxActiveConns: poolSize, ContextTimeoutEnabled: true,
		})
		b.stores[i] = redisstore.New(clients[i], redisstore.WithPrefix(place+":"))
	}
	b.measure = func(ctx context.Context, s *sample) (err error) {
		for _, client := range clients {
			stats := client.PoolStats()
			s.Pooled += int(stats.TotalConns)
			s.Busy += int(stats.TotalConns) - int(stats.IdleConns)
		}
		ids, err := redisConns(ctx, meter, place)
		s.Conns = len(ids)
		keys := meter.Scan(ctx, 0, place+":*", 1000).Iterator()
		for keys.Next(ctx) {
			s.Keys++
		}
		if err == nil {
			err = keys.Err()
		}
		return err
	}
	b.cut = func(ctx context.Context) error {
		ids, err := redisConns(ctx, meter, place)
		for _, id := range ids {
			meter.ClientKillByFilter(ctx, "ID", id) // may have gone by itself
		}
		return err
	}
	b.close = func() {
		for _, client := range clients {
			_ = client.Close()
		}
	}
	return b, nil
}

// redisConns returns the ids of the connections that bear a name.
func redisConns(ctx context.Context, client *redis.Client, name string) (ids []string, err error) {
	list, err := client.ClientList(ctx).Result()
	for line := range strings.Lines(list) {
		if fields := strings.Fields(line); len(fields) > 0 && strings.Contains(line, " name="+name+" ") {
			ids = append(ids, strings.TrimPrefix(fields[0], "id="))
		}
	}
	return ids, err
}

func onPostgres(ctx context.Context, url, place string, tx bool) (*backend, error) {
	meter, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	var metering sync.Mutex
	sweeping, stop := context.WithCancel(ctx)
	var sweepers sync.WaitGroup
	var pools [2]*pgxpool.Pool
	b := &backend{looks: 2, end: func() { _ = meter.Close(ctx) }}
	b.rest = func() {
		for _, p := range pools {
			p.Reset()
		}
	}
	table := pgstore.WithTable(place + ".records")
	for i := range pools {
		if pools[i], err = pool(ctx, url, place); err != nil {
			stop()
			return nil, err
		}
		var sweep func(context.Context, time.Duration, int, func(error))
		if tx {
			store := pgstore.NewTx(pools[i], table)
			b.stores[i], sweep = store, store.SweepEvery
		} else {
			store := pgstore.New(pools[i], table)
			b.stores[i], sweep = store, store.SweepEvery
		}
		sweepers.Go(func() { sweep(sweeping, sweepEvery, 100, nil) })
	}
	b.measure = func(ctx context.Context, s *sample) error {
		for _, p := range pools {
			stats := p.Stat()
			s.Pooled += int(stats.TotalConns())
			s.Busy += int(stats.AcquiredConns())
		}
		metering.Lock()
		defer metering.Unlock()
		return meter.QueryRow(ctx, fmt.Sprintf(`SELECT (SELECT count(*) FROM %s.records),
  (SELECT count(*) FROM pg_stat_activity WHERE application_name = $1)`, place), place).Scan(&s.Keys, &s.Conns)
	}
	b.cut = func(ctx context.Context) error {
		metering.Lock()
		defer metering.Unlock()
		_, err := meter.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1`, place)
		return err
	}
	b.close = func() {
		stop()
		sweepers.Wait()
		for _, p := range pools {
			p.Close()
		}
	}
	return b, nil
}

func pool(ctx context.Context, url, name string) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	config.MaxConns = poolSize
	config.ConnConfig.RuntimeParams["application_name"] = name
	return pgxpool.NewWithConfig(ctx, config)
}
