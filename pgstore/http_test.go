package pgstore_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/pgstore"
)

// service is a handler behind the middleware on a real server.
func service(t *testing.T, s idempotency.Store, h http.HandlerFunc, opts ...idempotency.Option) string {
	t.Helper()
	opts = append([]idempotency.Option{idempotency.WithLogger(slog.New(slog.DiscardHandler))}, opts...)
	mw := idempotency.New(s, idempotency.SharedKeys, opts...)
	server := httptest.NewUnstartedServer(mw.Handler(h))
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.Start()
	t.Cleanup(server.Close)
	return server.URL
}

type answer struct {
	status   int
	body     string
	replayed bool
}

// post sends one request; an answer of status 0 is a connection that broke.
func post(t *testing.T, url, key string) answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader("{}"))
	require.NoError(t, err)
	r.Header.Set("Idempotency-Key", key)
	// A transport repeats a request with this header by itself, once its
	// connection breaks; with no connection to reuse it does not.
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	if err != nil {
		return answer{}
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, string(body), resp.Header.Get("Idempotent-Replayed") == "true"}
}

// How a handler behind NewTx can end, what of it is kept, and what a retry gets.
func TestTxEndings(t *testing.T) {
	t.Parallel()
	f := newTxFixture(t, newPool(t, 4))
	var runs atomic.Int32
	url := service(t, f.TxStore, func(w http.ResponseWriter, r *http.Request) {
		first := runs.Add(1) == 1
		tx := pgstore.Tx(r.Context())
		_, err := tx.Exec(r.Context(), "INSERT INTO "+f.ledger.sql+" VALUES ($1, 100)", r.Header.Get("Idempotency-Key"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		switch how := r.URL.Path[1:]; {
		case how == "decline":
			http.Error(w, "declined", http.StatusUnprocessableEntity)
			return
		case !first:
		case how == "panic":
			panic(http.ErrAbortHandler)
		case how == "goexit":
			runtime.Goexit()
		case how == "fail":
			http.Error(w, "failed", http.StatusInternalServerError)
			return
		case how == "swallow":
			_, _ = tx.Exec(r.Context(), "SELECT 1/0")
		case how == "discard":
			idempotency.FromContext(r.Context()).Discard()
		case how == "flush":
			if err := http.NewResponseController(w).Flush(); err == nil {
				t.Error("flushed")
			}
		case how == "large":
			_, _ = w.Write(make([]byte, 2<<20))
			return
		}
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, "paid")
	})
	tests := []struct {
		name   string
		first  answer
		rows   int // after the first request
		second answer
	}{
		{"pay", answer{201, "paid", false}, 1, answer{201, "paid", true}},
		{"flush", answer{201, "paid", false}, 1, answer{201, "paid", true}},
		{"decline", answer{422, "declined\n", false}, 1, answer{422, "declined\n", true}},
		{"panic", answer{}, 0, answer{201, "paid", false}},
		{"goexit", answer{}, 0, answer{201, "paid", false}},
		{"fail", answer{500, "failed\n", false}, 0, answer{201, "paid", false}},
		{"swallow", answer{503, "not_committed", false}, 0, answer{201, "paid", false}},
		{"discard", answer{201, "paid", false}, 0, answer{201, "paid", false}},
		{"large", answer{200, string(make([]byte, 2<<20)), false}, 1, answer{409, "response_not_replayable", false}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			runs.Store(0)
			key := newClaim().Key.Value
			check := func(want, got answer) {
				t.Helper()
				require.Equal(t, want.status, got.status, got.body)
				require.Equal(t, want.replayed, got.replayed)
				require.Contains(t, got.body, want.body)
			}
			count := func() int {
				return query[int](t, f.ledger, "SELECT count(*) FROM %s WHERE key = $1", key)
			}
			check(test.first, post(t, url+"/"+test.name, key))
			// The client may see a broken connection before the rollback.
			requireReturned(t, f.pool)
			require.Equal(t, test.rows, count())
			check(test.second, post(t, url+"/"+test.name, key))
			require.Equal(t, 1, count())
		})
	}
}

// Many twins at a barrier: nobody gets a server error, and one run happens.
func TestTwinsOverHTTP(t *testing.T) {
	t.Parallel()
	bothStores(t, func(t *testing.T, f fixture, s idempotency.Store) {
		var runs atomic.Int32
		url := service(t, s, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusCreated)
			fmt.Fprint(w, runs.Add(1))
		}, idempotency.WithStoreTimeout(20*time.Second))
		for round := range 10 {
			key := newClaim().Key.Value
			var all sync.WaitGroup
			for range 20 {
				all.Go(func() {
					switch a := post(t, url, key); {
					case a.status == http.StatusCreated && a.body == fmt.Sprint(round+1):
					case a.status == http.StatusConflict && strings.Contains(a.body, "request_in_progress"):
					default:
						t.Errorf("round %d: %+v", round, a)
					}
				})
			}
			all.Wait()
			require.EqualValues(t, round+1, runs.Load())
		}
	})
}

// Twenty keys and a pool of two: all are served, also by handlers that need the
// pool themselves (which with NewTx would be one too many: they use Tx).
func TestPoolOfTwo(t *testing.T) {
	t.Parallel()
	pool := newPool(t, 2, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["synchronous_commit"] = "off" })
	f := newFixture(t, pool)
	for name, s := range map[string]idempotency.Store{"New": f.store(), "NewTx": f.txStore()} {
		t.Run(name, func(t *testing.T) {
			url := service(t, s, func(w http.ResponseWriter, r *http.Request) {
				var err error
				if tx := pgstore.Tx(r.Context()); tx != nil {
					_, err = tx.Exec(r.Context(), "SELECT pg_sleep(0.01)")
				} else {
					_, err = pool.Exec(r.Context(), "SELECT pg_sleep(0.01)")
				}
				if err != nil {
					http.Error(w, err.Error(), http.StatusInternalServerError)
					return
				}
				w.WriteHeader(http.StatusCreated)
			}, idempotency.WithStoreTimeout(20*time.Second))
			var all sync.WaitGroup
			for range 20 {
				key := newClaim().Key.Value
				for range 3 { // with two twins each
					all.Go(func() {
						for {
							a := post(t, url+"/"+name, key)
							if a.status == http.StatusCreated {
								return
							}
							if a.status != http.StatusConflict {
								t.Errorf("%+v", a)
								return
							}
						}
					})
				}
			}
			all.Wait()
			requireReturned(t, pool)
		})
	}
}
