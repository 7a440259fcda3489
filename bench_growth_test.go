package idempotency_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/memstore"
)

// BenchmarkLive measures how the cost grows with the keys that the store holds.
// The key of a replay has just been read from a request; its record is somewhere
// in memory.
func BenchmarkLive(b *testing.B) {
	const size = 256
	for _, live := range []int{1_000, 10_000, 100_000, 1_000_000} {
		mw := idempotency.New(memstore.New(memstore.WithMaxBytes(8<<30)), benchUser)
		replay, first := mw.Handler(benchHandlerFor(size, time.Hour)), mw.Handler(benchHandler(size))
		c := newBenchClient(size)
		number := benchKeySet(1)[0]
		text := []byte(number[0])
		send := func(h http.Handler, i int) {
			for at := len(text) - 1; at > len(text)-8; at-- {
				text[at] = byte('0' + i%10)
				i /= 10
			}
			number[0] = string(text)
			c.send(h, number)
		}
		for i := range live {
			send(replay, i)
		}
		b.Run(fmt.Sprintf("first/live=%d", live), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i = (i + 1) % 1024 {
				send(first, live+i)
			}
		})
		b.Run(fmt.Sprintf("replay/live=%d", live), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i = (i + 7919) % live {
				send(replay, i)
			}
		})
	}
}

// BenchmarkGoroutines measures how much g goroutines get done together: first
// runs and replays of many keys, and replays of one.
func BenchmarkGoroutines(b *testing.B) {
	const size = 1 << 10
	keys := benchKeySet(1024)
	_, first := benchPair(size, keys, false)
	floor, replay := benchPair(size, keys, true)
	for _, bm := range []struct {
		name string
		h    http.Handler
		keys [][]string
	}{
		{"first", first, keys},
		{"replay", replay, keys},
		{"hotkey", replay, keys[:1]},
		{"hotkeyfloor", floor, keys[:1]},
	} {
		for _, g := range []int{1, 2, 4, 8, 16, 32, 64} {
			b.Run(fmt.Sprintf("%s/g=%d", bm.name, g), func(b *testing.B) { benchTogether(b, bm.h, size, bm.keys, g) })
		}
	}
}

// benchTogether has g goroutines send requests, each with a part of the keys of
// its own where there is more than one.
func benchTogether(b *testing.B, h http.Handler, size int, keys [][]string, g int) {
	b.ReportAllocs()
	var wg sync.WaitGroup
	for i := range g {
		n := b.N / g
		if i < b.N%g {
			n++
		}
		part := max(1, len(keys)/g)
		mine := keys[i*part%len(keys):][:part]
		wg.Go(func() {
			c := newBenchClient(size)
			for j := range n {
				c.send(h, mine[j%part])
			}
		})
	}
	wg.Wait()
}
