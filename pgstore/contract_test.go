package pgstore_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/pgstore"
	"github.com/retrysafe/idempotency/storetest"
)

// contractConns is fewer than the goroutines of a case, so that they queue for
// connections as well.
const contractConns = 6

type contractTest struct {
	name      string
	store     func(fixture, ...pgstore.Option) idempotency.Store
	mode      pgx.QueryExecMode
	isolation string
	options   bool
	realClock bool
}

// The contract holds in pgx's default mode and in those for a pooler, at any
// isolation level, and with every option: they change how the store works and
// what it keeps.
func TestContract(t *testing.T) {
	t.Parallel()
	newStore := func(f fixture, opts ...pgstore.Option) idempotency.Store { return f.store(opts...) }
	newTx := func(f fixture, opts ...pgstore.Option) idempotency.Store { return f.txStore(opts...) }
	for _, test := range []contractTest{
		{name: "New", store: newStore, mode: pgx.QueryExecModeCacheStatement, realClock: true},
		{name: "NewTx", store: newTx, mode: pgx.QueryExecModeCacheStatement, realClock: true},
		{name: "New/strict", store: newStore, mode: pgx.QueryExecModeExec, isolation: "serializable", options: true},
		{name: "NewTx/strict", store: newTx, mode: pgx.QueryExecModeExec, isolation: "serializable", options: true},
		{name: "New/simple", store: newStore, mode: pgx.QueryExecModeSimpleProtocol, options: true},
		{name: "NewTx/describe", store: newTx, mode: pgx.QueryExecModeCacheDescribe, isolation: "repeatable read"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t)
		})
	}
}

func (test contractTest) run(t *testing.T) {
	pool := newPool(t, contractConns, func(c *pgxpool.Config) {
		c.ConnConfig.DefaultQueryExecMode = test.mode
		c.ConnConfig.RuntimeParams["synchronous_commit"] = "off" // these rows may be lost
		if test.isolation != "" {
			c.ConnConfig.RuntimeParams["default_transaction_isolation"] = test.isolation
		}
	})
	opts := []pgstore.Option{}
	if test.options {
		opts = append(opts, pgstore.WithReplayAudit(), pgstore.WithHistory(newName(t)))
	}
	if test.realClock {
		storetest.Run(t, func(t *testing.T) idempotency.Store {
			return test.store(newFixture(t, pool), opts...)
		}, storetest.WithRounds(100))
		return
	}
	// The server's clock cannot be set, so the ends of the rows move. The cases
	// then run one at a time, and share the table.
	f := newFixture(t, pool)
	require.NoError(t, f.store(opts...).Migrate(t.Context()))
	storetest.Run(t, func(t *testing.T) idempotency.Store {
		f.exec(t, "DELETE FROM %s")
		return test.store(f, opts...)
	}, storetest.WithRounds(30), storetest.WithSleep(func(d time.Duration) {
		f.exec(t, `UPDATE %s SET expires_at = expires_at - $1::bigint * interval '1 microsecond',
			free_at = free_at - $1::bigint * interval '1 microsecond'`, d.Microseconds())
	}))
}
