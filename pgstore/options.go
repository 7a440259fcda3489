package pgstore

import (
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Option changes a default of [New] or [NewTx].
type Option func(*config)

type config struct {
	table   string
	history string
	audit   bool
	tx      *pgx.TxOptions
}

// WithTable names the table, idempotency_keys by default. The name may have a
// schema before it, with a dot between: "payments.idempotency_keys". Both are
// quoted, so their case counts. Stores with different tables share nothing.
//
// It panics when the name is empty, has more than one dot, or has a part of
// more than 63 bytes, which PostgreSQL would cut.
func WithTable(name string) Option {
	quoteTable("WithTable", name)
	return func(c *config) { c.table = name }
}

// WithHistory names a second table that takes the rows which would otherwise
// be lost: expired records and abandoned claims when they are swept or their
// key is claimed again, and what [idempotency.Inspector]'s Forget removes. A
// key that its own request releases leaves no row. Migrate makes the table: the
// columns of the first one and archived_at. The store only ever appends to it,
// and never reads it, so it may be partitioned, or emptied, at will. WithTable
// says what a name may be.
//
// Claiming an expired key then writes its old row a second time; nothing else
// costs more.
func WithHistory(table string) Option {
	quoteTable("WithHistory", table)
	return func(c *config) { c.history = table }
}

// WithReplayAudit counts the replays of each record in its columns replays and
// last_replayed_at, as proof that an operation was asked for again and not
// carried out again, and when. Counted is every Claim of the same request that
// finds the answer; another request under the same key is not counted.
//
// A replay is then a write, in one transaction with reading the answer: what
// cannot be counted is not replayed. Without it a replay writes nothing.
func WithReplayAudit() Option {
	return func(c *config) { c.audit = true }
}

// WithTxOptions sets the options of the transaction that [NewTx] begins for
// every claim, such as its isolation level; by default it is the server's. At a
// level above read committed a transaction may fail to serialise when it
// commits: the client then gets 503 not_committed, and its retry runs again.
//
// New panics when it is given, because its claims are no transactions, and
// NewTx when the access mode is read only.
func WithTxOptions(o pgx.TxOptions) Option {
	return func(c *config) { c.tx = &o }
}

// table is what Store and TxStore have in common.
type table struct {
	pool  *pgxpool.Pool
	names names
	sql   statements
	audit bool
}

func newTable(constructor string, pool *pgxpool.Pool, opts []Option) (table, config) {
	if pool == nil {
		panic("pgstore: " + constructor + " needs a pool")
	}
	c := config{table: defaultTable}
	for _, o := range opts {
		o(&c)
	}
	n := names{table: quoteTable("WithTable", c.table), index: quoteIndex(c.table, "_free_at_idx")}
	if c.history != "" {
		n.history = quoteTable("WithHistory", c.history)
		n.historyIndex = quoteIndex(c.history, "_key_idx")
		if n.history == n.table {
			panic("pgstore: the table of WithHistory is the table of the records itself; name another one")
		}
	}
	return table{pool: pool, names: n, sql: newStatements(n), audit: c.audit}, c
}
