package redisstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/internal/wire"
)

const (
	// inlineLimit is the length above which a value does not pass through Lua.
	// At 1 KiB the script costs the server as much as the way round it, at
	// 16 KiB eight times as much, at 1 MiB a hundred times.
	inlineLimit = 4 << 10

	// tempTTL is how long a large value waits to be made the record, which
	// follows in the same round trip. What a crash leaves goes after that.
	tempTTL = time.Minute
)

// Complete makes resp the record of the key, see [idempotency.Store].
func (s *Store) Complete(ctx context.Context, c idempotency.Claim, resp *idempotency.Response, ttl time.Duration) error {
	if err := ctx.Err(); err != nil {
		return failed("complete", err)
	}
	if resp == nil {
		return failed("complete", errors.New("the response is nil"))
	}
	value, err := wire.EncodeRecord(c.Token, c.Fingerprint, resp)
	if err != nil {
		return failed("complete", err)
	}
	key := s.redisKey(c.Key)
	var n int64
	if len(value) > inlineLimit {
		n, err = s.promote(ctx, key, c.Token, value, millis(ttl))
	} else {
		n, err = s.store(ctx, key, c.Token, value, millis(ttl))
	}
	if err == nil && n == 0 {
		err = idempotency.ErrClaimLost
	}
	return failed("complete", err)
}

// store sends the value as an argument of the script.
func (s *Store) store(ctx context.Context, key, token string, value []byte, ttl int64) (int64, error) {
	return s.run(ctx, completeScript, key,
		wire.ClaimPrefix(token), wire.DonePrefix(token), value, ttl, s.channel)
}

// promote sends the value under a key of its own, and a script that gives it
// the right name, in one round trip.
func (s *Store) promote(ctx context.Context, key, token string, value []byte, ttl int64) (int64, error) {
	keys := []string{key, tempKey(key, token)}
	args := []any{wire.ClaimPrefix(token), wire.DonePrefix(token), ttl, s.channel}
	n, err := call(ctx, s, func(ctx context.Context) (int64, error) {
		pipe := s.client.Pipeline()
		set := pipe.Set(ctx, keys[1], value, tempTTL)
		run := promoteScript.EvalSha(ctx, pipe, keys, args...)
		if _, err := pipe.Exec(ctx); set.Err() != nil {
			return 0, set.Err()
		} else if err != nil && run.Err() == nil {
			return 0, err // there is no connection at all
		}
		if redis.HasErrorPrefix(run.Err(), "NOSCRIPT") {
			run = promoteScript.Eval(ctx, s.client, keys, args...)
		}
		return run.Int64()
	})
	switch {
	case redis.HasErrorPrefix(err, "TRYAGAIN"), redis.HasErrorPrefix(err, "CROSSSLOT"), err == nil && n < 0:
		// The slot is just moving to another node, key by key, and the two are
		// not on the same one; or they were not there together, with a proxy in
		// between. One key is always on one node.
		return s.store(ctx, key, token, value, ttl)
	case err != nil:
		return 0, fmt.Errorf("a large record: %w", err)
	}
	return n, nil
}
