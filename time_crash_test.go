package idempotency_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
)

// A process that dies blocks its key for what is left of its lease, not for the
// TTL.
func TestCrashFreesTheKeyAfterOneLease(t *testing.T) {
	for _, lease := range []time.Duration{time.Millisecond, 300 * time.Millisecond, 1500 * time.Millisecond, bubbleLease, time.Hour} {
		for _, beats := range []int{0, 2} { // that arrived before the death
			t.Run(fmt.Sprint(lease, " after ", beats, " beats"), func(t *testing.T) {
				bubble(t, func(b *bubbleWorld) {
					opts := []idempotency.Option{
						idempotency.WithLease(lease), idempotency.WithRetryAfter(lease), idempotency.WithMaxExecution(100 * lease),
					}
					p, other := b.process(opts...), b.process(opts...)
					b.work = func(w http.ResponseWriter, r *http.Request, run int) {
						if run == 1 {
							<-r.Context().Done() // the goroutine of a dead process
						}
						bubbleCreated(w, run)
					}
					dead := p.start()
					last := time.Duration(beats) * (lease / 3)
					b.until(last + lease/100)
					p.fake.die()
					free := last + lease
					for i := range 10 {
						b.until(last + lease/50 + time.Duration(i)*lease/11)
						require.LessOrEqual(b, other.send().busy(), max(free-b.now(), second))
					}
					b.until(free + lease/100)
					other.send().created(2)
					p.fake.die()
					other.send().replayed(2)
					b.ran(2)
					dead.wait()
				})
			})
		}
	}
}

// Retry-After is what was set, in whole seconds, at least one, and never more
// than what is left of the lease, whatever the store says.
func TestRetryAfter(t *testing.T) {
	for _, c := range []struct{ set, left, want time.Duration }{
		{0, 30 * second, second},
		{time.Millisecond, 30 * second, second},
		{second, 30 * second, second},
		{1001 * time.Millisecond, 30 * second, 2 * second},
		{2 * second, 30 * second, 2 * second},
		{2 * second, 2 * second, 2 * second},
		{2 * second, 1999 * time.Millisecond, second},
		{2 * second, second, second},
		{2 * second, time.Nanosecond, second},
		{10 * second, 9999 * time.Millisecond, 9 * second},
		{time.Hour, 30 * second, 30 * second},
		{time.Hour, 29_999_999_999, 29 * second},
		// Left out, or from a store whose clock is wrong: still a whole number above zero.
		{2 * second, 0, 2 * second},
		{2 * second, -10 * time.Minute, 2 * second},
		{2 * second, 10 * time.Minute, 2 * second},
	} {
		t.Run(fmt.Sprint(c.set, " of ", c.left), func(t *testing.T) {
			bubble(t, func(b *bubbleWorld) {
				p := b.processOn(nil, bubbleTwin{left: c.left}, idempotency.WithRetryAfter(c.set))
				require.Equal(b, c.want, p.send().busy())
				b.ran(0)
			})
		})
	}
}

// bubbleTwin is a store in which somebody else always holds the key.
type bubbleTwin struct {
	idempotency.Store
	left time.Duration
}

func (s bubbleTwin) Claim(_ context.Context, c idempotency.Claim, _ time.Duration) (*idempotency.Record, error) {
	return &idempotency.Record{Token: "another", Fingerprint: c.Fingerprint, ExpiresIn: s.left}, nil
}

// Two hosts whose settings differ: the claim lives by its writer's, and is
// reported by those, too.
func TestLeaseIsTheWriters(t *testing.T) {
	bubble(t, func(b *bubbleWorld) {
		b.work = func(w http.ResponseWriter, r *http.Request, run int) {
			if run == 1 {
				<-r.Context().Done()
			}
			bubbleCreated(w, run)
		}
		long := b.process(idempotency.WithLease(time.Minute))
		short := b.process(idempotency.WithLease(second), idempotency.WithRetryAfter(time.Hour))
		dead := long.start()
		b.until(second)
		long.fake.die()
		require.Equal(b, 59*second, short.send().busy())
		b.until(60*second - time.Millisecond)
		require.Equal(b, second, short.send().busy())
		b.until(60*second + time.Millisecond)
		short.send().created(2)
		dead.wait()
	})
}

// A record is replayed for its TTL, counted from its completion.
func TestTTL(t *testing.T) {
	for _, c := range []struct {
		ttl, lease, takes, set time.Duration
	}{
		{ttl: 24 * time.Hour, lease: bubbleLease},
		{ttl: time.Millisecond, lease: time.Millisecond},
		{ttl: 500 * time.Millisecond, lease: 500 * time.Millisecond},
		{ttl: 1500 * time.Millisecond, lease: second},
		{ttl: 400 * 24 * time.Hour, lease: 400 * 24 * time.Hour},
		{ttl: time.Minute, lease: bubbleLease, takes: 10 * time.Minute},
		{ttl: time.Minute, lease: bubbleLease, set: time.Hour},
		{ttl: time.Hour, lease: bubbleLease, set: second, takes: time.Minute},
		{ttl: time.Hour, lease: bubbleLease, set: -1},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			bubble(t, func(b *bubbleWorld) {
				b.work = func(w http.ResponseWriter, r *http.Request, run int) {
					idempotency.FromContext(r.Context()).SetTTL(c.set)
					time.Sleep(c.takes)
					bubbleCreated(w, run)
				}
				p := b.process(idempotency.WithTTL(c.ttl), idempotency.WithLease(c.lease), idempotency.WithMaxExecution(max(15*time.Minute, c.lease)))
				p.send().created(1)
				ttl := c.ttl
				if c.set > 0 {
					ttl = c.set
				}
				require.Equal(b, ttl, p.fake.log("Complete")[0].lease)
				expires := b.now() + ttl
				for _, at := range []time.Duration{0, ttl / 2, ttl - ttl/100} {
					b.until(expires - ttl + at)
					p.send().replayed(1)
				}
				b.until(expires + time.Microsecond) // a replay has not prolonged it
				p.send().created(2)
				p.send().replayed(2)
			})
		})
	}
}

// Of many requests that come when a dead process's lease lapses one runs.
func TestOneOfManyTakesALapsedKey(t *testing.T) {
	bubble(t, func(b *bubbleWorld) {
		b.work = func(w http.ResponseWriter, r *http.Request, run int) {
			if run == 1 {
				<-r.Context().Done()
			}
			time.Sleep(second)
			bubbleCreated(w, run)
		}
		p, other := b.process(), b.process()
		dead := p.start()
		b.until(second)
		p.fake.die()
		b.until(30*second + time.Millisecond)
		var answers []*bubbleAnswer
		for range 50 {
			answers = append(answers, other.start())
		}
		first := 0
		for _, a := range answers {
			if a.wait().Code == http.StatusCreated {
				a.created(2)
				first++
			} else {
				a.busy()
			}
		}
		require.Equal(b, 1, first)
		b.ran(2)
		dead.wait()
	})
}
