package storetest_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

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
	storetest.Run(t, func(*testing.T) idempotency.Store { return newReferenceTx() }, storetest.WithSynctest())
}

// brokenTx is the correct TxStore with some of its methods replaced.
type brokenTx struct {
	*referenceTx
	claim    func(ctx context.Context, c idempotency.Claim, lease time.Duration) (*idempotency.Record, error)
	extend   extendFunc
	complete completeFunc
	release  releaseFunc
}

func (b *brokenTx) Claim(ctx context.Context, c idempotency.Claim, lease time.Duration) (*idempotency.Record, error) {
	if b.claim != nil {
		return b.claim(ctx, c, lease)
	}
	return b.referenceTx.Claim(ctx, c, lease)
}

func (b *brokenTx) Extend(ctx context.Context, c idempotency.Claim, lease time.Duration) error {
	if b.extend != nil {
		return b.extend(ctx, c, lease)
	}
	return b.referenceTx.Extend(ctx, c, lease)
}

func (b *brokenTx) Complete(
	ctx context.Context, c idempotency.Claim, r *idempotency.Response, ttl time.Duration,
) error {
	if b.complete != nil {
		return b.complete(ctx, c, r, ttl)
	}
	return b.referenceTx.Complete(ctx, c, r, ttl)
}

func (b *brokenTx) Release(ctx context.Context, c idempotency.Claim) error {
	if b.release != nil {
		return b.release(ctx, c)
	}
	return b.referenceTx.Release(ctx, c)
}

type txFault struct {
	name string
	rule int
	make func(b *brokenTx)
}

func txClaimFaults() []txFault {
	record := func(name string, rule int, change func(c idempotency.Claim, rec *idempotency.Record)) txFault {
		return txFault{name, rule, func(b *brokenTx) {
			b.claim = func(ctx context.Context, c idempotency.Claim, lease time.Duration) (*idempotency.Record, error) {
				rec, err := b.referenceTx.Claim(ctx, c, lease)
				if rec != nil && rec.Response == nil {
					change(c, rec)
				}
				return rec, err
			}
		}}
	}
	return []txFault{
		record("the holder is guessed", 3, func(c idempotency.Claim, rec *idempotency.Record) { rec.Token = c.Token }),
		record("the twin's fingerprint is missing", 3, func(_ idempotency.Claim, rec *idempotency.Record) {
			rec.Fingerprint = idempotency.Fingerprint{}
		}),
		record("a holder looks lapsed", 10, func(_ idempotency.Claim, rec *idempotency.Record) { rec.Lapsed = true }),
		{"a losing claim keeps its connection", 3, func(b *brokenTx) {
			b.claim = func(ctx context.Context, c idempotency.Claim, lease time.Duration) (*idempotency.Record, error) {
				rec, err := b.referenceTx.Claim(ctx, c, lease)
				if rec != nil {
					select {
					case b.connections <- struct{}{}:
					default:
					}
				}
				return rec, err
			}
		}},
		{"own claim again is refused", 2, func(b *brokenTx) {
			b.claim = func(ctx context.Context, c idempotency.Claim, lease time.Duration) (*idempotency.Record, error) {
				if b.has(c.Key) {
					c.Token = "somebody else"
				}
				return b.referenceTx.Claim(ctx, c, lease)
			}
		}},
		{"Replaces takes over", 10, func(b *brokenTx) {
			b.claim = func(ctx context.Context, c idempotency.Claim, lease time.Duration) (*idempotency.Record, error) {
				if c.Replaces != "" && ctx.Err() == nil {
					_ = b.referenceTx.Release(ctx, idempotency.Claim{Key: c.Key, Token: c.Replaces})
				}
				return b.referenceTx.Claim(ctx, c, lease)
			}
		}},
		{"claims lapse", 4, func(b *brokenTx) {
			b.claim = func(ctx context.Context, c idempotency.Claim, lease time.Duration) (*idempotency.Record, error) {
				rec, err := b.referenceTx.Claim(ctx, c, lease)
				if rec == nil && err == nil && lease < time.Minute {
					time.AfterFunc(lease, func() { _ = b.referenceTx.Release(context.Background(), c) })
				}
				return rec, err
			}
		}},
	}
}

// has reports whether a transaction holds key.
func (s *referenceTx) has(key idempotency.Key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.open[key]
	return ok
}

func txWriteFaults() []txFault {
	return []txFault{
		{"complete without Bind succeeds", 0, func(b *brokenTx) {
			b.complete = func(ctx context.Context, c idempotency.Claim, r *idempotency.Response, ttl time.Duration) error {
				return b.referenceTx.Complete(b.Bind(ctx, c), c, r, ttl)
			}
		}},
		{"complete without Bind keeps the connection", 0, func(b *brokenTx) {
			b.release = func(ctx context.Context, c idempotency.Claim) error {
				if ctx.Value(txKey{}) == nil {
					return nil
				}
				return b.referenceTx.Release(ctx, c)
			}
		}},
		{"complete without a transaction writes", 7, func(b *brokenTx) {
			b.complete = func(ctx context.Context, c idempotency.Claim, r *idempotency.Response, ttl time.Duration) error {
				if err := b.referenceTx.Complete(ctx, c, r, ttl); !errors.Is(err, errNoTransaction) {
					return err
				}
				return b.records.Complete(ctx, c, r, ttl)
			}
		}},
		{"complete again writes again", 6, func(b *brokenTx) {
			b.complete = func(ctx context.Context, c idempotency.Claim, r *idempotency.Response, ttl time.Duration) error {
				_ = b.records.Forget(ctx, c.Key)
				_ = b.referenceTx.Complete(ctx, c, r, ttl)
				return b.records.Complete(ctx, c, r, ttl)
			}
		}},
		{"complete with a done context commits", 11, func(b *brokenTx) {
			b.complete = func(ctx context.Context, c idempotency.Claim, r *idempotency.Response, ttl time.Duration) error {
				return errors.Join(b.referenceTx.Complete(context.WithoutCancel(ctx), c, r, ttl), ctx.Err())
			}
		}},
		{"release commits", 9, func(b *brokenTx) {
			b.release = func(ctx context.Context, c idempotency.Claim) error {
				if b.has(c.Key) {
					_ = b.records.Complete(ctx, c, &idempotency.Response{Status: 200}, time.Hour)
				}
				return b.referenceTx.Release(ctx, c)
			}
		}},
		{"extend is refused", 8, func(b *brokenTx) {
			b.extend = func(context.Context, idempotency.Claim, time.Duration) error { return idempotency.ErrClaimLost }
		}},
		{"extend creates", 8, func(b *brokenTx) {
			b.extend = func(ctx context.Context, c idempotency.Claim, lease time.Duration) error {
				_, err := b.referenceTx.Claim(ctx, c, lease)
				return err
			}
		}},
	}
}

func TestCatchesTx(t *testing.T) {
	t.Parallel()
	for _, f := range append(txClaimFaults(), txWriteFaults()...) {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			var err error
			synctest.Test(t, func(*testing.T) {
				err = storetest.Check(func() idempotency.Store {
					b := &brokenTx{referenceTx: newReferenceTx()}
					f.make(b)
					return b
				}, storetest.WithRounds(100), storetest.OnlyRule(f.rule))
			})
			found := ruleErrors(t, err)
			require.NotEmpty(t, found, "rule %d has not caught it", f.rule)
			for _, broken := range found {
				t.Log(broken)
			}
		})
	}
}
