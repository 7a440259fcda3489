package memstore_test

import (
	"bytes"
	"context"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/memstore"
)

// TestEverythingAtOnce makes all calls at the same time, with leases and TTLs of
// milliseconds, so that sweeps, expiry on access, waiting and a full store meet.
// A key must never have two owners whose leases run, and no answer may be torn.
func TestEverythingAtOnce(t *testing.T) {
	t.Parallel()
	const workers, keys = 8, 40
	s := memstore.New(memstore.WithMaxEntries(30))
	ctx := t.Context() // of the calls, which must all be made: a claim left over lives for a minute
	end := time.Now().Add(1500 * time.Millisecond)
	var running [keys]atomic.Int32
	var runs atomic.Int64
	work := func(w int) {
		rnd := rand.New(rand.NewPCG(uint64(w), 3))
		for time.Now().Before(end) {
			k := rnd.IntN(keys)
			c := as(claimOf(k), string(rune('a'+w)))
			if rnd.IntN(4) == 0 {
				c.Hold = time.Duration(rnd.IntN(3)) * time.Millisecond
			}
			rec, err := s.Claim(ctx, c, time.Minute)
			switch {
			case err != nil:
			case rec == nil:
				runs.Add(1)
				if running[k].Add(1) != 1 {
					t.Error("two owners")
				}
				err = s.Extend(ctx, c, time.Minute)
				running[k].Add(-1)
				if err == nil {
					err = finish(ctx, s, rnd, c, byte(w))
				}
			case rec.Response != nil:
				requireWhole(t, rec)
			default:
				short, stop := context.WithTimeout(ctx, time.Millisecond)
				_ = s.Wait(short, c.Key)
				stop()
			}
			if err != nil && err != idempotency.ErrStoreFull {
				t.Error(err)
			}
		}
	}
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() { work(w) })
	}
	wg.Wait()
	require.Greater(t, runs.Load(), int64(100))
	require.Eventually(t, func() bool { return s.Len() == 0 && s.Bytes() == 0 }, 30*time.Second, 10*time.Millisecond,
		"claims that were left to lapse, and all records, are swept")
}

// finish ends a run in one of the ways a run can end.
func finish(ctx context.Context, s *memstore.Store, rnd *rand.Rand, c idempotency.Claim, w byte) error {
	few := time.Duration(1+rnd.IntN(5)) * time.Millisecond
	switch rnd.IntN(4) {
	case 0:
		return s.Release(ctx, c)
	case 1:
		return s.Extend(ctx, c, few) // and crashed
	}
	body := bytes.Repeat([]byte{w}, 100)
	return s.Complete(ctx, c, &idempotency.Response{
		Status: int(w),
		Header: http.Header{"W": {string(rune(w)), string(rune(w))}},
		Body:   body,
	}, few)
}

// requireWhole checks that all of an answer is by the same owner, and writes on
// it: it is the caller's own.
func requireWhole(t *testing.T, rec *idempotency.Record) {
	resp := rec.Response
	w := rec.Token[0] - 'a'
	want := string(rune(w))
	whole := resp.Status == int(w) && len(resp.Body) == 100 && bytes.Count(resp.Body, []byte{w}) == 100 &&
		len(resp.Header["W"]) == 2 && resp.Header["W"][0] == want && resp.Header["W"][1] == want
	if !whole {
		t.Errorf("a torn answer: %+v", rec)
	}
	resp.Header["W"][0] = "overwritten"
	resp.Header.Set("Added", "by the reader")
	clear(resp.Body)
}
