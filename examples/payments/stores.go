package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/memstore"
	"github.com/retrysafe/idempotency/pgstore"
	"github.com/retrysafe/idempotency/redisstore"
)

// openStore opens the store of -store, and returns what closes it again.
//
// A crowd has a place of its own in Redis and PostgreSQL, since the same seed
// makes the same keys, and a second crowd would be given the first one's answers.
// -serve uses the usual place, so that its records survive a restart.
//
// PostgreSQL is used with leases here. pgstore.NewTx, which commits the record
// together with the handler's own rows, means nothing to a bank in memory.
func openStore(ctx context.Context, cfg config) (idempotency.Store, func(), error) {
	place := ""
	if cfg.serve == "" {
		place = strings.ToLower(rand.Text()[:8])
	}
	scheme, _, _ := strings.Cut(cfg.store, ":")
	switch scheme {
	case "memory":
		return memstore.New(), func() {}, nil
	case "redis", "rediss", "unix":
		return openRedis(ctx, cfg.store, place)
	case "postgres", "postgresql":
		return openPostgres(ctx, cfg.store, place)
	}
	return nil, nil, fmt.Errorf("-store %s: use memory, redis://… or postgres://…", cfg.storeName())
}

func openRedis(ctx context.Context, address, place string) (idempotency.Store, func(), error) {
	opts, err := redis.ParseURL(address)
	if err != nil {
		return nil, nil, fmt.Errorf("-store: %w", err)
	}
	rdb := redis.NewClient(opts)
	prefix := "idempotency:"
	if place != "" {
		prefix = "idempotency-demo-" + place + ":" // its records go with their TTL
	}
	store := redisstore.New(rdb, redisstore.WithPrefix(prefix), redisstore.WithLogger(slog.New(slog.DiscardHandler)))
	if err := store.Check(ctx); err != nil {
		_ = rdb.Close()
		return nil, nil, err
	}
	return store, func() { _ = rdb.Close() }, nil
}

func openPostgres(ctx context.Context, address, place string) (idempotency.Store, func(), error) {
	pool, err := pgxpool.New(ctx, address)
	if err != nil {
		return nil, nil, fmt.Errorf("-store: %w", err)
	}
	table := "idempotency_keys"
	if place != "" {
		table = "idempotency_demo_" + place
	}
	store := pgstore.New(pool, pgstore.WithTable(table))
	if err := store.Migrate(ctx); err != nil {
		pool.Close()
		return nil, nil, err
	}
	return store, func() {
		if place != "" {
			_, _ = pool.Exec(context.WithoutCancel(ctx), "DROP TABLE "+pgx.Identifier{table}.Sanitize())
		}
		pool.Close()
	}, nil
}
