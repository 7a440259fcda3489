package pgstore

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/retrysafe/idempotency"
)

var (
	_ idempotency.Store     = (*Store)(nil)
	_ idempotency.Inspector = (*Store)(nil)
)

// Store keeps claims and records in a table, a claim for its lease. It holds no
// connection while a handler runs or a twin waits. It is safe for concurrent
// use.
type Store struct {
	table
}

// New returns a Store on pool. The table must be there, see [Store.Migrate]. It
// panics when pool is nil and on options that make no sense.
func New(pool *pgxpool.Pool, opts ...Option) *Store {
	t, c := newTable("New", pool, opts)
	if c.tx != nil {
		panic("pgstore: WithTxOptions is for NewTx; the claims of New are no transactions")
	}
	return &Store{table: t}
}

// Claim implements [idempotency.Store]. A new key and a replay take one round
// trip, and a replay writes nothing unless [WithReplayAudit] is set; an expired
// key takes two. It returns ErrCorrupt when the row cannot be read; any other
// error is the server's or the connection's, and the claim may have been made.
func (s *Store) Claim(ctx context.Context, c idempotency.Claim, lease time.Duration) (*idempotency.Record, error) {
	if err := ctx.Err(); err != nil {
		return nil, wrap("claim", err)
	}
	var rec *idempotency.Record
	vacate := false
	err := retry(ctx, func() (err error) {
		rec, err = s.claim(ctx, c, lease, &vacate)
		return err
	})
	return rec, wrap("claim", err)
}

// claim is one look at the key. It sets vacate when the next one has to make
// room first.
func (s *Store) claim(
	ctx context.Context, c idempotency.Claim, lease time.Duration, vacate *bool,
) (*idempotency.Record, error) {
	b := &pgx.Batch{}
	if *vacate {
		b.Queue(s.sql.vacate, append(keyArgs(c.Key, 1), noToken)...)
	}
	// A statement each for taking and looking, so that the look has a snapshot
	// of its own: the winner's row may be younger than the first one's.
	a := s.queueClaim(b, s.sql.insert, c, lease)
	if err := s.pool.SendBatch(ctx, b).Close(); err != nil {
		return nil, err
	}
	var n int64
	var err error
	switch r := a.row; {
	case a.taken:
		return nil, nil
	case r.isAbsent():
		*vacate = r != nil
		return nil, errUnsettled
	case r.token == escape(c.Token) && r.status == inProgress:
		n, err = s.exec(ctx, s.sql.revive,
			append(keyArgs(c.Key, 3), r.token, micros(lease), both(lease, c.Hold))...)
	case c.Replaces != "" && r.token == escape(c.Replaces) && r.isLapsed():
		n, err = s.exec(ctx, s.sql.replace, append(claimArgs(c, lease, 1), r.token)...)
	default:
		return r.record()
	}
	if err == nil && n == 0 {
		err = errUnsettled
	}
	return nil, err
}

// noToken is no token: escape never leaves a percent sign alone.
const noToken = "%"

// claimArgs are the first arguments of the statements that make a claim, with
// room for more behind them.
func claimArgs(c idempotency.Claim, lease time.Duration, more int) []any {
	return append(keyArgs(c.Key, 4+more),
		c.Fingerprint.String(), escape(c.Token), micros(lease), both(lease, c.Hold))
}

// attempt is what a claim's statements found.
type attempt struct {
	taken   bool   // the row was inserted
	place   string // where, if the statement says so
	row     *row   // who has the key, if it was not taken
	audited bool   // a replay was counted
}

// queueClaim queues the statements that take the key or find who has it. The
// insert is t.sql.insert or t.sql.insertTx.
func (t *table) queueClaim(
	b *pgx.Batch, insert string, c idempotency.Claim, lease time.Duration, more ...any,
) *attempt {
	a := &attempt{}
	args := append(claimArgs(c, lease, len(more)), more...)
	if q := b.Queue(insert, args...); insert == t.sql.insertTx {
		q.Query(a.readTaken)
	} else {
		q.Exec(a.setTaken)
	}
	b.Queue(t.sql.found, args[:3:3]...).Query(a.readRow)
	if t.audit {
		b.Queue(t.sql.audit, args[:5:5]...).Exec(a.setAudited)
	}
	return a
}

func (a *attempt) setTaken(tag pgconn.CommandTag) error {
	a.taken = tag.RowsAffected() == 1
	return nil
}

func (a *attempt) readTaken(rows pgx.Rows) error {
	if rows.Next() {
		if err := rows.Scan(&a.place); err != nil {
			return err
		}
	}
	rows.Close()
	if err := rows.Err(); err != nil {
		return err
	}
	return a.setTaken(rows.CommandTag())
}

func (a *attempt) readRow(rows pgx.Rows) (err error) {
	a.row, err = scan(rows, nil)
	return err
}

func (a *attempt) setAudited(tag pgconn.CommandTag) error {
	a.audited = tag.RowsAffected() > 0
	return nil
}

// Extend implements [idempotency.Store].
func (s *Store) Extend(ctx context.Context, c idempotency.Claim, lease time.Duration) error {
	if err := ctx.Err(); err != nil {
		return wrap("extend", err)
	}
	token := escape(c.Token)
	n, err := s.exec(ctx, s.sql.extend,
		append(keyArgs(c.Key, 3), token, micros(lease), both(lease, c.Hold))...)
	if err != nil || n > 0 {
		return wrap("extend", err)
	}
	r, err := s.look(ctx, c.Key)
	if err != nil {
		return wrap("extend", err)
	}
	if !r.isAbsent() && r.token == token && r.status == completed {
		return nil
	}
	return idempotency.ErrClaimLost
}

// Complete implements [idempotency.Store]. It takes one round trip, or two where
// the claim's row is gone, was completed already, or is another's.
func (s *Store) Complete(
	ctx context.Context, c idempotency.Claim, resp *idempotency.Response, ttl time.Duration,
) error {
	if err := ctx.Err(); err != nil {
		return wrap("complete", err)
	}
	args := appendAnswer(append(keyArgs(c.Key, 2+answerArgs), escape(c.Token)), resp, ttl)
	n, err := s.exec(ctx, s.sql.complete, args...)
	if err != nil || n > 0 {
		return wrap("complete", err)
	}
	lost := false
	err = retry(ctx, func() (err error) {
		lost, err = s.completeLate(ctx, c, args)
		return err
	})
	if err == nil && lost {
		return idempotency.ErrClaimLost
	}
	return wrap("complete", err)
}

// completeLate completes a claim whose row is not there any more, or finds out
// that it was completed already or is lost. args are those of the statement
// complete.
func (s *Store) completeLate(ctx context.Context, c idempotency.Claim, args []any) (lost bool, err error) {
	token := escape(c.Token)
	b := &pgx.Batch{}
	// Another's row whose time is over holds nothing and makes way.
	b.Queue(s.sql.vacate, args[:4:4]...)
	b.Queue(s.sql.upsert, append(args[:len(args):len(args)], c.Fingerprint.String())...)
	var r *row
	b.Queue(s.sql.read, args[:3:3]...).Query(func(rows pgx.Rows) (err error) {
		r, err = scan(rows, nil)
		return err
	})
	if err := s.pool.SendBatch(ctx, b).Close(); err != nil {
		return false, err
	}
	switch {
	case r != nil && r.token == token && r.status == completed:
		return false, nil
	case r.isAbsent(), r.token == token:
		return false, errUnsettled
	}
	return true, nil
}

// Release implements [idempotency.Store].
func (s *Store) Release(ctx context.Context, c idempotency.Claim) error {
	if err := ctx.Err(); err != nil {
		return wrap("release", err)
	}
	_, err := s.exec(ctx, s.sql.release, append(keyArgs(c.Key, 1), escape(c.Token))...)
	return wrap("release", err)
}
