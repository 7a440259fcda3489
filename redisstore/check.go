package redisstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/retrysafe/idempotency"
)

// Check finds out whether the server can keep the promise. Call it at start-up.
// In a cluster it asks every master.
//
// It returns an error, which says what is wrong and why it matters, when the
// server does not answer or is still loading, is a read-only replica, is older
// than Redis 6.2, has a memory limit and may evict, or refuses one of the
// commands the Store needs; for the last it claims, completes and forgets a key
// of its own. A redis.Ring is an error too. Several are joined.
//
// It only warns, through the logger ([WithLogger]), of what can be meant so:
// restarts that forget (no append-only file), an eviction policy without a
// limit, and all that it cannot find out because the server does not let it, as
// managed ones often do with CONFIG.
func (s *Store) Check(ctx context.Context) error {
	var errs []error
	switch client := s.client.(type) {
	case *redis.Ring:
		errs = append(errs, errors.New("the client is a redis.Ring, which moves the keys of a server "+
			"that does not answer to another one, so that a claim can be given twice: "+
			"use a Cluster or one server with Sentinels"))
	case *redis.ClusterClient:
		var mu sync.Mutex // the masters are asked at the same time
		err := client.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
			err := s.checkServer(ctx, node, node.Options().Addr)
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
			return nil
		})
		errs = append(errs, err)
	default:
		errs = append(errs, s.checkServer(ctx, client, ""))
	}
	if errors.Join(errs...) == nil {
		errs = append(errs, s.rehearse(ctx))
	}
	return failed("check", errors.Join(errs...))
}

// facts is what INFO says, by name.
type facts map[string]string

func (s *Store) checkServer(ctx context.Context, client redis.Cmdable, addr string) error {
	info := facts{}
	var errs []error
	for _, section := range []string{"server", "replication", "memory", "persistence"} {
		text, err := bounded(ctx, func(ctx context.Context) (string, error) {
			return client.Info(ctx, section).Result()
		})
		var refused redis.Error
		switch {
		case errors.As(err, &refused) && !isState(err):
			s.warn(ctx, addr, "cannot read INFO "+section, slog.Any("error", err))
		case err != nil:
			return fmt.Errorf("the server%s does not answer: %w", at(addr), err)
		}
		info.add(text)
	}
	for _, problem := range info.problems() {
		errs = append(errs, errors.New(problem+at(addr)))
	}
	for _, doubt := range s.doubts(ctx, client, info) {
		s.warn(ctx, addr, doubt)
	}
	return errors.Join(errs...)
}

// isState tells a server that is not up from one that does not want to be asked.
func isState(err error) bool {
	return redis.IsLoadingError(err) || redis.IsAuthError(err) || redis.IsMasterDownError(err) ||
		redis.IsMaxClientsError(err) || redis.IsClusterDownError(err)
}

func at(addr string) string {
	if addr == "" {
		return ""
	}
	return " (" + addr + ")"
}

func (s *Store) warn(ctx context.Context, addr, what string, attrs ...slog.Attr) {
	if addr != "" {
		attrs = append(attrs, slog.String("server", addr))
	}
	s.log.LogAttrs(ctx, slog.LevelWarn, "redisstore: check: "+what, attrs...)
}

func (f facts) add(text string) {
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			f[name] = value
		}
	}
}

// problems are what makes the promise untrue.
func (f facts) problems() []string {
	var found []string
	if f["loading"] == "1" {
		found = append(found, "the server is still loading its data")
	}
	if v, ok := f["redis_version"]; ok && f["valkey_version"] == "" && older(v, 6, 2) {
		found = append(found, "the server is Redis "+v+", and 6.2 is the oldest that is supported")
	}
	if f["role"] == "slave" {
		found = append(found, "the server is a replica, which cannot decide about claims: connect to the master")
	}
	if policy := f["maxmemory_policy"]; f.evicts() && f.limited() {
		found = append(found, "maxmemory-policy is "+policy+", so a full server forgets claims and records, "+
			"and handlers run twice: set it to noeviction")
	}
	return found
}

func (f facts) evicts() bool {
	policy := f["maxmemory_policy"]
	return policy != "" && policy != "noeviction"
}

func (f facts) limited() bool { return f["maxmemory"] != "" && f["maxmemory"] != "0" }

// doubts are what can be meant so, or cannot be found out.
func (s *Store) doubts(ctx context.Context, client redis.Cmdable, f facts) []string {
	var found []string
	if f["redis_version"] == "" {
		found = append(found, "cannot find out how old the server is; Redis 6.2 is the oldest that is supported")
	}
	switch {
	case f["maxmemory_policy"] == "":
		found = append(found, "cannot find out the maxmemory-policy; any but noeviction makes a full server forget claims")
	case f.evicts() && !f.limited():
		found = append(found, "maxmemory-policy is "+f["maxmemory_policy"]+", which makes the server forget claims "+
			"once maxmemory is set, too: noeviction does not")
	}
	switch f["aof_enabled"] {
	case "1":
	case "0":
		found = append(found, "the server has no append-only file (appendonly no): "+s.afterRestart(ctx, client))
	default:
		found = append(found, "cannot find out whether the server has an append-only file; "+
			"without one a restart forgets claims and records")
	}
	return found
}

// afterRestart says what a server without an append-only file forgets.
func (s *Store) afterRestart(ctx context.Context, client redis.Cmdable) string {
	save, err := bounded(ctx, func(ctx context.Context) (map[string]string, error) {
		return client.ConfigGet(ctx, "save").Result()
	})
	switch {
	case err != nil:
		return "a restart forgets claims and records, all of them unless there are snapshots"
	case save["save"] == "":
		return "a restart forgets all claims and records, and there are no snapshots either"
	default:
		return "a restart forgets the claims and records since the last snapshot"
	}
}

// older reports whether version is below major.minor. One that cannot be read
// is not.
func older(version string, major, minor int) bool {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return false
	}
	a, err1 := strconv.Atoi(parts[0])
	b, err2 := strconv.Atoi(parts[1])
	return err1 == nil && err2 == nil && (a < major || a == major && b < minor)
}

// rehearse does once what the Store does for requests. A command that is not
// permitted is better found now than after a handler has run.
func (s *Store) rehearse(ctx context.Context) error {
	c := idempotency.Claim{
		Key:   idempotency.NewKey("", "redisstore.Check", rand.Text()),
		Token: rand.Text(),
	}
	const short = 10 * time.Second
	small := &idempotency.Response{Status: http.StatusNoContent}
	large := &idempotency.Response{Status: http.StatusOK, Body: make([]byte, inlineLimit+1)}
	steps := []func() error{
		func() error { _, err := s.Claim(ctx, c, short); return err },
		func() error { return s.Extend(ctx, c, short) },
		func() error { return s.Release(ctx, c) },
		func() error { return s.Complete(ctx, c, small, short) },
		func() error { return s.Forget(ctx, c.Key) },
		func() error { return s.Complete(ctx, c, large, short) },
		func() error { _, err := s.Claim(ctx, c, short); return err },
		func() error { _, err := s.Lookup(ctx, c.Key); return err },
		func() error { return s.Forget(ctx, c.Key) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return fmt.Errorf("trying it out: %w", err)
		}
	}
	return nil
}
