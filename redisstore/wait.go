package redisstore

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/internal/wire"
)

// How a waiter's key is polled: soon at first, most twins end in milliseconds,
// then ever more slowly up to maxPause, or maxPauseHinted while a subscription
// brings the news. That is also how late a waiter is when a hint gets lost.
const (
	firstPause     = 20 * time.Millisecond
	maxPause       = 200 * time.Millisecond
	maxPauseHinted = 500 * time.Millisecond
	peekTimeout    = 5 * time.Second
)

// Wait returns when the record of key may have changed, see
// [idempotency.Waiter]. However many wait for one key, one of them polls it;
// hints over one subscription for the whole Store make it quick where the
// client is a *redis.Client.
func (s *Store) Wait(ctx context.Context, key idempotency.Key) error {
	if err := ctx.Err(); err != nil {
		return failed("wait", err)
	}
	w := s.waits.join(ctx, s.redisKey(key))
	select {
	case <-w.done:
		return failed("wait", w.err)
	case <-ctx.Done():
		s.waits.leave(w)
		return failed("wait", ctx.Err())
	}
}

// watchers are the keys that somebody waits for.
type watchers struct {
	store *Store

	mu      sync.Mutex
	byKey   map[string]*watch
	hinting hints
}

// watch polls one key for all who wait for it.
type watch struct {
	key     string
	waiters int           // guarded by watchers.mu
	cancel  func()        // when nobody waits any more
	look    chan struct{} // look again now; holds one
	done    chan struct{} // closed at the end
	err     error         // set before that
}

func (ws *watchers) init(s *Store) {
	ws.store = s
	ws.byKey = make(map[string]*watch)
}

// join finds or starts the watch of a key. A watch under way looks again at
// once: the claim it knows of may have ended.
func (ws *watchers) join(ctx context.Context, key string) *watch {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if w, ok := ws.byKey[key]; ok {
		w.waiters++
		w.lookNow()
		return w
	}
	// The watch may outlive this waiter.
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	w := &watch{
		key:     key,
		waiters: 1,
		cancel:  cancel,
		look:    make(chan struct{}, 1),
		done:    make(chan struct{}),
	}
	ws.byKey[key] = w
	ws.hinting.needed(ws)
	go func() {
		defer cancel()
		err := ws.store.watch(ctx, w)
		ws.remove(w)
		w.err = err
		close(w.done)
	}()
	return w
}

// leave takes one waiter off a watch, and ends it if that was the last.
func (ws *watchers) leave(w *watch) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if w.waiters--; w.waiters == 0 {
		ws.removeLocked(w)
		w.cancel()
	}
}

func (ws *watchers) remove(w *watch) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.removeLocked(w)
}

func (ws *watchers) removeLocked(w *watch) {
	if ws.byKey[w.key] != w {
		return
	}
	delete(ws.byKey, w.key)
	if len(ws.byKey) == 0 {
		ws.hinting.idle(ws)
	}
}

// hint makes the watch of key look, if there is one; of all keys for "".
func (ws *watchers) hint(key string) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if key != "" {
		if w, ok := ws.byKey[key]; ok {
			w.lookNow()
		}
		return
	}
	for _, w := range ws.byKey {
		w.lookNow()
	}
}

func (w *watch) lookNow() {
	select {
	case w.look <- struct{}{}:
	default: // it is going to look anyway
	}
}

// watch returns when the claim that it saw first has ended, or its lease has
// lapsed.
func (s *Store) watch(ctx context.Context, w *watch) error {
	first, pause := "", firstPause
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		token, left, err := s.peek(ctx, w.key)
		switch {
		case err != nil:
			return err
		case left <= 0, first != "" && token != first:
			return nil
		}
		first = token
		// Not all processes at once; and not after the lease is over.
		timer.Reset(min(pause/2+rand.N(pause/2+1), left+time.Millisecond))
		select {
		case <-w.look:
		case <-timer.C:
			pause = min(pause*3/2, s.waits.longestPause())
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (ws *watchers) longestPause() time.Duration {
	if ws.hinting.confirmed.Load() {
		return maxPauseHinted
	}
	return maxPause
}

// peek looks for a running claim: whose it is, and how long its lease lasts;
// zero if none is running. It does not fetch a large record.
func (s *Store) peek(ctx context.Context, key string) (token string, left time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, peekTimeout)
	defer cancel()
	const most = 1 << 10
	got, err := s.read(ctx, key, most-1)
	if err == nil && len(got.value) == most && wire.IsClaim(got.value) {
		got, err = s.read(ctx, key, -1) // a claim with a very long token
	}
	if err != nil || !got.found || !wire.IsClaim(got.value) {
		return "", 0, err
	}
	v, err := wire.Decode(got.value)
	if err != nil {
		return "", 0, err
	}
	if rec := record(v, got.left); !rec.Lapsed {
		return v.Token, rec.ExpiresIn, nil
	}
	return "", 0, nil
}
