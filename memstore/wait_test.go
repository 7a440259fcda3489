package memstore_test

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
)

// TestWait says for each way in which a claim can end how long somebody waits
// who began to at the start.
func TestWait(t *testing.T) {
	const second = time.Second
	tests := []struct {
		name   string
		before func(t *testing.T, s bundle) // before Wait
		after  func(t *testing.T, s bundle) // one second later
		want   time.Duration
	}{
		{name: "absent"},
		{
			name:   "completed before",
			before: func(_ *testing.T, s bundle) { s.win(a); s.complete(a, answer(1)) },
		},
		{
			name:   "released before",
			before: func(_ *testing.T, s bundle) { s.win(a); s.release(a) },
		},
		{
			name:   "lapsed before",
			before: func(_ *testing.T, s bundle) { s.win(held(a, ttl)); time.Sleep(lease) },
		},
		{
			name:   "completed",
			before: func(_ *testing.T, s bundle) { s.win(a) },
			after:  func(_ *testing.T, s bundle) { s.complete(a, answer(1)) },
			want:   second,
		},
		{
			name:   "released",
			before: func(_ *testing.T, s bundle) { s.win(a) },
			after:  func(_ *testing.T, s bundle) { s.release(a) },
			want:   second,
		},
		{
			name:   "released, and claimed by another at once",
			before: func(_ *testing.T, s bundle) { s.win(a) },
			after:  func(_ *testing.T, s bundle) { s.release(a); s.win(b) },
			want:   second,
		},
		{
			name:   "released, and claimed by the same token at once",
			before: func(_ *testing.T, s bundle) { s.win(a) },
			after:  func(_ *testing.T, s bundle) { s.release(a); s.win(a) },
			want:   second,
		},
		{
			name:   "forgotten",
			before: func(_ *testing.T, s bundle) { s.win(a) },
			after:  func(_ *testing.T, s bundle) { s.forget(a.Key) },
			want:   second,
		},
		{
			name:   "the lease lapses",
			before: func(_ *testing.T, s bundle) { s.win(a) },
			want:   lease,
		},
		{
			name:   "the lease lapses into a hold",
			before: func(_ *testing.T, s bundle) { s.win(held(a, ttl)) },
			want:   lease,
		},
		{
			name:   "the lease is extended",
			before: func(_ *testing.T, s bundle) { s.win(a) },
			after:  func(t *testing.T, s bundle) { require.NoError(t, s.extend(a)) },
			want:   second + lease,
		},
		{
			name:   "the lease is extended twice, the second time after its first end",
			before: func(_ *testing.T, s bundle) { s.win(a) },
			after: func(t *testing.T, s bundle) {
				require.NoError(t, s.extend(a))
				time.Sleep(lease - second/2)
				require.NoError(t, s.extend(a))
			},
			want: second/2 + 2*lease,
		},
		{
			name:   "the lease is extended, then completed after its first end",
			before: func(_ *testing.T, s bundle) { s.win(a) },
			after: func(t *testing.T, s bundle) {
				require.NoError(t, s.extend(a))
				time.Sleep(lease - second/2)
				s.complete(a, answer(1))
			},
			want: second/2 + lease,
		},
		{
			name:   "the lease is cut short",
			before: func(_ *testing.T, s bundle) { s.win(a) },
			after:  func(t *testing.T, s bundle) { require.NoError(t, s.Extend(t.Context(), a, second)) },
			want:   2 * second,
		},
		{
			name:   "losers change nothing",
			before: func(_ *testing.T, s bundle) { s.win(a) },
			after:  func(_ *testing.T, s bundle) { s.claim(b); s.release(b); s.claim(a) },
			want:   second + lease, // the owner's own claim is a lease anew
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := setup(t)
				if tt.before != nil {
					tt.before(t, s)
				}
				start := time.Now()
				done := make(chan time.Duration)
				go func() {
					err := s.Wait(t.Context(), a.Key)
					if err != nil {
						t.Error(err)
					}
					done <- time.Since(start)
				}()
				if tt.after != nil {
					time.Sleep(second)
					tt.after(t, s)
				}
				require.Equal(t, tt.want, <-done)
			})
		})
	}
}

// TestWaitersGiveUp: one that gives up does so at once, with the error of its
// own context, and the others know nothing of it.
func TestWaitersGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := setup(t)
		s.win(a)
		start := time.Now()
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				ctx, want, after := t.Context(), error(nil), time.Second
				if i%2 == 0 {
					short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
					defer cancel()
					ctx, want, after = short, context.DeadlineExceeded, 100*time.Millisecond
				}
				if err := s.Wait(ctx, a.Key); err != want {
					t.Errorf("waiter %d: %v", i, err)
				}
				if got := time.Since(start); got != after {
					t.Errorf("waiter %d returned after %s", i, got)
				}
			})
		}
		time.Sleep(time.Second)
		s.complete(a, answer(1))
		wg.Wait()
	})
}

// TestWaitWithDoneContext: whatever the key holds, a context that has ended is
// an error.
func TestWaitWithDoneContext(t *testing.T) {
	t.Parallel()
	s := setup(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, s.Wait(ctx, a.Key), context.Canceled)
	s.win(a)
	require.ErrorIs(t, s.Wait(ctx, a.Key), context.Canceled)
}

// TestWaitersLeaveNothing: a thousand that gave up on a claim that goes on are
// nowhere to be seen.
func TestWaitersLeaveNothing(t *testing.T) {
	s := setup(t)
	s.win(a)
	goroutines, start := runtime.NumGoroutine(), heapInUse()
	for range 10 {
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() {
				if err := s.Wait(ctx, a.Key); err != context.Canceled {
					t.Error(err)
				}
			})
		}
		cancel()
		wg.Wait()
	}
	requireGoroutines(t, goroutines)
	require.Less(t, heapInUse()-start, int64(8<<20), "what the runtime keeps of ended goroutines, and no more")
	runtime.KeepAlive(s)
}

// TestWaitUnderContention: whoever waits while a key changes hands gets through,
// and after a release exactly one of those who waited has the key.
func TestWaitUnderContention(t *testing.T) {
	t.Parallel()
	s := setup(t)
	const workers, turns = 16, 50
	var wg sync.WaitGroup
	var holders, total int // guarded by the claim
	for w := range workers {
		wg.Go(func() {
			c := as(a, string(rune('a'+w)))
			for n := 0; n < turns; {
				rec, err := s.Claim(context.Background(), c, time.Hour)
				if err != nil {
					t.Error(err)
					return
				}
				if rec != nil {
					if err := s.Wait(context.Background(), c.Key); err != nil {
						t.Error(err)
						return
					}
					continue
				}
				if holders++; holders != 1 {
					t.Errorf("%d holders", holders)
				}
				runtime.Gosched()
				holders--
				total++
				n++
				if err := s.Release(context.Background(), c); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, workers*turns, total)
	require.Zero(t, s.Len())
}

// TestTakeoverUnderContention: of many who would replace a lapsed claim one
// does, and who waits for that one is not woken by the rest.
func TestTakeoverUnderContention(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			s := setup(t)
			s.win(held(a, time.Hour))
			time.Sleep(lease)
			var wg sync.WaitGroup
			var mu sync.Mutex
			winners := 0
			for w := range 32 {
				wg.Go(func() {
					rec, err := s.Claim(t.Context(), replacing(as(a, string(rune('b'+w))), "a"), lease)
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					defer mu.Unlock()
					if rec == nil {
						winners++
					} else if rec.Lapsed || rec.Token == "a" {
						t.Errorf("%+v", rec)
					}
				})
			}
			wg.Wait()
			require.Equal(t, 1, winners)
			start := time.Now()
			require.NoError(t, s.Wait(t.Context(), a.Key))
			require.Equal(t, lease, time.Since(start))
		})
	}
}

var _ idempotency.Waiter = bundle{}
