package memstore_test

import (
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
			rec, err := s.Claim(t.Context(), c, 10*time.Millisecond)
			require.NoError(t, err)
			require.Nil(t, rec)
			require.NoError(t, s.Complete(t.Context(), c, resp, 50*time.Millisecond))
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
	require.LessOrEqual(t, runtime.NumGoroutine(), goroutines)
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
		for i := range running {
			s.win(claimOf(i))
		}
		for round := range 100 {
			s.win(claimOf(running + round))
			time.Sleep(lease / 3)
			for i := range running {
				require.NoError(t, s.extend(claimOf(i)))
			}
		}
		synctest.Wait()
		require.InDelta(t, running, s.Len(), 3)
		time.Sleep(lease + 100*time.Millisecond)
		synctest.Wait()
		require.Zero(t, s.Len())
	})
}
