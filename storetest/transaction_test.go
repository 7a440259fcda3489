package storetest_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/storetest"
)

// referenceTx is a correct TxStore on a database with a few connections. Its
// records are a reference's.
type referenceTx struct {
	records     *reference
	connections chan struct{}

	mu   sync.Mutex
	open map[idempotency.Key]string // tokens of open transactions
}

var (
	_ idempotency.TxStore   = (*referenceTx)(nil)
	_ idempotency.Inspector = (*referenceTx)(nil)
)

type txKey struct{}

func newReferenceTx() *referenceTx {
	return &referenceTx{
		records: newReference(), connections: make(chan struct{}, 4), open: map[idempotency.Key]string{},
	}
}

var errNoTransaction = errors.New("no transaction")

func (s *referenceTx) Claim(ctx context.Context, c idempotency.Claim, _ time.Duration) (*idempotency.Record, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	mine := s.open[c.Key] == c.Token
	s.mu.Unlock()
	if mine {
		return nil, nil
	}
	select {
	case s.connections <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	rec, err := s.begin(ctx, c)
	if rec != nil || err != nil {
		<-s.connections
	}
	return rec, err
}

func (s *referenceTx) begin(ctx context.Context, c idempotency.Claim) (*idempotency.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.open[c.Key]; ok {
		return &idempotency.Record{Fingerprint: c.Fingerprint, ExpiresIn: time.Second}, nil
	}
	rec, err := s.records.Lookup(ctx, c.Key)
	if rec == nil && err == nil {
		s.open[c.Key] = c.Token
	}
	return rec, err
}

func (s *referenceTx) Bind(ctx context.Context, c idempotency.Claim) context.Context {
	return context.WithValue(ctx, txKey{}, c.Token)
}

func (s *referenceTx) Extend(context.Context, idempotency.Claim, time.Duration) error { return nil }

func (s *referenceTx) Complete(
	ctx context.Context, c idempotency.Claim, r *idempotency.Response, ttl time.Duration,
) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.end(c) || ctx.Value(txKey{}) != c.Token {
		return errNoTransaction
	}
	return s.records.Complete(ctx, c, r, ttl)
}

func (s *referenceTx) Release(_ context.Context, c idempotency.Claim) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end(c)
	return nil
}

// end closes the transaction of c, and reports whether there was one.
func (s *referenceTx) end(c idempotency.Claim) bool {
	if token, ok := s.open[c.Key]; !ok || token != c.Token {
		return false
	}
	delete(s.open, c.Key)
	<-s.connections
	return true
}

func (s *referenceTx) Lookup(ctx context.Context, key idempotency.Key) (*idempotency.Record, error) {
	return s.records.Lookup(ctx, key)
}

func (s *referenceTx) Forget(ctx context.Context, key idempotency.Key) error {
	return s.records.Forget(ctx, key)
}

func TestRunTx(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(*testing.T) idempotency.Store { return newReferenceTx() },
		storetest.WithSynctest(), storetest.WithRounds(100))
}
