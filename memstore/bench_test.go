package memstore_test

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/memstore"
)

// answer is a typical recorded answer with a body of n bytes.
func answer(n int) *idempotency.Response {
	return &idempotency.Response{
		Status: http.StatusCreated,
		Header: http.Header{
			"Content-Type":  {"application/json"},
			"Location":      {"/payments/4711"},
			"Cache-Control": {"no-store"},
		},
		Body: make([]byte, n),
	}
}

func keyOf(i int) idempotency.Key {
	return idempotency.NewKey("customer-1", "POST /payments", fmt.Sprintf("8e03978e-40d5-43e8-bc93-%012d", i))
}

func claimOf(i int) idempotency.Claim {
	return idempotency.Claim{Key: keyOf(i), Token: fmt.Sprintf("token-%020d", i)}
}

// claims are made before the clock runs, so that only the store is measured.
func claims(n int) []idempotency.Claim {
	cs := make([]idempotency.Claim, n)
	for i := range cs {
		cs[i] = claimOf(i)
	}
	return cs
}

func filled(b *testing.B, cs []idempotency.Claim) *memstore.Store {
	b.Helper()
	s := memstore.New(memstore.WithMaxBytes(8 << 30))
	resp := answer(0)
	for _, c := range cs {
		if err := s.Complete(b.Context(), c, resp, 24*time.Hour); err != nil {
			b.Fatal(err)
		}
	}
	return s
}

// BenchmarkFirst is what the store adds to a first request: a claim and its
// completion, beside n live records.
func BenchmarkFirst(b *testing.B) {
	for _, n := range []int{1_000, 10_000, 100_000, 1_000_000} {
		b.Run(fmt.Sprintf("live=%d", n), func(b *testing.B) {
			live := claims(n)
			s := filled(b, live)
			// The same few keys again and again, forgotten after use, so that
			// the heap's growth is not what is measured.
			fresh := claims(n + 1024)[n:]
			resp := answer(1024)
			ctx := b.Context()
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				c := fresh[i%len(fresh)]
				i++
				rec, err := s.Claim(ctx, c, 30*time.Second)
				if rec != nil || err != nil {
					b.Fatal(rec, err)
				}
				if err := s.Complete(ctx, c, resp, 24*time.Hour); err != nil {
					b.Fatal(err)
				}
				if err := s.Forget(ctx, c.Key); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkReplay is a retry of a completed request, among n live records. Its
// key has just been read from a request; the record is somewhere in memory.
func BenchmarkReplay(b *testing.B) {
	for _, n := range []int{1_000, 10_000, 100_000, 1_000_000} {
		b.Run(fmt.Sprintf("live=%d", n), func(b *testing.B) {
			s := filled(b, claims(n))
			c := as(claimOf(0), "another")
			text := []byte(c.Key.Value)
			ctx := b.Context()
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				i = (i + 7919) % n
				for at, rest := len(text)-1, i; at > len(text)-8; at, rest = at-1, rest/10 {
					text[at] = byte('0' + rest%10)
				}
				c.Key.Value = string(text)
				if rec, err := s.Claim(ctx, c, time.Second); rec == nil || err != nil {
					b.Fatal(rec, err)
				}
			}
		})
	}
}

// BenchmarkHotKey is one key replayed, or refused as in progress, by 64
// goroutines a core at once, beside the mere copying of the same answer.
func BenchmarkHotKey(b *testing.B) {
	ctx := b.Context()
	s := memstore.New()
	done, running := claimOf(1), claimOf(2)
	resp := answer(1024)
	if err := s.Complete(ctx, done, resp, time.Hour); err != nil {
		b.Fatal(err)
	}
	if rec, err := s.Claim(ctx, running, time.Hour); rec != nil || err != nil {
		b.Fatal(rec, err)
	}
	claim := func(c idempotency.Claim) func() bool {
		return func() bool {
			rec, err := s.Claim(ctx, c, time.Second)
			return rec != nil && err == nil
		}
	}
	var sink atomic.Pointer[idempotency.Response]
	for _, bm := range []struct {
		name string
		call func() bool
	}{
		{"copy", func() bool {
			c := resp.Clone()
			if c.Status == 0 {
				sink.Store(c)
			}
			return c.Body != nil
		}},
		{"replay", claim(as(done, "another"))},
		{"twin", claim(as(running, "another"))},
	} {
		b.Run(bm.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetParallelism(64)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if !bm.call() {
						b.Error("nobody held the key")
						return
					}
				}
			})
		})
	}
}
