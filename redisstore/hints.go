package redisstore

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// How the subscription is kept.
const (
	// lingering is how long it outlives the last waiter: the next one often
	// comes soon, and a connection costs more than a message.
	lingering = 3 * time.Second
	// pingAfter is the silence after which the connection is tried. After
	// twice that it counts as dead.
	pingAfter = 3 * time.Second
	// After a failure it is tried again, at first and at most after that.
	firstRetry = 100 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// hints is the one subscription of a Store to the channel on which Complete,
// Release and Forget name the key that they have changed. It runs while
// somebody waits. Nothing depends on it but how soon a waiter hears.
type hints struct {
	stop      func()      // not nil while it runs; guarded by watchers.mu
	quit      *time.Timer // runs while nobody waits; guarded by watchers.mu
	confirmed atomic.Bool // the server has confirmed the subscription
}

// needed starts the subscription if need be. The caller holds ws.mu.
func (h *hints) needed(ws *watchers) {
	if h.quit != nil {
		h.quit.Stop()
		h.quit = nil
	}
	if h.stop != nil || ws.store.channel == "" {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	h.stop = cancel
	go h.keep(ctx, ws)
}

// idle ends the subscription if nobody comes for a while. The caller holds
// ws.mu.
func (h *hints) idle(ws *watchers) {
	if h.stop == nil {
		return
	}
	if h.quit != nil {
		h.quit.Stop()
	}
	h.quit = time.AfterFunc(lingering, func() {
		ws.mu.Lock()
		defer ws.mu.Unlock()
		if len(ws.byKey) == 0 && h.stop != nil {
			h.stop()
			h.stop = nil
		}
	})
}

// keep subscribes, again and again, until ctx ends.
func (h *hints) keep(ctx context.Context, ws *watchers) {
	retry := firstRetry
	for {
		if h.receive(ctx, ws) {
			retry = firstRetry
		}
		select {
		case <-time.After(retry):
			retry = min(2*retry, lastRetry)
		case <-ctx.Done():
			return
		}
	}
}

// receive passes hints on until the subscription fails or ctx ends. It reports
// whether the subscription was ever confirmed.
func (h *hints) receive(ctx context.Context, ws *watchers) (confirmed bool) {
	sub := ws.store.client.Subscribe(ctx, ws.store.channel)
	defer func() { _ = sub.Close() }()
	defer context.AfterFunc(ctx, func() { _ = sub.Close() })()
	defer h.confirmed.Store(false)
	pinged := false
	for {
		msg, err := sub.ReceiveTimeout(ctx, pingAfter)
		var netErr net.Error
		switch {
		case err == nil:
			pinged = false
		case errors.As(err, &netErr) && netErr.Timeout() && !pinged && sub.Ping(ctx) == nil:
			pinged = true
		default:
			return confirmed
		}
		switch m := msg.(type) {
		case *redis.Subscription:
			confirmed = true
			h.confirmed.Store(true)
			ws.hint("") // whatever has changed before
		case *redis.Message:
			if m.Payload != "" {
				ws.hint(m.Payload)
			}
		}
	}
}
