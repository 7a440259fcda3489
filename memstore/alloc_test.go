package memstore_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAllocations: what a call allocates, beside a map or queue that grows now
// and then.
func TestAllocations(t *testing.T) {
	s := setup(t)
	ctx := t.Context()
	cs := claims(4000)[2:] // not the keys of a and b
	resp := answer(1024)
	next := 0
	for _, c := range cs { // so that maps and queues have grown already
		s.win(c)
	}
	for _, c := range cs {
		s.forget(c.Key)
	}
	s.win(a)
	s.complete(a, resp)
	running := claimOf(1_000_000)
	s.win(running)
	tests := []struct {
		name string
		most float64
		call func() error
	}{
		{"a winning claim: the entry and its texts", 2, func() error {
			next++
			_, err := s.Claim(ctx, cs[next], lease)
			return err
		}},
		{"a completion: the record", 1, func() error {
			next--
			return s.Complete(ctx, cs[next], resp, ttl)
		}},
		{"a replay: record, map (2), values, body", 5, func() error { _, err := s.Claim(ctx, b, lease); return err }},
		{"a twin: record", 1, func() error { _, err := s.Claim(ctx, as(running, "x"), lease); return err }},
		{"extend", 0, func() error { return s.Extend(ctx, running, lease) }},
		{"release of what is not one's own", 0, func() error { return s.Release(ctx, b) }},
		{"wait with nothing to wait for", 0, func() error { return s.Wait(ctx, a.Key) }},
	}
	for _, tt := range tests {
		got := testing.AllocsPerRun(1000, func() {
			if err := tt.call(); err != nil {
				t.Fatal(err)
			}
		})
		require.LessOrEqual(t, got, tt.most, tt.name)
	}
}
