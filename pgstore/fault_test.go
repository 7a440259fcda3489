package pgstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/pgstore"
)

func portOf(c *pgxpool.Config) string { return strconv.Itoa(int(c.ConnConfig.Port)) }

// soon is a context for a call whose reply hangs.
func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

// warm makes the pool's connection know the statements, so that a call is one
// message.
func warm(t *testing.T, s idempotency.Store) {
	recorded(t, s, newResponse("warm"))
	require.NoError(t, s.Release(t.Context(), claimed(t, s)))
}

func TestLostReplies(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]fault{"closed": loseReply, "hung": hangReply} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			direct := newFixture(t, newPool(t, 2))
			p, pool := newProxy(t)
			s := fixture{pool: pool, name: direct.name}.store()

			t.Run("claim", func(t *testing.T) {
				warm(t, s)
				c := newClaim()
				p.arm(f)
				_, err := s.Claim(soon(t), c, lease)
				require.Error(t, err)
				rec, err := s.Claim(t.Context(), c, lease)
				requireHeld(t, rec, err)
			})
			t.Run("complete", func(t *testing.T) {
				warm(t, s)
				c := claimed(t, s)
				p.arm(f)
				require.Error(t, s.Complete(soon(t), c, newResponse("first"), ttl))
				require.NoError(t, s.Complete(t.Context(), c, newResponse("second"), 2*ttl))
				requireReplay(t, s, c, newResponse("first"))
				rec, err := s.Lookup(t.Context(), c.Key)
				require.NoError(t, err)
				require.LessOrEqual(t, rec.ExpiresIn, ttl)
			})
			t.Run("release", func(t *testing.T) {
				warm(t, s)
				c := claimed(t, s)
				p.arm(f)
				require.Error(t, s.Release(soon(t), c))
				next := again(c)
				rec, err := direct.store().Claim(t.Context(), next, lease)
				requireHeld(t, rec, err)
				require.NoError(t, s.Release(t.Context(), c))
				rec, err = s.Claim(t.Context(), again(c), lease)
				require.NoError(t, err)
				require.Equal(t, next.Token, rec.Token)
			})
		})
	}
}

func TestManyClaimsOfOneKey(t *testing.T) {
	t.Parallel()
	bothStores(t, func(t *testing.T, _ fixture, s idempotency.Store) {
		c := newClaim()
		var winner atomic.Value
		var losers atomic.Int32
		var all sync.WaitGroup
		start := make(chan struct{})
		for range 64 {
			mine := again(c)
			all.Go(func() {
				<-start
				rec, err := s.Claim(t.Context(), mine, lease)
				switch {
				case err != nil:
					t.Error(err)
				case rec == nil:
					if winner.Swap(mine) != nil {
						t.Error("two winners")
					}
				case rec.Response != nil || rec.Fingerprint != c.Fingerprint || rec.ExpiresIn <= 0:
					t.Errorf("not a claim in progress: %+v", rec)
				default:
					losers.Add(1)
				}
			})
		}
		close(start)
		all.Wait()
		require.EqualValues(t, 63, losers.Load())
		require.NoError(t, s.Release(t.Context(), winner.Load().(idempotency.Claim)))
	})
}

// A lease that has lapsed and was taken over belongs to its new owner alone.
func TestLateOwner(t *testing.T) {
	t.Parallel()
	f := newFixture(t, newPool(t, 4))
	s := f.store()
	a := claimed(t, s)
	f.pass(t, a.Key, 2*lease)
	b := again(a)
	rec, err := s.Claim(t.Context(), b, lease)
	requireHeld(t, rec, err)
	row := `SELECT r::text FROM %s AS r WHERE idempotency_key = $1`
	before := query[string](t, f, row, a.Key.Value)
	require.ErrorIs(t, s.Complete(t.Context(), a, newResponse("late"), ttl), idempotency.ErrClaimLost)
	require.ErrorIs(t, s.Extend(t.Context(), a, lease), idempotency.ErrClaimLost)
	require.NoError(t, s.Release(t.Context(), a))
	require.Equal(t, before, query[string](t, f, row, a.Key.Value))
}

// Another transaction has inserted the key and not ended yet.
func TestClaimBesideAnOpenTransaction(t *testing.T) {
	t.Parallel()
	for _, commits := range []bool{true, false} {
		t.Run(fmt.Sprintf("commits=%t", commits), func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, newPool(t, 4))
			holder, s := f.txStore(), f.store()
			c := claimed(t, holder)
			type result struct {
				rec *idempotency.Record
				err error
			}
			done := make(chan result, 1)
			go func() {
				rec, err := s.Claim(t.Context(), again(c), lease)
				done <- result{rec, err}
			}()
			require.Eventually(t, func() bool {
				var waits bool
				err := f.pool.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_stat_activity a USING (pid)
					WHERE NOT l.granted AND a.query LIKE 'INSERT%' AND position($1 IN a.query) > 0)`, f.sql).Scan(&waits)
				return err == nil && waits
			}, 10*time.Second, 10*time.Millisecond)
			if commits {
				holder.Bind(t.Context(), c)
				require.NoError(t, holder.Complete(t.Context(), c, newResponse("x"), ttl))
			} else {
				require.NoError(t, holder.Release(t.Context(), c))
			}
			r := <-done
			require.NoError(t, r.err)
			if !commits {
				require.Nil(t, r.rec)
				return
			}
			require.NotNil(t, r.rec)
			require.Equal(t, newResponse("x"), r.rec.Response)
		})
	}
}

// Twins never see an error, whatever the server's defaults are.
func TestTwinsAtEveryIsolationLevel(t *testing.T) {
	t.Parallel()
	for _, isolation := range []string{"read committed", "repeatable read", "serializable"} {
		t.Run(isolation, func(t *testing.T) {
			t.Parallel()
			pool := newPool(t, 6, func(c *pgxpool.Config) {
				c.ConnConfig.RuntimeParams["default_transaction_isolation"] = isolation
				c.ConnConfig.RuntimeParams["lock_timeout"] = "5s"
			})
			f := newFixture(t, pool)
			for _, s := range []idempotency.Store{f.store(), f.txStore(pgstore.WithTxOptions(pgx.TxOptions{
				IsoLevel: pgx.TxIsoLevel(isolation),
			}))} {
				for range 10 {
					twins(t, s, 20)
				}
			}
		})
	}
}

// twins sends n twins; the winner completes after the others have looked.
func twins(t *testing.T, s idempotency.Store, n int) {
	c := newClaim()
	var runs atomic.Int32
	var all sync.WaitGroup
	for range n {
		mine := again(c)
		all.Go(func() {
			rec, err := s.Claim(t.Context(), mine, lease)
			switch {
			case err != nil:
				t.Error(err)
			case rec == nil:
				runs.Add(1)
				if tx, ok := s.(idempotency.TxStore); ok {
					tx.Bind(t.Context(), mine)
				}
				if err := s.Complete(t.Context(), mine, newResponse("x"), ttl); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 1, runs.Load())
}

// A call that is cancelled in the middle must not leave its reply to the next.
func TestCancelledCallsDoNotMixReplies(t *testing.T) {
	t.Parallel()
	f := newFixture(t, newPool(t, 4))
	s := f.store()
	claims := make([]idempotency.Claim, 300)
	var all sync.WaitGroup
	work := make(chan int)
	for range 8 {
		all.Go(func() {
			for i := range work {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(2000))*time.Microsecond)
				if rec, err := s.Claim(ctx, claims[i], lease); err == nil && rec == nil {
					_ = s.Complete(ctx, claims[i], newResponse(claims[i].Key.Value), ttl)
				}
				cancel()
			}
		})
	}
	for i := range claims {
		claims[i] = newClaim()
		work <- i
	}
	close(work)
	all.Wait()
	for _, c := range claims {
		rec, err := s.Claim(t.Context(), again(c), lease)
		require.NoError(t, err)
		if rec != nil && rec.Response != nil {
			require.Equal(t, newResponse(c.Key.Value), rec.Response)
		}
		if rec != nil {
			require.Equal(t, c.Token, rec.Token)
		}
	}
}
