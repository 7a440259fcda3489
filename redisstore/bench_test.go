package redisstore_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/redisstore"
	"github.com/retrysafe/idempotency/storetest"
)

// BenchmarkStore measures the Store beside what its calls come down to, in one
// run: the raw pair is SET NX and SET, a round trip each, for a first run; GET
// for a replay; and PING for the round trip itself. replay/commands is what the
// client takes for the commands of a replay alone.
func BenchmarkStore(b *testing.B) {
	client := redis.NewClient(&redis.Options{Addr: startServer(b).addr, PoolSize: 128})
	defer func() { _ = client.Close() }()
	s := redisstore.New(client, redisstore.WithPrefix(rand.Text()+":"))
	ctx, cancel := context.WithCancel(b.Context()) // which has a Done, as a request's has
	defer cancel()
	body := make([]byte, 1<<10)
	resp := &idempotency.Response{
		Status: http.StatusCreated,
		Header: http.Header{"Content-Type": {"application/json"}, "Location": {"/payments/1"}},
		Body:   body,
		Time:   time.Now(),
	}
	stored := newClaim()
	if err := s.Complete(ctx, stored, resp, time.Hour); err != nil {
		b.Fatal(err)
	}
	client.Set(ctx, "raw", body, time.Hour)
	const short = 10 * time.Second
	ops := []struct {
		name string
		run  func(key, token string) error
	}{
		{"ping", func(string, string) error { return client.Ping(ctx).Err() }},
		{"first/raw", func(key, _ string) error {
			if err := client.SetNX(ctx, key, "claim", short).Err(); err != nil {
				return err
			}
			return client.Set(ctx, key, body, short).Err()
		}},
		{"first/store", func(key, token string) error {
			c := idempotency.Claim{Key: idempotency.Key{User: "u", Endpoint: "/e", Value: key}, Token: token}
			if _, err := s.Claim(ctx, c, short); err != nil {
				return err
			}
			return s.Complete(ctx, c, resp, short)
		}},
		{"replay/raw", func(string, string) error { return client.Get(ctx, "raw").Err() }},
		{"replay/commands", func(string, string) error {
			pipe := client.Pipeline()
			pipe.SetNX(ctx, "raw", "claim", short)
			pipe.PTTL(ctx, "raw")
			pipe.Get(ctx, "raw")
			_, err := pipe.Exec(ctx)
			return err
		}},
		{"replay/store", func(_, token string) error {
			c := stored
			c.Token = token
			_, err := s.Claim(ctx, c, short)
			return err
		}},
	}
	for _, g := range []int{1, 8, 64} {
		for _, op := range ops {
			b.Run(fmt.Sprintf("%s/g=%d", op.name, g), func(b *testing.B) {
				b.ReportAllocs()
				var n atomic.Int64
				run := rand.Text()
				var wg sync.WaitGroup
				for range g {
					wg.Go(func() {
						for i := n.Add(1); i <= int64(b.N); i = n.Add(1) {
							key := fmt.Sprint(run, i)
							if err := op.run(key, key); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
			})
		}
	}
}

// BenchmarkContract is the benchmark that all stores have.
func BenchmarkContract(b *testing.B) {
	client := redis.NewClient(&redis.Options{Addr: startServer(b).addr})
	defer func() { _ = client.Close() }()
	storetest.Bench(b, func(*testing.B) idempotency.Store {
		return redisstore.New(client, redisstore.WithPrefix(rand.Text()+":"))
	})
}
