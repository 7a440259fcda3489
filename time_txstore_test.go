package idempotency_test

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
)

// bubbleDB is a database in memory, with transactions, and a TxStore on it.
type bubbleDB struct {
	mu          sync.Mutex
	rows        []string // those committed
	records     map[idempotency.Key]*idempotency.Record
	open        map[string]*bubbleTx // by token
	connections int                  // in use
	extended    int
}

var _ idempotency.TxStore = (*bubbleDB)(nil)

// bubbleTx is a transaction that holds a key.
type bubbleTx struct {
	db    *bubbleDB
	key   idempotency.Key
	bound bool
	over  bool
	rows  []string
}

type bubbleTxKey struct{}

// insert writes a row within the transaction of ctx.
func insert(ctx context.Context, row string) error {
	tx, _ := ctx.Value(bubbleTxKey{}).(*bubbleTx)
	if tx == nil {
		return errors.New("no transaction")
	}
	tx.db.mu.Lock()
	defer tx.db.mu.Unlock()
	if tx.over {
		return errors.New("the transaction is over")
	}
	tx.rows = append(tx.rows, row)
	return nil
}

func (db *bubbleDB) Claim(_ context.Context, c idempotency.Claim, lease time.Duration) (*idempotency.Record, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.open == nil {
		db.open, db.records = make(map[string]*bubbleTx), make(map[idempotency.Key]*idempotency.Record)
	}
	if r := db.records[c.Key]; r != nil {
		held := *r
		held.Response = r.Response.Clone()
		return &held, nil
	}
	for tx := range maps.Values(db.open) {
		if tx.key == c.Key && db.open[c.Token] != tx {
			return &idempotency.Record{Fingerprint: c.Fingerprint, ExpiresIn: lease}, nil
		}
	}
	if db.open[c.Token] == nil {
		db.open[c.Token] = &bubbleTx{db: db, key: c.Key}
		db.connections++
	}
	return nil, nil
}

func (db *bubbleDB) Bind(ctx context.Context, c idempotency.Claim) context.Context {
	db.mu.Lock()
	defer db.mu.Unlock()
	tx := db.open[c.Token]
	tx.bound = true
	return context.WithValue(ctx, bubbleTxKey{}, tx)
}

func (db *bubbleDB) Extend(context.Context, idempotency.Claim, time.Duration) error {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.extended++
	return nil
}

func (db *bubbleDB) Complete(_ context.Context, c idempotency.Claim, resp *idempotency.Response, ttl time.Duration) error {
	db.mu.Lock()
	defer db.mu.Unlock()
	tx := db.open[c.Token]
	if tx == nil {
		if r := db.records[c.Key]; r != nil && r.Token == c.Token {
			return nil
		}
		return errors.New("no such transaction")
	}
	db.end(c.Token)
	if !tx.bound {
		return errors.New("the transaction was never bound")
	}
	db.rows = append(db.rows, tx.rows...)
	db.records[c.Key] = &idempotency.Record{Token: c.Token, Fingerprint: c.Fingerprint, Response: resp.Clone(), ExpiresIn: ttl}
	return nil
}

func (db *bubbleDB) Release(_ context.Context, c idempotency.Claim) error {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.open[c.Token] != nil {
		db.end(c.Token)
	}
	return nil
}

// end ends a transaction and gives its connection back. The caller holds the
// mutex.
func (db *bubbleDB) end(token string) {
	db.open[token].over = true
	delete(db.open, token)
	db.connections--
}

func (db *bubbleDB) inUse() int {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.connections
}

// bubbleTxFake is the database as one process reaches it.
type bubbleTxFake struct {
	*bubbleStore
	db *bubbleDB
}

func (s bubbleTxFake) Bind(ctx context.Context, c idempotency.Claim) context.Context {
	return s.db.Bind(ctx, c)
}

// transactional returns a process on a database. Its handler writes a row.
func (b *bubbleWorld) transactional(db *bubbleDB, opts ...idempotency.Option) *bubbleProcess {
	fake := &bubbleStore{inner: db, world: b}
	return b.processOn(fake, bubbleTxFake{fake, db}, opts...)
}

// inserts makes the handler write a row for every run and then do work.
func (b *bubbleWorld) inserts(work func(w http.ResponseWriter, r *http.Request, run int)) {
	b.work = func(w http.ResponseWriter, r *http.Request, run int) {
		require.NoError(b, insert(r.Context(), "row"))
		work(w, r, run)
	}
}

// holds checks what is in the database, and that every connection is back.
func (b *bubbleWorld) holds(db *bubbleDB, rows, records int) {
	b.Helper()
	db.mu.Lock()
	defer db.mu.Unlock()
	require.Equal(b, slices.Repeat([]string{"row"}, rows), append([]string{}, db.rows...))
	require.Len(b, db.records, records)
	require.Zero(b, db.connections, "connections in use")
	require.Empty(b, db.open)
}
