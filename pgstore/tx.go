package pgstore

import (
	"context"
	"errors"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

type contextKey struct{}

// Tx returns the transaction of the request whose handler runs under ctx, and
// nil outside of one: without [NewTx], without a key, outside the handler.
//
// What the handler writes through it becomes visible together with the record of
// its answer, or not at all. It is a pgx.Tx like any other, with these
// differences:
//
//   - Commit and Rollback return an error and do nothing: the middleware commits
//     after the handler has returned. To undo everything answer with a 5xx, call
//     [idempotency.Execution].Discard, or panic; to undo a part use Begin, which
//     sets a savepoint whose Commit and Rollback work as usual.
//   - After a statement has failed the transaction is broken, unless the
//     statement ran inside a savepoint. A handler that goes on regardless has
//     its answer withheld: the client gets 503 not_committed.
//   - One statement at a time: a second one beside open rows, or from another
//     goroutine, is refused with an error.
//   - Once the handler has returned every method returns pgx.ErrTxClosed, and
//     Conn returns nil.
//
// Conn is for looking at the connection. Statements sent on it directly, and
// the words COMMIT and ROLLBACK sent as text, go round all this; a transaction
// that was ended so is answered with 503 not_committed.
func Tx(ctx context.Context) pgx.Tx {
	if tx, ok := ctx.Value(contextKey{}).(*handlerTx); ok {
		return tx
	}
	return nil
}

var errOwned = errors.New("pgstore: the transaction belongs to the request: " +
	"the middleware commits it with the record; to undo it answer with a 5xx or discard the answer")

// handlerTx is the transaction, or a savepoint in it, as the handler sees it.
type handlerTx struct {
	*session
	inner pgx.Tx
	root  bool
}

var _ pgx.Tx = (*handlerTx)(nil)

func (t *handlerTx) Begin(ctx context.Context) (pgx.Tx, error) {
	if err := t.enter(); err != nil {
		return nil, err
	}
	defer t.gate.Unlock()
	inner, err := t.inner.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return &handlerTx{session: t.session, inner: inner}, nil
}

func (t *handlerTx) Commit(ctx context.Context) error {
	return t.finish(ctx, t.inner.Commit)
}

func (t *handlerTx) Rollback(ctx context.Context) error {
	return t.finish(ctx, t.inner.Rollback)
}

func (t *handlerTx) finish(ctx context.Context, f func(context.Context) error) error {
	if t.root && !t.ended.Load() {
		return errOwned
	}
	if err := t.enter(); err != nil {
		return err
	}
	defer t.gate.Unlock()
	return f(ctx)
}

func (t *handlerTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if err := t.enter(); err != nil {
		return pgconn.CommandTag{}, err
	}
	defer t.gate.Unlock()
	return t.inner.Exec(ctx, sql, args...)
}

func (t *handlerTx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if err := t.enter(); err != nil {
		return nil, err
	}
	defer t.gate.Unlock()
	return t.inner.Prepare(ctx, name, sql)
}

func (t *handlerTx) CopyFrom(
	ctx context.Context, table pgx.Identifier, columns []string, src pgx.CopyFromSource,
) (int64, error) {
	if err := t.enter(); err != nil {
		return 0, err
	}
	defer t.gate.Unlock()
	return t.inner.CopyFrom(ctx, table, columns, src)
}

func (t *handlerTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := t.enter(); err != nil {
		return pgx.FailedBatchResults(&pgx.Batch{}, err).Query()
	}
	inner, err := t.inner.Query(ctx, sql, args...)
	r := &rows{Rows: inner, done: sync.OnceFunc(t.gate.Unlock)}
	if err != nil {
		r.done()
	}
	return r, err
}

func (t *handlerTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if err := t.enter(); err != nil {
		return pgx.FailedBatchResults(&pgx.Batch{}, err).QueryRow()
	}
	return &singleRow{inner: t.inner.QueryRow(ctx, sql, args...), done: sync.OnceFunc(t.gate.Unlock)}
}

func (t *handlerTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if err := t.enter(); err != nil {
		return pgx.FailedBatchResults(b, err)
	}
	return &batchResults{BatchResults: t.inner.SendBatch(ctx, b), done: sync.OnceFunc(t.gate.Unlock)}
}

// LargeObjects works on the connection directly, so that is not used again.
func (t *handlerTx) LargeObjects() pgx.LargeObjects {
	t.tainted.Store(true)
	return t.inner.LargeObjects()
}

func (t *handlerTx) Conn() *pgx.Conn {
	if t.ended.Load() {
		return nil
	}
	return t.inner.Conn()
}

// rows leaves the gate when the rows are closed, by whatever way.
type rows struct {
	pgx.Rows
	done func()
}

func (r *rows) Close() {
	r.Rows.Close()
	r.done()
}

func (r *rows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	r.done()
	return false
}

func (r *rows) Scan(dest ...any) error {
	err := r.Rows.Scan(dest...)
	if err != nil {
		r.done()
	}
	return err
}

func (r *rows) Values() ([]any, error) {
	values, err := r.Rows.Values()
	if err != nil {
		r.done()
	}
	return values, err
}

type singleRow struct {
	inner pgx.Row
	done  func()
}

func (r *singleRow) Scan(dest ...any) error {
	defer r.done()
	return r.inner.Scan(dest...)
}

type batchResults struct {
	pgx.BatchResults
	done func()
}

func (r *batchResults) Close() error {
	defer r.done()
	return r.BatchResults.Close()
}
