package redisstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/internal/wire"
)

// Store keeps claims and records in Redis or Valkey. It is an
// [idempotency.Store], an [idempotency.Waiter] and an [idempotency.Inspector],
// and safe for concurrent use. It needs no closing: what it runs in the
// background ends by itself soon after the last Wait.
type Store struct {
	client  redis.UniversalClient
	prefix  string
	channel string // of hints to waiters; "" where there are none
	log     *slog.Logger
	waits   watchers
}

var (
	_ idempotency.Store     = (*Store)(nil)
	_ idempotency.Waiter    = (*Store)(nil)
	_ idempotency.Inspector = (*Store)(nil)
)

// Option changes how a Store works.
type Option func(*Store)

// WithPrefix sets what every key of the Store begins with, "idempotency:" by
// default. Stores with different prefixes share nothing, so a prefix keeps two
// applications on one server apart. A prefix with a brace in it would choose
// the slot of a cluster and makes New panic.
func WithPrefix(prefix string) Option {
	return func(s *Store) { s.prefix = prefix }
}

// WithLogger sets where [Store.Check] reports what it warns about,
// [slog.Default] by default. A nil logger makes New panic.
func WithLogger(l *slog.Logger) Option {
	return func(s *Store) { s.log = l }
}

// New returns a Store that keeps its keys where client leads: one server, the
// master that Sentinels name, or a Cluster. The client stays the caller's, to
// share, to observe with hooks and to close; any retry and time-out settings of
// it will do. See [Store.Check] for what to ask of the server at start-up.
//
// New panics on a nil client, a nil logger and a prefix with a brace in it.
func New(client redis.UniversalClient, opts ...Option) *Store {
	s := &Store{client: client, prefix: "idempotency:", log: slog.Default()}
	for _, opt := range opts {
		opt(s)
	}
	switch {
	case client == nil:
		panic("redisstore: the client is nil: pass one made by redis.NewClient, NewFailoverClient or NewClusterClient")
	case s.log == nil:
		panic("redisstore: the logger is nil: leave WithLogger out for slog.Default()")
	case strings.ContainsAny(s.prefix, "{}"):
		panic("redisstore: the prefix has a brace in it, which would choose the slot of a cluster: leave braces out")
	}
	// A cluster sends every message to every node, and a Ring publishes on
	// another server than it subscribes to: waiters poll there.
	if _, ok := client.(*redis.Client); ok {
		s.channel = s.prefix + "hints"
	}
	s.waits.init(s)
	return s
}

// maxLooks bounds the loop of Claim. Between two commands of one look the key
// can vanish, when a lease lapses or a claim is released just then. It takes a
// few microseconds to look again, so this many in a row say that something else
// is wrong.
const maxLooks = 16

// Claim takes c.Key for c.Token, see [idempotency.Store]. It takes one round
// trip for a new key and for one that somebody else holds, two for a claim that
// is its own already or that it takes over. A server that is out of memory
// gives ErrStoreFull for a new key, and still answers for one that it has.
func (s *Store) Claim(ctx context.Context, c idempotency.Claim, lease time.Duration) (*idempotency.Record, error) {
	if err := ctx.Err(); err != nil {
		return nil, failed("claim", err)
	}
	a := attempt{
		claim: c,
		key:   s.redisKey(c.Key),
		lease: millis(lease),
		hold:  holdMillis(c.Hold),
	}
	a.value = wire.EncodeClaim(c.Token, c.Fingerprint, a.hold)
	for range maxLooks {
		rec, settled, err := s.tryClaim(ctx, &a)
		if err != nil {
			return nil, failed("claim", err)
		}
		if settled {
			return rec, nil
		}
		if err := ctx.Err(); err != nil {
			return nil, failed("claim", err)
		}
	}
	return nil, failed("claim", errUnsettled)
}

var errUnsettled = errors.New("the key came and went at every look")

// attempt is what one Claim sends.
type attempt struct {
	claim       idempotency.Claim
	key         string
	value       []byte
	lease, hold int64
}

// tryClaim looks once. It returns false when the key has changed meanwhile.
func (s *Store) tryClaim(ctx context.Context, a *attempt) (rec *idempotency.Record, settled bool, err error) {
	got, err := s.setOrGet(ctx, a)
	switch {
	case err != nil:
		return nil, false, err
	case got.set:
		return nil, true, nil
	case !got.found:
		return nil, false, nil
	}
	v, err := wire.Decode(got.value)
	if err != nil {
		return nil, false, err
	}
	rec = record(v, got.left)
	ours := v.Response == nil && v.Token == a.claim.Token
	theirs := rec.Lapsed && a.claim.Replaces != "" && v.Token == a.claim.Replaces
	switch {
	case ours, theirs:
		// The reply to an earlier SET was lost, or the claim is to live again,
		// or the lapsed one is to be taken over.
		held, err := s.revive(ctx, a)
		return nil, held, err
	case rec.Lapsed:
		// The time and the value are two commands, and may be of two claims.
		// What may start a reconciler is worth a second look, in one instant.
		rec, err = s.look(ctx, a.key)
		return rec, rec != nil, err
	}
	return rec, true, nil
}

// revive makes the own claim live again or takes over the one to be replaced.
// It returns false when there is neither any more.
func (s *Store) revive(ctx context.Context, a *attempt) (bool, error) {
	own, replaced := wire.ClaimPrefix(a.claim.Token), ""
	end := wire.ClaimLen(a.claim.Token)
	if a.claim.Replaces != "" {
		replaced = wire.ClaimPrefix(a.claim.Replaces)
		end = max(end, wire.ClaimLen(a.claim.Replaces))
	}
	n, err := s.run(ctx, claimScript, a.key,
		own, a.value, a.lease, wire.FormatHold(a.hold), end, replaced)
	return n == 1, err
}

// record is what the Store shows of a value whose key lives for another left
// milliseconds.
func record(v wire.Value, left int64) *idempotency.Record {
	rec := &idempotency.Record{Token: v.Token, Fingerprint: v.Fingerprint, Response: v.Response}
	switch {
	case left < 0:
		rec.ExpiresIn = forever
	case v.Response == nil && left > v.Hold:
		rec.ExpiresIn = duration(left - v.Hold)
	case v.Response == nil:
		rec.Lapsed = v.Hold > 0
		rec.ExpiresIn = duration(left)
	default:
		rec.ExpiresIn = duration(left)
	}
	return rec
}

// Extend gives the claim a fresh lease and its hold, see [idempotency.Store]. A
// server that is out of memory refuses it only when the hold changes.
func (s *Store) Extend(ctx context.Context, c idempotency.Claim, lease time.Duration) error {
	hold := holdMillis(c.Hold)
	n, err := s.run(ctx, extendScript, s.redisKey(c.Key),
		wire.ClaimPrefix(c.Token), wire.DonePrefix(c.Token), wire.ClaimLen(c.Token),
		wire.FormatHold(hold), millis(lease)+hold)
	if err == nil && n == 0 {
		err = idempotency.ErrClaimLost
	}
	return failed("extend", err)
}

// Release frees the key if the token holds it and has not completed it, see
// [idempotency.Store].
func (s *Store) Release(ctx context.Context, c idempotency.Claim) error {
	_, err := s.run(ctx, releaseScript, s.redisKey(c.Key), wire.ClaimPrefix(c.Token), s.channel)
	return failed("release", err)
}

// Lookup returns what is stored for key, nil if nothing is, see
// [idempotency.Inspector]. In a cluster it asks the master.
func (s *Store) Lookup(ctx context.Context, key idempotency.Key) (*idempotency.Record, error) {
	if err := ctx.Err(); err != nil {
		return nil, failed("lookup", err)
	}
	rec, err := s.look(ctx, s.redisKey(key))
	return rec, failed("lookup", err)
}

// Forget removes whatever is stored for key, see [idempotency.Inspector].
func (s *Store) Forget(ctx context.Context, key idempotency.Key) error {
	_, err := s.run(ctx, forgetScript, s.redisKey(key), s.channel)
	return failed("forget", err)
}

func failed(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("redisstore: %s: %w", what, err)
}
