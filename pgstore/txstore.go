package pgstore

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/retrysafe/idempotency"
)

var (
	_ idempotency.TxStore   = (*TxStore)(nil)
	_ idempotency.Inspector = (*TxStore)(nil)
)

const (
	// acquireTimeout bounds the wait for a connection where the caller's
	// context has no deadline.
	acquireTimeout = 5 * time.Second
	// giveBackTimeout bounds a rollback; a connection that needs longer is
	// closed, which rolls back as well.
	giveBackTimeout = 2 * time.Second
)

var (
	errUnbound = errors.New("the handler did not run in the claim's transaction (is Bind hidden by a wrapper?)")
	errUnknown = errors.New("no transaction is open for this claim")
	errInUse   = errors.New("the handler left rows or a batch open, or still uses the transaction")
	errFailed  = errors.New("a statement of the handler failed and it went on regardless")
	errGone    = errors.New("the claim's row is not in the transaction any more")
	errEnded   = errors.New("the handler ended the transaction itself")
)

// TxStore is an [idempotency.TxStore]: each claim is a transaction in which the
// handler writes its own rows, see [Tx], so that these and the record become
// visible together or not at all. It holds one connection of the pool for each
// running handler. It is safe for concurrent use.
//
// Where a key is claimed but not committed, Claim returns at once a Record
// without a token, with the caller's own fingerprint. It tells twins by an
// advisory lock, whose 64-bit number comes from the table and a hash of the
// key; should two keys ever share a number, one of them reads "in progress"
// while the other one runs, and nothing worse.
type TxStore struct {
	table
	options pgx.TxOptions

	mu   sync.Mutex
	open map[claimID]*session
}

type claimID struct {
	key   idempotency.Key
	token string
}

// NewTx returns a TxStore on pool. The table must be there, see
// [TxStore.Migrate]. It panics when pool is nil and on options that make no
// sense.
func NewTx(pool *pgxpool.Pool, opts ...Option) *TxStore {
	t, c := newTable("NewTx", pool, opts)
	s := &TxStore{table: t, open: make(map[claimID]*session)}
	if c.tx != nil {
		s.options = *c.tx
	}
	if s.options.AccessMode == pgx.ReadOnly {
		panic("pgstore: WithTxOptions with pgx.ReadOnly: a claim writes its record; leave the access mode out")
	}
	return s
}

// Claim implements [idempotency.TxStore]: it begins a transaction and takes the
// key in it, in one round trip. The transaction outlives ctx. When it returns a
// Record or an error it has rolled back and given its connection back.
//
// It waits for a connection of the pool until ctx ends, or for 5 seconds if ctx
// has no deadline. It does not wait for a twin, with one exception: a claim of
// [New] on the same key and table in the middle of its own statement.
func (s *TxStore) Claim(ctx context.Context, c idempotency.Claim, lease time.Duration) (*idempotency.Record, error) {
	if err := ctx.Err(); err != nil {
		return nil, wrap("claim", err)
	}
	if s.find(c) != nil {
		return nil, nil
	}
	var rec *idempotency.Record
	err := retry(ctx, func() (err error) {
		rec, err = s.claim(ctx, c, lease)
		return err
	})
	return rec, wrap("claim", err)
}

func (s *TxStore) claim(ctx context.Context, c idempotency.Claim, lease time.Duration) (*idempotency.Record, error) {
	conn, err := s.acquire(ctx)
	if err != nil {
		return nil, err
	}
	ses := &session{conn: conn}
	b := &pgx.Batch{}
	b.BeginTx(s.options)
	a, err := s.try(ctx, ses, b, c, lease)
	if err == nil && !a.taken && a.row != nil && a.row.isAbsent() {
		b = &pgx.Batch{}
		b.Queue(s.sql.vacateTx, append(keyArgs(c.Key, 1), s.lock(c.Key))...)
		a, err = s.try(ctx, ses, b, c, lease)
	}
	switch {
	case err != nil:
		ses.rollback(ctx)
		return nil, err
	case a.taken:
		ses.place = a.place
		s.keep(c, ses)
		return nil, nil
	case a.audited:
		// The count of the replay is all that this transaction has written.
		if err := ses.commit(ctx, s.options.CommitQuery); err != nil {
			return nil, err
		}
	default:
		ses.rollback(ctx)
	}
	if a.row.isAbsent() {
		return &idempotency.Record{Fingerprint: c.Fingerprint, ExpiresIn: max(lease, time.Microsecond)}, nil
	}
	return a.row.record()
}

// try sends b and the claim behind it.
func (s *TxStore) try(
	ctx context.Context, ses *session, b *pgx.Batch, c idempotency.Claim, lease time.Duration,
) (*attempt, error) {
	a := s.queueClaim(b, s.sql.insertTx, c, lease, s.lock(c.Key))
	results := ses.conn.SendBatch(ctx, b)
	if tx := results.Tx(); tx != nil {
		ses.tx = tx
	}
	return a, results.Close()
}

func (s *TxStore) acquire(ctx context.Context) (*pgxpool.Conn, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, acquireTimeout)
		defer cancel()
	}
	return s.pool.Acquire(ctx)
}

// lock is the number of the key's advisory lock; the statement adds the table,
// by its oid, so that its two names are one table.
func (s *TxStore) lock(k idempotency.Key) int64 {
	value, endpoint, user := columnsOf(k)
	// Encoded parts are printable, so NUL keeps them apart.
	return lockNumber("claim\x00" + value + "\x00" + endpoint + "\x00" + user)
}

// Bind implements [idempotency.TxStore]: [Tx] finds the transaction of c in the
// context it returns. For a claim that this store does not hold it returns ctx
// as it is.
func (s *TxStore) Bind(ctx context.Context, c idempotency.Claim) context.Context {
	ses := s.find(c)
	if ses == nil {
		return ctx
	}
	ses.bound.Store(true)
	return context.WithValue(ctx, contextKey{}, &handlerTx{session: ses, inner: ses.tx, root: true})
}

// Extend implements [idempotency.TxStore]: a transaction has no lease, so it
// does nothing and returns nil.
func (s *TxStore) Extend(context.Context, idempotency.Claim, time.Duration) error { return nil }

// Complete implements [idempotency.TxStore]: it writes the record and commits,
// in one round trip, and gives the connection back. On an error the record and
// the handler's rows were not committed, or it is not known whether they were;
// the same key, claimed again, finds the truth. It is an error, and a rollback,
// when the claim was never bound, when a statement of the handler failed and it
// went on regardless, and when the handler left rows open or ended the
// transaction itself.
func (s *TxStore) Complete(
	ctx context.Context, c idempotency.Claim, resp *idempotency.Response, ttl time.Duration,
) error {
	ses := s.take(c)
	if ses == nil {
		return s.completedBefore(ctx, c)
	}
	err := ctx.Err()
	if err == nil && !ses.bound.Load() {
		err = errUnbound
	}
	if err != nil {
		ses.rollback(ctx)
		return wrap("complete", err)
	}
	value, endpoint, _ := columnsOf(c.Key)
	args := append(make([]any, 0, 4+answerArgs), ses.place, value, endpoint, escape(c.Token))
	args = appendAnswer(args, resp, ttl)
	return wrap("complete", ses.record(ctx, s.sql.record, args, s.options.CommitQuery))
}

// completedBefore answers a Complete that comes without a transaction, such as
// the second one after a reply that was lost.
func (s *TxStore) completedBefore(ctx context.Context, c idempotency.Claim) error {
	if err := ctx.Err(); err != nil {
		return wrap("complete", err)
	}
	r, err := s.look(ctx, c.Key)
	switch {
	case err != nil:
		return wrap("complete", err)
	case r.isAbsent() || (r.token == escape(c.Token) && r.status != completed):
		return wrap("complete", errUnknown)
	case r.token != escape(c.Token):
		return idempotency.ErrClaimLost
	}
	return nil
}

// Release implements [idempotency.TxStore]: it rolls back, which undoes the
// handler's rows, and gives the connection back, even when ctx has ended. A
// claim that this store does not hold is no error.
func (s *TxStore) Release(ctx context.Context, c idempotency.Claim) error {
	if ses := s.take(c); ses != nil {
		ses.rollback(ctx)
	}
	return nil
}

func (s *TxStore) find(c idempotency.Claim) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open[claimID{c.Key, c.Token}]
}

func (s *TxStore) keep(c idempotency.Claim, ses *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[claimID{c.Key, c.Token}] = ses
}

// take hands the session over to the one caller that ends it.
func (s *TxStore) take(c idempotency.Claim) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := claimID{c.Key, c.Token}
	ses := s.open[id]
	delete(s.open, id)
	return ses
}
