package storetest_test

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/retrysafe/idempotency"
)

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

func txCompleteFaults() []txFault {
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
		{"complete without a transaction says nothing", 7, func(b *brokenTx) {
			b.complete = func(ctx context.Context, c idempotency.Claim, r *idempotency.Response, ttl time.Duration) error {
				if err := b.referenceTx.Complete(ctx, c, r, ttl); !errors.Is(err, errNoTransaction) {
					return err
				}
				return nil
			}
		}},
		{"complete keeps the connection", 0, func(b *brokenTx) {
			b.complete = func(ctx context.Context, c idempotency.Claim, r *idempotency.Response, ttl time.Duration) error {
				err := b.referenceTx.Complete(ctx, c, r, ttl)
				if err == nil {
					select {
					case b.connections <- struct{}{}:
					default:
					}
				}
				return err
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
	}
}

func txOtherFaults() []txFault {
	return []txFault{
		{"release commits", 9, func(b *brokenTx) {
			b.release = func(ctx context.Context, c idempotency.Claim) error {
				if b.has(c.Key) {
					_ = b.records.Complete(ctx, c, &idempotency.Response{Status: 200}, time.Hour)
				}
				return b.referenceTx.Release(ctx, c)
			}
		}},
		{"release with a done context commits", 11, func(b *brokenTx) {
			b.release = func(ctx context.Context, c idempotency.Claim) error {
				if ctx.Err() != nil {
					_ = b.records.Complete(context.WithoutCancel(ctx), c, &idempotency.Response{Status: 200}, time.Hour)
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

// txFaults returns all of them as faults.
func txFaults() (all []fault) {
	for _, f := range slices.Concat(txClaimFaults(), txCompleteFaults(), txOtherFaults()) {
		all = append(all, fault{name: f.name, rule: f.rule, makeTx: f.make})
	}
	return all
}
