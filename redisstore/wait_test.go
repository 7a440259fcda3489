package redisstore_test

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/redisstore"
)

// waiting returns when somebody waits for key.
func waiting(t *testing.T, s *redisstore.Store, key idempotency.Key) {
	t.Helper()
	require.Eventually(t, func() bool { return s.Waiters(key) > 0 }, startTimeout, time.Millisecond)
}

// waiters starts n calls of Wait and returns when all of them wait.
func waiters(t *testing.T, s *redisstore.Store, key idempotency.Key, n int, ctx func(i int) context.Context) <-chan error {
	t.Helper()
	done := make(chan error, n)
	for i := range n {
		go func() { done <- s.Wait(ctx(i), key) }()
	}
	require.Eventually(t, func() bool { return s.Waiters(key) == n }, startTimeout, time.Millisecond)
	return done
}

// polling and subscribing are the Stores that waiters may find.
func waitingStores(t *testing.T) map[string]func(t *testing.T) (*redisstore.Store, *redis.Client) {
	t.Helper()
	srv := startServer(t)
	return map[string]func(t *testing.T) (*redisstore.Store, *redis.Client){
		"polling": func(t *testing.T) (*redisstore.Store, *redis.Client) {
			t.Helper()
			client := srv.client(t)
			return redisstore.New(wrapped{client}, redisstore.WithPrefix(t.Name()+":")), client
		},
		"subscribing": func(t *testing.T) (*redisstore.Store, *redis.Client) {
			t.Helper()
			client := srv.client(t)
			return redisstore.New(client, redisstore.WithPrefix(t.Name()+":")), client
		},
	}
}

func TestWaitEnds(t *testing.T) {
	t.Parallel()
	ends := map[string]func(ctx context.Context, s *redisstore.Store, c idempotency.Claim) error{
		"complete": func(ctx context.Context, s *redisstore.Store, c idempotency.Claim) error {
			return s.Complete(ctx, c, response(nil), ttl)
		},
		"complete large": func(ctx context.Context, s *redisstore.Store, c idempotency.Claim) error {
			return s.Complete(ctx, c, response(largeBody()), ttl)
		},
		"release": func(ctx context.Context, s *redisstore.Store, c idempotency.Claim) error { return s.Release(ctx, c) },
		"forget":  func(ctx context.Context, s *redisstore.Store, c idempotency.Claim) error { return s.Forget(ctx, c.Key) },
		"lapse": func(ctx context.Context, s *redisstore.Store, c idempotency.Claim) error {
			return s.Extend(ctx, c, 50*time.Millisecond)
		},
		"lapse into a hold": func(ctx context.Context, s *redisstore.Store, c idempotency.Claim) error {
			c.Hold = time.Hour
			return s.Extend(ctx, c, 50*time.Millisecond)
		},
		"another claim": func(ctx context.Context, s *redisstore.Store, c idempotency.Claim) error {
			if err := s.Release(ctx, c); err != nil {
				return err
			}
			return claim(ctx, s, twin(c))
		},
	}
	for kind, newStore := range waitingStores(t) {
		for name, end := range ends {
			t.Run(kind+"/"+name, func(t *testing.T) {
				t.Parallel()
				s, _ := newStore(t)
				c := newClaim()
				mustClaim(t, s, c, lease)
				done := waiters(t, s, c.Key, 5, func(int) context.Context { return t.Context() })
				require.NoError(t, end(t.Context(), s, c))
				for range 5 {
					require.NoError(t, <-done)
				}
				require.Zero(t, s.Waiters(c.Key))
			})
		}
		t.Run(kind+"/at once", func(t *testing.T) {
			t.Parallel()
			s, _ := newStore(t)
			c := newClaim()
			require.NoError(t, s.Wait(t.Context(), c.Key))
			require.NoError(t, s.Complete(t.Context(), c, response(nil), ttl))
			require.NoError(t, s.Wait(t.Context(), c.Key))
		})
	}
}

// TestWaitersShareOnePoller: twenty cost about what one costs, and those who
// leave take nothing from those who stay.
func TestWaitersShareOnePoller(t *testing.T) {
	t.Parallel()
	for kind, newStore := range waitingStores(t) {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s, client := newStore(t)
			var looks atomic.Int64
			client.AddHook(counter{&looks})
			c := newClaim()
			mustClaim(t, s, c, lease)
			leaving, leave := context.WithCancel(t.Context())
			done := waiters(t, s, c.Key, 20, func(i int) context.Context {
				if i%2 == 0 {
					return leaving
				}
				return t.Context()
			})
			leave()
			for range 10 {
				require.ErrorIs(t, <-done, context.Canceled)
			}
			require.Equal(t, 10, s.Waiters(c.Key))
			// By the clock of the server, 500 ms at least from now.
			end := now(t, client).Add(500 * time.Millisecond)
			before := looks.Load()
			require.Eventually(t, func() bool { return now(t, client).After(end) }, startTimeout, 50*time.Millisecond)
			spent := now(t, client).Sub(end) + 500*time.Millisecond
			// At most one in ten milliseconds, were there no backing off at all.
			require.LessOrEqual(t, looks.Load()-before, 10+int64(spent/(10*time.Millisecond)))
			require.Less(t, before, int64(60), "each that joins makes for one look at most")
			require.NoError(t, s.Release(t.Context(), c))
			for range 10 {
				require.NoError(t, <-done)
			}
		})
	}
}

// now is the server's clock.
func now(t *testing.T, client *redis.Client) time.Time {
	t.Helper()
	v, err := client.Time(context.Background()).Result()
	require.NoError(t, err)
	return v
}

// counter counts the scripts that a client runs.
type counter struct{ scripts *atomic.Int64 }

func (c counter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c counter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "evalsha" {
			c.scripts.Add(1)
		}
		return next(ctx, cmd)
	}
}

func (c counter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestHints: one subscription per Store while somebody waits, a message for each
// change, and a look for each message.
func TestHints(t *testing.T) {
	t.Parallel()
	srv := startServer(t)
	client := srv.client(t)
	s := redisstore.New(client)
	const channel = "idempotency:hints"
	subscribers := func() int64 { return client.PubSubNumSub(context.Background(), channel).Val()[channel] }

	heard := client.Subscribe(t.Context(), channel)
	defer func() { _ = heard.Close() }()
	_, err := heard.Receive(t.Context())
	require.NoError(t, err)
	a, b := newClaim(), newClaim()
	mustClaim(t, s, a, lease)
	mustClaim(t, s, b, lease)
	require.EqualValues(t, 1, subscribers(), "none as long as nobody waits")
	doneA := waiters(t, s, a.Key, 3, func(int) context.Context { return t.Context() })
	doneB := waiters(t, s, b.Key, 3, func(int) context.Context { return t.Context() })
	require.Eventually(t, func() bool { return subscribers() == 2 }, startTimeout, time.Millisecond)

	require.NoError(t, s.Complete(t.Context(), a, response(nil), ttl))
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	msg, err := heard.ReceiveMessage(ctx)
	require.NoError(t, err)
	require.Equal(t, s.RedisKey(a.Key), msg.Payload)
	for range 3 {
		require.NoError(t, <-doneA)
	}
	// Somebody cuts the subscription: it comes back, and the waiters are none
	// the worse for it.
	do(t, client, "client", "kill", "type", "pubsub", "skipme", "no")
	require.NoError(t, s.Release(t.Context(), b))
	for range 3 {
		require.NoError(t, <-doneB)
	}
	// Nobody waits: it goes.
	require.Eventually(t, func() bool { return subscribers() <= 1 }, startTimeout, 50*time.Millisecond)
}

// TestWaitLeavesNothing is not parallel: it counts goroutines.
func TestWaitLeavesNothing(t *testing.T) {
	srv := startServer(t)
	client := srv.client(t)
	s := redisstore.New(client)
	c := newClaim()
	mustClaim(t, s, c, lease)
	before := runtime.NumGoroutine()
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	for range 50 {
		wg.Go(func() { _ = s.Wait(ctx, c.Key) })
	}
	waiting(t, s, c.Key)
	cancel()
	wg.Wait()
	// Eventually asks from a goroutine of its own.
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+1 }, startTimeout, 50*time.Millisecond)
}

// TestWaitWithoutServer: a waiter is told that the key cannot be watched.
func TestWaitWithoutServer(t *testing.T) {
	t.Parallel()
	srv := startServer(t)
	s := redisstore.New(srv.client(t, noRetries))
	c := newClaim()
	mustClaim(t, s, c, lease)
	done := waiters(t, s, c.Key, 2, func(int) context.Context { return t.Context() })
	srv.kill()
	for range 2 {
		require.Error(t, <-done)
	}
}
