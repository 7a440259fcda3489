package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/retrysafe/idempotency"
)

var errDown = errors.New("the store cannot be reached")

// claimed is what is known of one token, by what the store was seen to do.
type claimed struct {
	asked       *asked
	won         bool          // a Claim with nil has come back to the process
	good        time.Duration // until when the store surely keeps the claim: last success + lease
	recorded    bool
	completedAt time.Duration
	run         *ran
}

// door is the store as one process reaches it. What goes wrong with a call
// depends on the seed, the request and which of its calls it is, and on nothing
// else.
type door struct {
	p   *process
	mu  sync.Mutex
	nth map[string]int
}

type waitingDoor struct{ *door }

func (d waitingDoor) Wait(ctx context.Context, key idempotency.Key) error {
	return d.p.w.store.Wait(ctx, key)
}

// call makes one call, and has go wrong what is to. do may be called several
// times, also after call has returned: that is what a network does.
func (d *door) call(ctx context.Context, method string, do func(context.Context) error) error {
	w, q := d.p.w, ctx.Value(askedKey{}).(*asked)
	d.mu.Lock()
	id := fmt.Sprint(q.id, method)
	d.nth[id]++
	nth := d.nth[id]
	dice := w.dice("call", id, nth)
	d.mu.Unlock()
	wrong := dice.Float64() < w.faults && !w.calm
	kind := dice.IntN(10)
	w.mu.Lock()
	if !wrong || !w.happens("%s %d of %s goes wrong", method, nth, q) {
		kind = -1
	}
	w.mu.Unlock()
	if d.p.isDead() {
		return errDown
	}
	far := context.WithoutCancel(ctx) // what has left the process arrives
	say := func(what string) { w.tell("%s %s of %s: %s", d.p.name, method, q, what) }
	switch kind {
	case 0:
		d.p.crash("before " + method + " of " + q.String())
		return errDown
	case 1:
		_ = do(far)
		d.p.crash("after " + method + " of " + q.String())
		return errDown
	case 2:
		say("fails, not done")
		return errDown
	case 3:
		say("is done, but its reply is lost")
		_ = do(far)
		return errDown
	case 4:
		late := moment(dice)
		say("fails, and is done " + late.String() + " later")
		go func() { time.Sleep(late); _ = do(far) }()
		return errDown
	case 5:
		late := moment(dice)
		say("is done twice, the second time " + late.String() + " later")
		go func() { time.Sleep(late); _ = do(far) }()
	case 6:
		late := moment(dice)
		say("is done " + late.String() + " late")
		time.Sleep(late)
	case 7:
		late := moment(dice)
		say("is done, but its reply comes " + late.String() + " late")
		err := do(far)
		time.Sleep(late)
		return err
	case 8:
		say("hangs")
		<-ctx.Done()
		return ctx.Err()
	case 9:
		late := moment(dice)
		say("is slow")
		select {
		case <-time.After(late):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if d.p.isDead() {
		return errDown
	}
	return do(far)
}

func (d *door) Claim(ctx context.Context, c idempotency.Claim, lease time.Duration) (*idempotency.Record, error) {
	w, q := d.p.w, ctx.Value(askedKey{}).(*asked)
	var held *idempotency.Record
	err := d.call(ctx, "Claim", func(ctx context.Context) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		rec, err := w.store.Claim(ctx, c, lease)
		held = rec
		w.note("Claim of %s (%s): %s", q, d.p.name, recordText(rec, err))
		if err == nil && rec == nil {
			w.claimOf(c.Token, q).good = max(w.claimOf(c.Token, q).good, w.now()+lease)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if held == nil {
		w.claimOf(c.Token, q).won = true
		q.token = c.Token
	}
	return held, nil
}

func (w *world) claimOf(token string, q *asked) *claimed {
	c := w.claims[token]
	if c == nil {
		c = &claimed{asked: q}
		w.claims[token] = c
	}
	return c
}

func (d *door) Extend(ctx context.Context, c idempotency.Claim, lease time.Duration) error {
	w, q := d.p.w, ctx.Value(askedKey{}).(*asked)
	return d.call(ctx, "Extend", func(ctx context.Context) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		err := w.store.Extend(ctx, c, lease)
		w.note("Extend of %s: %v", q, err)
		if err == nil {
			w.claimOf(c.Token, q).good = w.now() + lease
		}
		return err
	})
}

func (d *door) Complete(ctx context.Context, c idempotency.Claim, resp *idempotency.Response, ttl time.Duration) error {
	w, q := d.p.w, ctx.Value(askedKey{}).(*asked)
	return d.call(ctx, "Complete", func(ctx context.Context) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		err := w.store.Complete(ctx, c, resp, ttl)
		w.note("Complete of %s with %q: %v", q, resp.Body, err)
		if err == nil {
			w.recorded(c.Token, q, resp)
		}
		return err
	})
}

func (d *door) Release(ctx context.Context, c idempotency.Claim) error {
	w, q := d.p.w, ctx.Value(askedKey{}).(*asked)
	return d.call(ctx, "Release", func(ctx context.Context) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		err := w.store.Release(ctx, c)
		w.note("Release of %s: %v", q, err)
		if err == nil {
			w.claimOf(c.Token, q).good = 0
		}
		return err
	})
}

func recordText(r *idempotency.Record, err error) string {
	switch {
	case err != nil:
		return err.Error()
	case r == nil:
		return "won"
	case r.Response != nil:
		return fmt.Sprintf("completed with %q", r.Response.Body)
	case r.Lapsed:
		return "lapsed"
	}
	return "in progress, " + r.ExpiresIn.String() + " left"
}
