package redisstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/internal/wire"
)

// call runs f, which talks to the server, for at most as long as ctx lasts. It
// tells a cluster client when nobody has answered: by itself that asks for the
// new master only once a minute.
func call[T any](ctx context.Context, s *Store, f func(context.Context) (T, error)) (T, error) {
	val, err := bounded(ctx, s.client, f)
	if err != nil {
		s.reload(ctx, err)
	}
	return val, err
}

func (s *Store) reload(ctx context.Context, err error) {
	var answer redis.Error
	if errors.As(err, &answer) || errors.Is(err, context.Canceled) {
		return
	}
	if c, ok := s.client.(interface{ ReloadState(context.Context) }); ok {
		c.ReloadState(context.WithoutCancel(ctx)) // in the background, and not again and again
	}
}

// bounded runs f and returns its result, or the error of ctx as soon as that
// ends. go-redis looks at a context between two attempts, but by default not
// while a command is on the wire, where it waits for its own read time-out; f
// then ends in the background, at the latest after that, and nobody looks at
// its result.
func bounded[T any](ctx context.Context, client any, f func(context.Context) (T, error)) (T, error) {
	if ctx.Done() == nil || heedsDeadline(ctx, client) {
		val, err := f(ctx)
		return val, overdue(ctx, err)
	}
	type result struct {
		val T
		err error
	}
	done := make(chan result, 1)
	go func() {
		growStack(0)
		val, err := f(ctx)
		done <- result{val, err}
	}()
	select {
	case r := <-done:
		return r.val, r.err
	case <-ctx.Done():
	}
	select {
	case r := <-done: // both at once: what is known counts
		return r.val, r.err
	default:
		var zero T
		return zero, ctx.Err()
	}
}

// heedsDeadline reports whether the client by itself returns at the deadline of
// ctx.
func heedsDeadline(ctx context.Context, client any) bool {
	if _, ok := ctx.Deadline(); !ok {
		return false // a cancellation it does not heed
	}
	switch c := client.(type) {
	case *redis.Client:
		return c.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		return c.Options().ContextTimeoutEnabled
	}
	return false
}

// overdue makes the error of a connection whose time was up at the deadline of
// ctx the error of ctx as well.
func overdue(ctx context.Context, err error) error {
	deadline, ok := ctx.Deadline()
	if ok && errors.Is(err, os.ErrDeadlineExceeded) && !time.Now().Before(deadline) {
		return fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
	}
	return err
}

// growStack makes room for the calls within go-redis while there is nothing on
// the stack yet. Else it grows in several steps in the middle of them, each of
// which copies every frame: a fifth of the time of a call.
//
//go:noinline
func growStack(i int) byte {
	var room [10 << 10]byte
	return room[i]
}

// runScript runs a script with one key, and returns what result makes of the
// reply.
func runScript[T any](ctx context.Context, s *Store, script *redis.Script, key string, args []any,
	result func(*redis.Cmd) (T, error),
) (T, error) {
	var zero T
	if err := ctx.Err(); err != nil {
		return zero, err
	}
	val, err := call(ctx, s, func(ctx context.Context) (T, error) {
		return result(script.Run(ctx, s.client, []string{key}, args...))
	})
	return val, unreadable(err)
}

// run runs a script that returns a number.
func (s *Store) run(ctx context.Context, script *redis.Script, key string, args ...any) (int64, error) {
	return runScript(ctx, s, script, key, args, (*redis.Cmd).Int64)
}

// seen is what a look at a key has found.
type seen struct {
	set   bool   // the key was free, and is ours now
	found bool   // there is a value
	value string // as it lies there
	left  int64  // how long it lives, in milliseconds; below zero: for ever
}

// setOrGet sets the key if it is free, and else gets what is there. All in one
// pipeline with a write in it, which a cluster client sends to the master
// whatever it does with reads. The time comes before the value: if the key
// vanishes in between, the value says so.
func (s *Store) setOrGet(ctx context.Context, a *attempt) (seen, error) {
	return call(ctx, s, func(ctx context.Context) (seen, error) {
		// The commands of SetNX, PTTL and Get, made so that they share the key.
		key := any(a.key)
		set := redis.NewBoolCmd(ctx, "set", key, a.value, "px", a.lease+a.hold, "nx")
		ttl := redis.NewDurationCmd(ctx, time.Millisecond, "pttl", key)
		get := redis.NewStringCmd(ctx, "get", key)
		pipe := s.client.Pipeline()
		_ = pipe.BatchProcess(ctx, set, ttl, get) // queues them
		_, err := pipe.Exec(ctx)
		if set.Err() != nil || ttl.Err() != nil || get.Err() != nil {
			// Each command has its own error. None has one when the connection
			// could not be set up, for want of the right password, say.
			err = set.Err()
		}
		full := redis.IsOOMError(err)
		switch {
		case err == nil && set.Val():
			return seen{set: true}, nil
		case err != nil && !full:
			// Whatever the other two say: a read-only replica, for one, does
			// answer them, and may be behind.
			return seen{}, unreadable(err)
		}
		got, err := reply(ttl, get)
		if err == nil && !got.found && full {
			err = fmt.Errorf("%w: %w", idempotency.ErrStoreFull, set.Err())
		}
		return got, err
	})
}

// read reads the bytes of a value up to and with end, all of them for -1, and
// how long it lives.
func (s *Store) read(ctx context.Context, key string, end int64) (seen, error) {
	return runScript(ctx, s, lookScript, key, []any{end}, func(cmd *redis.Cmd) (seen, error) {
		parts, err := cmd.Slice()
		if err != nil {
			return seen{}, err
		}
		if len(parts) != 2 {
			return seen{}, errReply
		}
		left, ok1 := parts[0].(int64)
		value, ok2 := parts[1].(string)
		if !ok1 || !ok2 {
			return seen{}, errReply
		}
		return seen{found: left != int64(noKey), value: value, left: left}, nil
	})
}

var errReply = errors.New("the server has sent a reply of another kind")

// look reads the record of a key. It returns nil if there is none.
func (s *Store) look(ctx context.Context, key string) (*idempotency.Record, error) {
	got, err := s.read(ctx, key, -1)
	if err != nil || !got.found {
		return nil, err
	}
	v, err := wire.Decode(got.value)
	if err != nil {
		return nil, err
	}
	return record(v, got.left), nil
}

// reply puts together the replies to PTTL and to GET. There is nothing if either
// says so.
func reply(ttl *redis.DurationCmd, get *redis.StringCmd) (seen, error) {
	if err := get.Err(); errors.Is(err, redis.Nil) {
		return seen{}, nil
	} else if err != nil {
		return seen{}, unreadable(err)
	}
	if err := ttl.Err(); err != nil {
		return seen{}, err
	}
	switch left := ttl.Val(); left {
	case noKey:
		return seen{}, nil
	case noExpiry:
		return seen{found: true, value: get.Val(), left: -1}, nil
	default:
		return seen{found: true, value: get.Val(), left: left.Milliseconds()}, nil
	}
}

// What PTTL says instead of a time, as go-redis hands it on.
const (
	noKey    = time.Duration(-2)
	noExpiry = time.Duration(-1)
)

// unreadable makes ErrCorrupt of the server's complaint that something other
// than a string lies under the key. It comes plain, or from within a script.
func unreadable(err error) error {
	if err == nil {
		return nil
	}
	var fromServer redis.Error
	if errors.As(err, &fromServer) && strings.Contains(fromServer.Error(), "WRONGTYPE") {
		return fmt.Errorf("%w: %w", idempotency.ErrCorrupt, err)
	}
	return err
}
