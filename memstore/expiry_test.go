package memstore_test

import (
	"math/rand/v2"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/memstore"
)

// TestMemoryIsGivenBack: what has expired leaves the heap without any traffic,
// the maps and queues made for a flood included, while a few keys live on.
func TestMemoryIsGivenBack(t *testing.T) {
	const n = 200_000
	synctest.Test(t, func(t *testing.T) {
		s := setup(t, memstore.WithMaxBytes(1<<30))
		for i := range 100 {
			s.complete(claimOf(n+i), answer(100))
		}
		start := heapInUse()
		resp := answer(100)
		for i := range n {
			c := claimOf(i)
			if rec, err := s.Claim(t.Context(), c, 10*time.Millisecond); rec != nil || err != nil {
				t.Fatal(rec, err)
			}
			if err := s.Complete(t.Context(), c, resp, 50*time.Millisecond); err != nil {
				t.Fatal(err)
			}
		}
		require.Equal(t, n+100, s.Len())
		require.Greater(t, heapInUse()-start, int64(100<<20), "the flood is in memory")

		time.Sleep(150 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, 100, s.Len())
		require.Less(t, heapInUse()-start, int64(1<<20))
		for i := range 100 {
			require.NotNil(t, s.lookup(claimOf(n+i).Key))
		}
	})
}

// TestReleasedMemoryIsGivenBack: the same for claims that are released or
// forgotten at once, however long their leases are.
func TestReleasedMemoryIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := setup(t)
		start := heapInUse()
		for i := range 50_000 {
			s.win(held(claimOf(i), ttl))
		}
		for i := range 50_000 {
			if i%2 == 0 {
				s.release(claimOf(i))
			} else {
				s.forget(claimOf(i).Key)
			}
		}
		require.Zero(t, s.Len())
		require.Zero(t, s.Bytes())
		require.Less(t, heapInUse()-start, int64(1<<20))
		runtime.KeepAlive(s)
	})
}

// TestDroppedStores: a store that nobody refers to is garbage at once, with
// records that would live for a day and a timer set for them, and leaves no
// goroutine.
func TestDroppedStores(t *testing.T) {
	goroutines := runtime.NumGoroutine()
	start := heapInUse()
	for i := range 1000 {
		s := setup(t)
		s.win(claimOf(i))
		s.complete(claimOf(i), answer(100_000))
		s.win(claimOf(i + 1))
	}
	require.Less(t, heapInUse()-start, int64(1<<20))
	requireGoroutines(t, goroutines)
}

// requireGoroutines wants no more than most goroutines, once those that have
// done their work have ended.
func requireGoroutines(t *testing.T, most int) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > most; runtime.Gosched() {
		require.True(t, time.Now().Before(end), "%d goroutines, not %d", runtime.NumGoroutine(), most)
	}
}

// TestLosersLeaveNothing: twins and replays of one key cost nothing that stays.
func TestLosersLeaveNothing(t *testing.T) {
	s := setup(t)
	s.win(a)
	start, size := heapInUse(), s.Bytes()
	for range 10_000 {
		require.NotNil(t, s.claim(b))
	}
	require.Equal(t, 1, s.Len())
	require.Equal(t, size, s.Bytes())
	require.Less(t, heapInUse()-start, int64(100<<10))
	runtime.KeepAlive(s)
}

// TestNothingLargerIsKept: texts cut from larger ones, as a path is from a long
// request line, do not keep those in memory.
func TestNothingLargerIsKept(t *testing.T) {
	s := setup(t)
	start := heapInUse()
	for i := range 100 {
		large := strings.Repeat("x", 1<<20)
		c := claimOf(i)
		c.Key.User, c.Key.Endpoint = large[:10], large[10:20]
		c.Token = large[30:40]
		s.win(c)
		s.complete(c, &idempotency.Response{
			Reference: large[:10],
			Header:    http.Header{large[:20]: {large[:30]}},
			Trailer:   http.Header{large[:20]: {large[:30]}},
			Body:      []byte(large)[:10],
		})
	}
	require.Less(t, heapInUse()-start, int64(1<<20))
	runtime.KeepAlive(s)
}

// TestSweepWhileExtended: claims that are extended again and again, as running
// handlers do it, live on while those around them expire.
func TestSweepWhileExtended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := setup(t)
		const running = 1000
		cs := claims(running)
		for i := range running {
			s.win(claimOf(i))
		}
		for round := range 100 {
			s.win(claimOf(running + round))
			time.Sleep(lease / 3)
			for i := range running {
				if err := s.extend(cs[i]); err != nil {
					t.Fatal(err)
				}
			}
		}
		synctest.Wait()
		require.InDelta(t, running, s.Len(), 3)
		time.Sleep(lease + 100*time.Millisecond)
		synctest.Wait()
		require.Zero(t, s.Len())
	})
}

// TestOrderOfExpiry: with leases of any length, made shorter and longer and
// released in the middle, every key is swept when its time has come, not when
// that of others has.
func TestOrderOfExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, longest = 20_000, time.Hour
		rnd := rand.New(rand.NewPCG(1, 4))
		s := setup(t)
		ends := make(map[int]time.Time)
		for i := range n {
			d := time.Duration(rnd.Int64N(int64(longest)))
			_, err := s.Claim(t.Context(), claimOf(i), d)
			require.NoError(t, err)
			ends[i] = time.Now().Add(d)
		}
		for range n / 2 {
			i := rnd.IntN(n)
			if _, ok := ends[i]; !ok {
				continue
			}
			d := time.Duration(rnd.Int64N(int64(longest)))
			if rnd.IntN(2) == 0 {
				d /= 1000
			}
			require.NoError(t, s.Extend(t.Context(), claimOf(i), d))
			ends[i] = time.Now().Add(d)
			if i = rnd.IntN(n); i%2 == 0 {
				s.release(claimOf(i))
				delete(ends, i)
			}
		}
		for range 200 {
			time.Sleep(longest / 200)
			synctest.Wait()
			now := time.Now()
			var least, most int // a sweep may be 100 ms away
			for i, end := range ends {
				if end.After(now) {
					least++
				}
				if end.After(now.Add(-100 * time.Millisecond)) {
					most++
				} else {
					delete(ends, i)
				}
			}
			require.LessOrEqual(t, least, s.Len())
			require.LessOrEqual(t, s.Len(), most)
		}
	})
}
