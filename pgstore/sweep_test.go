package pgstore_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/pgstore"
)

// fill inserts n rows whose end is as given.
func (f fixture) fill(t *testing.T, n int, status, expires, free string) {
	t.Helper()
	f.exec(t, `INSERT INTO %s (idempotency_key, endpoint, user_id, request_hash, status, status_code, completed_at, token, expires_at, free_at)
		SELECT md5(random()::text || i), 'POST /', 'u', repeat('0', 64), $2::text, 200, now(), 't', now() + $3::text::interval, now() + $4::text::interval
		FROM generate_series(1, $1::int) i`, n, status, expires, free)
}

func TestSweep(t *testing.T) {
	t.Parallel()
	f := newFixture(t, newPool(t, 4))
	s := f.store()
	f.fill(t, 2500, "completed", "-1s", "-1s")
	f.fill(t, 30, "in_progress", "-1s", "-1s") // abandoned
	f.fill(t, 7, "completed", "1h", "1h")
	f.fill(t, 5, "in_progress", "1h", "1h")
	f.fill(t, 3, "in_progress", "-1s", "1h") // lapsed, and still blocking

	// Two at once share the work.
	var total atomic.Int64
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			n, err := s.Sweep(t.Context(), 100)
			if err != nil {
				t.Error(err)
			}
			total.Add(n)
		})
	}
	all.Wait()
	rest, err := f.txStore().Sweep(t.Context(), 0)
	require.NoError(t, err)
	require.EqualValues(t, 2530, total.Load()+rest)
	require.Equal(t, 15, query[int](t, f, "SELECT count(*) FROM %s"))
}

func TestSweepBatchIsALimit(t *testing.T) {
	t.Parallel()
	f := newFixture(t, newPool(t, 2))
	f.fill(t, 25, "completed", "-1s", "-1s")
	f.exec(t, `CREATE FUNCTION pg_temp.refuse() RETURNS trigger LANGUAGE plpgsql AS
		$$ BEGIN IF (SELECT count(*) FROM gone) > 10 THEN RAISE 'too many'; END IF; RETURN NULL; END $$;
		CREATE TRIGGER refuse AFTER DELETE ON %s REFERENCING OLD TABLE AS gone
		FOR EACH STATEMENT EXECUTE FUNCTION pg_temp.refuse()`)
	n, err := f.store().Sweep(t.Context(), 10)
	require.NoError(t, err)
	require.EqualValues(t, 25, n)
}

func TestSweepEndsWithItsContext(t *testing.T) {
	t.Parallel()
	s := newStore(t, newPool(t, 2))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Sweep(ctx, 10)
	require.ErrorIs(t, err, context.Canceled)
	s.SweepEvery(ctx, time.Hour, 10, func(error) { t.Error("swept") })
}

func TestSweepEvery(t *testing.T) {
	t.Parallel()
	f := newFixture(t, newPool(t, 4))
	f.fill(t, 3, "completed", "-1s", "-1s")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.store().SweepEvery(ctx, 10*time.Millisecond, 10, func(err error) { t.Error(err) })
	}()
	require.Eventually(t, func() bool { return query[int](t, f, "SELECT count(*) FROM %s") == 0 },
		10*time.Second, 10*time.Millisecond)
	cancel()
	<-ended
}

// A sweep that fails is reported, and the next one comes.
func TestSweepEveryReports(t *testing.T) {
	config, err := pgxpool.ParseConfig("postgres://nobody@127.0.0.1:1/none?sslmode=disable")
	require.NoError(t, err)
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	pool.Close() // every call fails at once
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		start := time.Now()
		reports := 0
		pgstore.New(pool).SweepEvery(ctx, time.Minute, 10, func(err error) {
			require.ErrorContains(t, err, "pgstore: sweep")
			if reports++; reports == 3 {
				cancel()
			}
		})
		require.InDelta(t, 3*time.Minute, time.Since(start), float64(19*time.Second))
	})
}

// Sweeping beside claims of expired keys: what was claimed stays claimed.
func TestSweepBesideTakeovers(t *testing.T) {
	t.Parallel()
	besideSweepers(t, func(s *pgstore.Store, c idempotency.Claim) error {
		// The claim must still be there, and then runs out at once.
		return s.Extend(t.Context(), c, time.Microsecond)
	})
}

// Sweeping beside owners that complete claims which have lapsed: what was
// completed stays.
func TestSweepBesideLateCompletes(t *testing.T) {
	t.Parallel()
	besideSweepers(t, func(s *pgstore.Store, c idempotency.Claim) error {
		if err := s.Extend(t.Context(), c, time.Microsecond); err != nil {
			return err
		}
		if err := s.Complete(t.Context(), c, newResponse("x"), ttl); err != nil {
			return err
		}
		rec, err := s.Lookup(t.Context(), c.Key)
		if err == nil && rec == nil {
			err = errors.New("the record is gone")
		}
		return errors.Join(err, s.Forget(t.Context(), c.Key))
	})
}

// A row that had expired when the sweep began, and that somebody is completing
// at that moment, is left alone and not waited for.
func TestSweepLeavesWhatIsBeingCompleted(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]pgstore.Option{"delete": nil, "history": {pgstore.WithHistory(newName(t))}} {
		f := newFixture(t, newPool(t, 4))
		s := f.store(opts...)
		require.NoError(t, s.Migrate(t.Context()))
		f.fill(t, 1, "in_progress", "-1s", "-1s")
		owner, err := f.pool.Begin(t.Context())
		require.NoError(t, err)
		_, err = owner.Exec(t.Context(), "UPDATE "+f.sql+" SET status = 'completed', free_at = now() + interval '1 hour'")
		require.NoError(t, err)
		swept := make(chan error, 1)
		go func() {
			_, err := s.Sweep(t.Context(), 10)
			swept <- err
		}()
		select {
		case err := <-swept:
			require.NoError(t, err)
		case <-time.After(10 * time.Second):
			t.Errorf("%s: the sweep waits for the row", name)
		}
		require.NoError(t, owner.Commit(t.Context()))
		require.Equal(t, 1, query[int](t, f, "SELECT count(*) FROM %s WHERE status = 'completed'"), name)
	}
}

// besideSweepers claims four keys over and over, beside three sweepers, and
// does use with each claim, which must leave the key free.
func besideSweepers(t *testing.T, use func(*pgstore.Store, idempotency.Claim) error) {
	t.Helper()
	f := newFixture(t, newPool(t, 8, func(c *pgxpool.Config) {
		c.ConnConfig.RuntimeParams["synchronous_commit"] = "off" // more rounds
	}))
	s := f.store()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			for ctx.Err() == nil {
				if _, err := s.Sweep(ctx, 10); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			}
		})
	}
	var claims atomic.Int64
	for range 4 {
		all.Go(func() {
			for c := newClaim(); ctx.Err() == nil; c = again(c) {
				rec, err := s.Claim(t.Context(), c, lease)
				if err == nil && rec != nil {
					err = errors.New("the key is another's")
				}
				if err == nil {
					err = use(s, c)
				}
				if err != nil {
					t.Errorf("after %d claims: %v", claims.Load(), err)
					return
				}
				claims.Add(1)
			}
		})
	}
	all.Wait()
	require.Greater(t, claims.Load(), int64(50))
	t.Logf("%d claims beside 3 sweepers", claims.Load())
}

func TestHistory(t *testing.T) {
	t.Parallel()
	bothStores(t, func(t *testing.T, f fixture, _ idempotency.Store) {
		name := newName(t)
		opt := pgstore.WithHistory(name)
		require.NoError(t, f.store(opt).Migrate(t.Context()))
		history := fixture{pool: f.pool, sql: quoted(name)}
		kept := func(c idempotency.Claim) int {
			return query[int](t, history, "SELECT count(*) FROM %s WHERE idempotency_key = $1 AND token = $2 AND archived_at > created_at",
				c.Key.Value, c.Token)
		}
		var s interface {
			idempotency.Store
			idempotency.Inspector
			Sweep(context.Context, int) (int64, error)
		} = f.store(opt)
		if t.Name() == "TestHistory/NewTx" {
			s = f.txStore(opt)
		}
		swept := recorded(t, s, newResponse("swept"))
		f.pass(t, swept.Key, 2*ttl)
		n, err := s.Sweep(t.Context(), 10)
		require.NoError(t, err)
		require.EqualValues(t, 1, n)
		require.Equal(t, 1, kept(swept))

		replaced := recorded(t, s, newResponse("replaced"))
		f.pass(t, replaced.Key, 2*ttl)
		next := again(replaced)
		rec, err := s.Claim(t.Context(), next, lease)
		requireHeld(t, rec, err)
		require.NoError(t, s.Release(t.Context(), next))
		// A transaction that rolls back leaves the old row where it was.
		_, err = s.Sweep(t.Context(), 10)
		require.NoError(t, err)
		require.Equal(t, 1, kept(replaced))
		require.Zero(t, kept(next), "a released key leaves no row")

		forgotten := recorded(t, s, newResponse("forgotten"))
		require.NoError(t, s.Forget(t.Context(), forgotten.Key))
		require.Equal(t, 1, kept(forgotten))
		require.Zero(t, query[int](t, f, "SELECT count(*) FROM %s"))
	})
}

func TestReplayAudit(t *testing.T) {
	t.Parallel()
	bothStores(t, func(t *testing.T, f fixture, _ idempotency.Store) {
		var s idempotency.Store = f.store(pgstore.WithReplayAudit())
		if t.Name() == "TestReplayAudit/NewTx" {
			s = f.txStore(pgstore.WithReplayAudit())
		}
		c := recorded(t, s, newResponse("x"))
		replays := func() int { return query[int](t, f, "SELECT replays FROM %s") }
		require.Zero(t, replays())
		for range 3 {
			requireReplay(t, s, c, newResponse("x"))
		}
		require.Equal(t, 3, replays())
		require.True(t, query[bool](t, f, "SELECT last_replayed_at >= completed_at FROM %s"))

		// Another request under the key, and the owner's own repeated claim, are no
		// replays.
		other := again(c)
		other.Fingerprint = idempotency.Fingerprint{9}
		_, err := s.Claim(t.Context(), other, lease)
		require.NoError(t, err)
		_, err = s.Claim(t.Context(), c, lease)
		require.NoError(t, err)
		require.Equal(t, 3, replays())
		requireReturned(t, f.pool)
	})
}
