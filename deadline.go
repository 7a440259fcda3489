package idempotency

import (
	"context"
	"sync"
	"time"
)

// deadline is the context of one call of the store: what context.WithTimeout of
// context.WithoutCancel returns, but without a timer until somebody waits for its
// end.
type deadline struct {
	context.Context // its values count, its end does not
	at              time.Time

	mu    sync.Mutex
	real  context.Context // made by the first Done
	end   context.CancelFunc
	ended bool
}

func (d *deadline) init(parent context.Context, at time.Time) {
	d.Context, d.at = parent, at
}

// cancel ends the context.
func (d *deadline) cancel() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ended = true
	if d.end != nil {
		d.end()
	}
}

func (d *deadline) Deadline() (time.Time, bool) { return d.at, true }

func (d *deadline) Done() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.real == nil {
		d.real, d.end = context.WithDeadline(context.WithoutCancel(d.Context), d.at)
		if d.ended {
			d.end()
		}
	}
	return d.real.Done()
}

func (d *deadline) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.real != nil:
		return d.real.Err()
	case d.ended:
		return context.Canceled
	case !time.Now().Before(d.at):
		return context.DeadlineExceeded
	}
	return nil
}

// Value asks the real context where there is one, so that contexts made from
// this one find their parent there and need no goroutine to follow it.
func (d *deadline) Value(key any) any {
	d.mu.Lock()
	real := d.real
	d.mu.Unlock()
	if real != nil {
		return real.Value(key)
	}
	return context.WithoutCancel(d.Context).Value(key)
}
