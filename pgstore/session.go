package pgstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	divisionByZero = "22012"

	// States of a connection.
	idle       = 'I'
	inFailedTx = 'E'
)

var errBusy = errors.New("pgstore: the transaction is busy: rows or a batch are open, or another goroutine uses it")

// session is the transaction of one claim and its connection, from Claim to
// Complete or Release.
type session struct {
	conn  *pgxpool.Conn
	tx    pgx.Tx // nil until begun
	place string // of the claim's row, for this transaction only
	bound atomic.Bool

	// gate is held while a statement of the handler uses the connection, open
	// rows included. It is only ever tried: a second statement meanwhile is
	// refused, as pgx does, and every one once the session has ended.
	gate  sync.Mutex
	ended atomic.Bool
	// tainted is set once something of the handler's can reach the connection
	// without passing the gate; nobody else may then get the connection.
	tainted atomic.Bool
}

// enter admits one statement, which leaves by gate.Unlock.
func (s *session) enter() error {
	got := s.gate.TryLock()
	switch {
	case s.ended.Load():
		if got {
			s.gate.Unlock()
		}
		return pgx.ErrTxClosed
	case !got:
		return errBusy
	}
	return nil
}

// end lets nobody in any more. Where a statement is still inside it takes the
// connection from the pool and closes it, which rolls back, and returns false.
func (s *session) end() bool {
	s.ended.Store(true)
	if s.gate.TryLock() {
		return true
	}
	// Only the socket: pgx's own Close must not run beside a statement.
	_ = s.conn.Hijack().PgConn().Conn().Close()
	return false
}

// record executes sql, which writes the record, and commits, in one round trip,
// and gives the connection back on every way out.
func (s *session) record(ctx context.Context, sql string, args []any, commit string) error {
	if !s.end() {
		return errInUse
	}
	defer s.giveBack(ctx)
	state := s.state()
	if state == inFailedTx {
		return errFailed
	}
	b := &pgx.Batch{}
	b.Queue(sql, args...)
	err := s.sendCommit(ctx, b, commit)
	if err == nil && state == idle {
		// The row was there, so the handler's work stands, and now with its
		// record; but nothing kept the two together.
		err = errEnded
	}
	return err
}

// commit commits, and gives the connection back on every way out.
func (s *session) commit(ctx context.Context, commit string) error {
	if !s.end() {
		return errInUse
	}
	defer s.giveBack(ctx)
	return s.sendCommit(ctx, &pgx.Batch{}, commit)
}

func (s *session) sendCommit(ctx context.Context, b *pgx.Batch, commit string) error {
	if commit == "" {
		commit = "commit"
	}
	var tag string
	b.Queue(commit).Exec(func(t pgconn.CommandTag) error {
		tag = t.String()
		return nil
	})
	err := s.conn.SendBatch(ctx, b).Close()
	var server *pgconn.PgError
	if errors.As(err, &server) && server.Code == divisionByZero {
		return fmt.Errorf("%w: %w", errGone, err)
	}
	if err == nil && tag != "COMMIT" {
		return pgx.ErrTxCommitRollback
	}
	return err
}

// rollback undoes what the transaction wrote and gives the connection back. It
// works on a context that has ended.
func (s *session) rollback(ctx context.Context) {
	if s.end() {
		s.giveBack(ctx)
	}
}

// giveBack rolls back what is still open and returns the connection to its
// pool, which closes it if it is not fit for another use. The caller has ended
// the session.
func (s *session) giveBack(ctx context.Context) {
	if s.tainted.Load() {
		conn := s.conn.Hijack()
		_ = conn.PgConn().Conn().Close()
		return
	}
	defer s.conn.Release()
	if s.conn.Conn().IsClosed() || s.state() == idle {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackTimeout)
	defer cancel()
	// An error leaves the connection in a transaction, and so it is closed.
	_, _ = s.conn.Exec(ctx, "rollback")
}

func (s *session) state() byte { return s.conn.Conn().PgConn().TxStatus() }
