package memstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/memstore"
)

func TestSenselessLimits(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, -1} {
		require.PanicsWithValue(t,
			fmt.Sprintf("memstore: WithMaxEntries(%d) leaves no room for a single key; give a number above zero, or leave the option out", n),
			func() { memstore.WithMaxEntries(n) })
		require.PanicsWithValue(t,
			fmt.Sprintf("memstore: WithMaxBytes(%d) leaves no room for a single key; give a number of bytes above zero, or leave the option out for 256 MiB", n),
			func() { memstore.WithMaxBytes(int64(n)) })
	}
}

// TestFullStore: whatever state a key is in, a flood of new ones does not push
// it out; what has expired makes room, and nothing else.
func TestFullStore(t *testing.T) {
	const limit = 100
	tests := []struct {
		name string
		opt  memstore.Option
	}{
		{"entries", memstore.WithMaxEntries(limit)},
		{"bytes", memstore.WithMaxBytes(sizeOfClaim(t) * limit)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testFullStore(t, setup(t, tt.opt), limit) })
		})
	}
}

// sizeOfClaim is what one claim takes of the limit of bytes.
func sizeOfClaim(t *testing.T) int64 {
	s := setup(t)
	s.win(claimOf(0))
	return s.Bytes()
}

func testFullStore(t *testing.T, s bundle, limit int) {
	running, lapsed, done := held(claimOf(1), ttl), held(claimOf(2), ttl), claimOf(3)
	s.win(lapsed)
	time.Sleep(lease)
	s.win(running)
	s.win(done)
	for i := 3; i < limit; i++ {
		s.win(claimOf(1000 + i))
	}
	s.complete(done, &idempotency.Response{}) // in time, and above the limit of bytes
	flood := func(ok int) {
		t.Helper()
		for i := range 500 {
			_, err := s.Claim(t.Context(), claimOf(10_000+i), lease)
			if i < ok {
				require.NoError(t, err, "%d", i)
			} else {
				require.ErrorIs(t, err, idempotency.ErrStoreFull, "%d", i)
			}
		}
		require.Equal(t, limit, s.Len())
		require.False(t, s.claim(as(running, "x")).Lapsed)
		require.True(t, s.claim(as(lapsed, "x")).Lapsed)
		require.NotNil(t, s.claim(as(done, "x")).Response)
	}
	flood(0)

	// What needs no room of its own is not refused for want of it.
	s.win(running)
	s.win(lapsed)
	require.NoError(t, s.extend(running))
	require.NoError(t, s.extend(lapsed))
	s.complete(running, answer(10_000))
	s.complete(claimOf(9), answer(10_000)) // late, of a claim that has been swept
	require.Equal(t, limit+1, s.Len())
	s.forget(claimOf(9).Key)
	s.forget(running.Key)
	s.forget(done.Key)
	s.win(done)
	s.win(running)
	refused := func() {
		t.Helper()
		_, err := s.Claim(t.Context(), claimOf(10_000), lease)
		require.ErrorIs(t, err, idempotency.ErrStoreFull)
	}
	refused()
	require.NoError(t, s.Extend(t.Context(), lapsed, time.Second))
	time.Sleep(time.Second)
	refused()
	s.win(replacing(as(lapsed, "a token longer than the one that it replaces"), lapsed.Token))
	refused()
}

// TestExpiredMakeRoom: at the instant at which they expire, not a sweep later,
// the room of all that have expired is there for new claims, and an expired key
// for itself.
func TestExpiredMakeRoom(t *testing.T) {
	for _, limit := range []int{1, 5, 5000} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := setup(t, memstore.WithMaxEntries(limit))
				for i := range limit {
					s.win(claimOf(i))
				}
				for i := range limit {
					require.NoError(t, s.extend(claimOf(i))) // queued too early from here on
				}
				_, err := s.Claim(t.Context(), claimOf(limit), lease)
				require.ErrorIs(t, err, idempotency.ErrStoreFull)
				time.Sleep(lease - 1)
				_, err = s.Claim(t.Context(), claimOf(limit), lease)
				require.ErrorIs(t, err, idempotency.ErrStoreFull)
				time.Sleep(time.Nanosecond)
				s.win(claimOf(limit - 1))
				for i := range limit - 1 {
					s.win(claimOf(limit + i))
				}
				_, err = s.Claim(t.Context(), claimOf(3*limit), lease)
				require.ErrorIs(t, err, idempotency.ErrStoreFull)
			})
		})
	}
}

func TestKeyLargerThanStore(t *testing.T) {
	t.Parallel()
	s := setup(t, memstore.WithMaxBytes(1024))
	c := as(claimOf(1), "a")
	c.Key.Value = strings.Repeat("x", 1024)
	_, err := s.Claim(t.Context(), c, lease)
	require.ErrorIs(t, err, idempotency.ErrStoreFull)
	require.Zero(t, s.Len())
	require.Zero(t, s.Bytes())
	s.win(claimOf(1)) // and it takes nobody's room
}

// TestLimitUnderContention: the limit holds at every moment, every claim in it
// is there at the end, and what is given back is counted back.
func TestLimitUnderContention(t *testing.T) {
	t.Parallel()
	const limit, workers, rounds = 50, 16, 300
	s := setup(t, memstore.WithMaxEntries(limit))
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(w), 2))
			var mine []idempotency.Claim
			for i := range rounds {
				c := claimOf(w*rounds + i)
				_, err := s.Claim(context.Background(), c, time.Hour)
				switch {
				case err == nil:
					mine = append(mine, c)
				case err != idempotency.ErrStoreFull:
					t.Error(err)
				}
				if n := s.Len(); n > limit+workers {
					t.Errorf("%d keys", n)
				}
				if n := len(mine); n > 0 && rnd.IntN(3) == 0 {
					if err := s.Release(context.Background(), mine[n-1]); err != nil {
						t.Error(err)
					}
					mine = mine[:n-1]
				}
			}
			for _, c := range mine {
				if err := s.Extend(context.Background(), c, time.Hour); err != nil {
					t.Errorf("a claim was dropped: %v", err)
				}
			}
		})
	}
	wg.Wait()
	require.LessOrEqual(t, s.Len(), limit)
}

// TestLimitOfBytes holds the count of bytes to what the heap says.
func TestLimitOfBytes(t *testing.T) {
	header := func(n int) http.Header {
		h := http.Header{}
		for i := range n {
			h[fmt.Sprintf("X-Header-%d", i)] = []string{"0123456789abcdef"}
		}
		return h
	}
	tests := []struct {
		name string
		resp *idempotency.Response
	}{
		{"claims", nil},
		{"no header, no body", &idempotency.Response{}},
		{"two fields, no body", &idempotency.Response{Header: header(2)}},
		{"thirty fields, small body", &idempotency.Response{Header: header(30), Body: make([]byte, 256)}},
		{"four fields, a KiB", &idempotency.Response{Header: header(4), Body: make([]byte, 1024)}},
		{"4 KiB", &idempotency.Response{Body: make([]byte, 4096)}},
		{"33 KiB", &idempotency.Response{Body: make([]byte, 33<<10)}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			const limit = 16 << 20
			before := heapInUse()
			s := setup(t, memstore.WithMaxBytes(limit))
			n := 0
			for ; ; n++ {
				c := claimOf(n)
				if _, err := s.Claim(t.Context(), c, time.Hour); err != nil {
					require.ErrorIs(t, err, idempotency.ErrStoreFull)
					break
				}
				if tt.resp == nil {
					continue
				}
				if err := s.Complete(t.Context(), c, tt.resp, time.Hour); err != nil {
					t.Fatal(err)
				}
			}
			got := heapInUse() - before
			t.Logf("%d keys: %.3f of the limit", n, float64(got)/limit)
			require.Less(t, float64(got), 1.1*limit)
			if strconv.IntSize == 64 { // a 32-bit machine needs less
				require.Greater(t, float64(got), 0.9*limit)
			}
			runtime.KeepAlive(s)
		})
	}
}

// heapInUse is the size of what is reachable.
func heapInUse() int64 {
	runtime.GC()
	runtime.GC() // what the first one left to sweep
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
