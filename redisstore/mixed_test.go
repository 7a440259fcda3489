package redisstore_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/redisstore"
)

// mixedLease is long for a handler of no length, so that no run loses its lease
// on a busy machine.
const mixedLease = 10 * time.Second

// payments counts the runs of every key, and answers with the key.
type payments struct{ runs []atomic.Int64 }

func (p *payments) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var n int
	_, _ = fmt.Sscanf(r.Header.Get("Idempotency-Key"), "key-%d", &n)
	p.runs[n].Add(1)
	w.WriteHeader(http.StatusCreated)
	_, _ = fmt.Fprintf(w, "key-%d", n)
	if n%10 == 0 {
		_, _ = w.Write(largeBody()) // the way of large records
	}
}

// unreliable decides at random what becomes of a request to the server.
func unreliable([]byte) action {
	<-time.After(rand.N(2 * time.Millisecond)) // on its way
	switch rand.IntN(100) {
	case 0:
		return dropHang
	case 1, 2:
		return dropClose
	case 3:
		return cut
	}
	return pass
}

// TestMixedLoad sends each of some thousand keys several times at once, through
// the middleware, while connections are cut, replies get lost and clients hang
// up. Then every key has run once, and everybody gets its own answer.
func TestMixedLoad(t *testing.T) {
	t.Parallel()
	srv := startServer(t)
	for name, retries := range map[string]int{"go-redis repeats": 0, "go-redis does not repeat": -1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := startProxy(t, srv.addr)
			client := newClient(t, p.addr, func(o *redis.Options) {
				o.PoolSize, o.ReadTimeout, o.MaxRetries = 8, 500*time.Millisecond, retries
			})
			mixedLoad(t, client, func(on bool) {
				if on {
					p.set(unreliable)
				} else {
					p.set(func([]byte) action { return pass })
				}
			})
		})
	}
}

// TestMixedLoadWithRestarts is the same with a server that is killed again and
// again. Its append-only file keeps all that it has acknowledged, for it is
// flushed before each reply: with appendfsync everysec a reply does not wait for
// the file while the flush before is still under way.
func TestMixedLoadWithRestarts(t *testing.T) {
	t.Parallel()
	srv, path := startServer(t, durable...), binary(t)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	mixedLoad(t, srv.client(t), func(on bool) {
		if !on {
			close(stop)
			wg.Wait()
			return
		}
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(200 * time.Millisecond):
				}
				srv.kill()
				if err := srv.start(path); err != nil {
					t.Error(err)
					return
				}
			}
		})
	})
}

func mixedLoad(t *testing.T, client redis.UniversalClient, trouble func(on bool)) {
	t.Helper()
	const keys, twins = 1000, 3
	store := redisstore.New(client, redisstore.WithPrefix(t.Name()+":"))
	trouble(true)
	app := &payments{runs: make([]atomic.Int64, keys)}
	mw := idempotency.New(store, idempotency.SharedKeys,
		idempotency.WithLease(mixedLease), idempotency.WithStoreTimeout(2*time.Second),
		idempotency.WithWait(20*time.Millisecond),
		idempotency.WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil))))
	h := mw.Handler(app)

	var refused atomic.Int64
	jobs := make(chan int)
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for n := range jobs {
				ctx, hangUp := context.WithCancel(t.Context())
				if rand.IntN(2) == 0 {
					time.AfterFunc(rand.N(20*time.Millisecond), hangUp)
				}
				rec := send(ctx, h, n)
				hangUp()
				checkAnswer(t, n, rec)
				if rec.Code == http.StatusServiceUnavailable {
					refused.Add(1)
				}
			}
		})
	}
	for n := range keys {
		for range twins {
			jobs <- n
		}
	}
	close(jobs)
	wg.Wait()
	require.NoError(t, mw.Drain(t.Context()))

	trouble(false)
	stuck := 0
	for n := range keys {
		require.LessOrEqual(t, app.runs[n].Load(), int64(1), "key %d", n)
		rec := send(t.Context(), h, n)
		for tries := 0; rec.Code != http.StatusCreated; rec = send(t.Context(), h, n) {
			tries++
			require.Less(t, tries, 1000, "key %d goes on getting %d %s", n, rec.Code, rec.Body)
			checkAnswer(t, n, rec)
			if rec.Code != http.StatusConflict {
				continue
			}
			stuck++ // a claim whose release was lost as well
			key := mixedKey(t, n)
			found, err := store.Lookup(t.Context(), key)
			require.NoError(t, err)
			if found != nil && found.Response == nil {
				require.LessOrEqual(t, found.ExpiresIn, mixedLease, "key %d is stuck for longer than a lease", n)
				require.NoError(t, store.Wait(t.Context(), key))
			}
		}
		checkAnswer(t, n, rec)
		require.EqualValues(t, 1, app.runs[n].Load(), "key %d", n)
	}
	require.NoError(t, mw.Drain(t.Context()))
	for n := range keys {
		found, err := store.Lookup(t.Context(), mixedKey(t, n))
		require.NoError(t, err)
		require.NotNil(t, found)
		require.NotNil(t, found.Response)
	}
	t.Logf("%d requests refused, %d looks at claims that were left to lapse", refused.Load(), stuck)
}

func send(ctx context.Context, h http.Handler, n int) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/payments", strings.NewReader("{}"))
	r.Header.Set("Idempotency-Key", fmt.Sprintf("key-%d", n))
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	return rec
}

// checkAnswer may be called from any goroutine.
func checkAnswer(t *testing.T, n int, rec *httptest.ResponseRecorder) {
	t.Helper()
	switch rec.Code {
	case http.StatusCreated:
		want := fmt.Sprintf("key-%d", n)
		if n%10 == 0 {
			want += string(largeBody())
		}
		if rec.Body.String() != want {
			t.Errorf("key %d has got the answer %.20q", n, rec.Body.String())
		}
	case http.StatusConflict, http.StatusServiceUnavailable, http.StatusBadRequest:
	default:
		t.Errorf("key %d has got %d %s", n, rec.Code, rec.Body)
	}
}

// mixedKey is the Key of send's request n.
func mixedKey(t *testing.T, n int) idempotency.Key {
	t.Helper()
	user, err := idempotency.SharedKeys(nil)
	require.NoError(t, err)
	return idempotency.NewKey(user, "POST /payments", fmt.Sprintf("key-%d", n))
}
