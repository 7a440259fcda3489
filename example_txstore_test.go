package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/retrysafe/idempotency"
)

// accountBook is a database in memory, of which a record of an answer and the
// handler's rows become visible together. It is the whole of a TxStore but for
// the end of records.
type accountBook struct {
	mu      sync.Mutex
	rows    []string                               // committed
	records map[idempotency.Key]idempotency.Record // committed
	running map[idempotency.Key]*transaction
}

type transaction struct {
	token string
	bound bool
	rows  []string
}

type transactionKey struct{}

// book is what a handler calls.
func book(ctx context.Context, row string) {
	tx := ctx.Value(transactionKey{}).(*transaction)
	tx.rows = append(tx.rows, row)
}

func (l *accountBook) Claim(_ context.Context, c idempotency.Claim, lease time.Duration) (*idempotency.Record, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if rec, ok := l.records[c.Key]; ok {
		rec.Response = rec.Response.Clone()
		return &rec, nil
	}
	if tx := l.running[c.Key]; tx != nil && tx.token != c.Token {
		// What has not been committed cannot be seen, its fingerprint neither.
		return &idempotency.Record{Fingerprint: c.Fingerprint, ExpiresIn: lease}, nil
	}
	l.running[c.Key] = &transaction{token: c.Token}
	return nil, nil
}

func (l *accountBook) Bind(ctx context.Context, c idempotency.Claim) context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	tx := l.running[c.Key]
	tx.bound = true
	return context.WithValue(ctx, transactionKey{}, tx)
}

func (l *accountBook) Complete(_ context.Context, c idempotency.Claim, resp *idempotency.Response, ttl time.Duration) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	tx := l.running[c.Key]
	if tx == nil || tx.token != c.Token || !tx.bound {
		return errors.New("not committed")
	}
	delete(l.running, c.Key)
	l.rows = append(l.rows, tx.rows...)
	l.records[c.Key] = idempotency.Record{
		Token: c.Token, Fingerprint: c.Fingerprint, Response: resp.Clone(), ExpiresIn: ttl,
	}
	return nil
}

func (l *accountBook) Release(_ context.Context, c idempotency.Claim) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if tx := l.running[c.Key]; tx != nil && tx.token == c.Token {
		delete(l.running, c.Key) // and its rows
	}
	return nil
}

// A transaction has no lease.
func (l *accountBook) Extend(context.Context, idempotency.Claim, time.Duration) error { return nil }

// A handler that fails half-way leaves no row behind, and the retry begins anew.
// Package pgstore does the same in PostgreSQL.
func ExampleTxStore() {
	db := &accountBook{
		records: make(map[idempotency.Key]idempotency.Record),
		running: make(map[idempotency.Key]*transaction),
	}
	var store idempotency.TxStore = db
	fails := true
	h := idempotency.New(store, idempotency.SharedKeys).Handler(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			book(r.Context(), "alice -100")
			if fails {
				fails = false
				http.Error(w, "bob's account is locked", http.StatusInternalServerError) // rolls back
				return
			}
			book(r.Context(), "bob +100")
			w.WriteHeader(http.StatusCreated)
		}))
	for range 3 {
		post(h, "/transfers", "order-1", "")
		fmt.Printf("%q\n", slices.Clone(db.rows))
	}
	// Output:
	// 500 bob's account is locked
	// []
	// 201
	// ["alice -100" "bob +100"]
	// 201 (replayed)
	// ["alice -100" "bob +100"]
}
