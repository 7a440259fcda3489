package idempotency

import (
	"context"
	"fmt"
	"sync"
)

// maxBackground bounds how many settlings go on behind their requests at a time.
const maxBackground = 10_000

// background counts what goes on behind requests: recordings and releases that
// failed at first. A Middleware shares it with those made from it by With.
type background struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // closed when n is back at zero; nil when nobody waits
}

// start runs f in a goroutine of its own, unless there are too many already.
func (b *background) start(f func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.n == maxBackground {
		return false
	}
	b.n++
	go func() {
		defer b.end()
		f()
	}()
	return true
}

func (b *background) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.n--
	if b.n == 0 && b.idle != nil {
		close(b.idle)
		b.idle = nil
	}
}

// drain waits until nothing goes on any more.
func (b *background) drain(ctx context.Context) error {
	b.mu.Lock()
	n := b.n
	if n > 0 && b.idle == nil {
		b.idle = make(chan struct{})
	}
	idle := b.idle
	b.mu.Unlock()
	if n == 0 {
		return nil
	}
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("idempotency: recordings still being retried: %w", ctx.Err())
	}
}
