package memstore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
)

// TestKeysWithOneHash: keys whose hashes are the same are still different keys,
// in whatever order they come and go. It is a test from inside, since nobody can
// find such keys.
func TestKeysWithOneHash(t *testing.T) {
	t.Parallel()
	orders := [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}
	for _, order := range orders {
		s := New()
		spots := make([]spot, 3)
		for i := range spots {
			key := idempotency.NewKey("user", "POST /", string(rune('a'+i)))
			spots[i] = spot{&s.shards[0], key, 7}
			c := idempotency.Claim{Key: key, Token: key.Value}
			_, v := s.take(spots[i], c, newEntry(c, 7), time.Hour)
			require.Equal(t, won, v)
		}
		require.Len(t, s.shards[0].entries, 1)
		gone := make([]bool, len(spots))
		for _, i := range order {
			s.drop(spots[i])
			gone[i] = true
			for j, at := range spots {
				held, found := s.read(at)
				require.Equal(t, !gone[j], found, "order %v, key %d", order, j)
				if found {
					require.Equal(t, at.key.Value, held.record.Token)
				}
			}
		}
		require.Empty(t, s.shards[0].entries)
		require.Zero(t, s.Len())
		require.Zero(t, s.Bytes())
	}
}

// TestShrinkWithOneHash: a map that is made anew holds every key that it held.
func TestShrinkWithOneHash(t *testing.T) {
	t.Parallel()
	s := New()
	key := func(i int) spot {
		return spot{&s.shards[0], idempotency.NewKey("user", "POST /", string(rune(i))), uint64(i % 3)}
	}
	const n = 10 * keepMap
	for i := range n {
		at := key(i)
		c := idempotency.Claim{Key: at.key, Token: "t"}
		s.take(at, c, newEntry(c, at.hash), time.Hour)
	}
	for i := range n - 5 {
		s.drop(key(i))
	}
	require.Less(t, s.shards[0].peak, n)
	for i := n - 5; i < n; i++ {
		_, found := s.read(key(i))
		require.True(t, found, i)
	}
}
