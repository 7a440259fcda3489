package idempotency_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/memstore"
)

// probe remembers the most memory that was reachable at any of its looks.
type probe struct {
	most    int64
	working int64 // while the handler works, having read its body
}

func (p *probe) look() { p.most = max(p.most, reachable()) }

// reachable is the size of the heap without garbage.
func reachable() int64 {
	runtime.GC()
	runtime.GC() // what the first one left to sweep
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// probedStore looks when the record has been made and the request still has all
// that it was made from.
type probedStore struct {
	*memstore.Store
	*probe
}

func (s probedStore) Complete(ctx context.Context, c idempotency.Claim, resp *idempotency.Response, ttl time.Duration) error {
	s.look()
	defer s.look()
	return s.Store.Complete(ctx, c, resp, ttl)
}

// probedWriter looks when the answer goes out.
type probedWriter struct {
	http.ResponseWriter
	*probe
}

func (w probedWriter) Write(p []byte) (int, error) {
	w.look()
	return len(p), nil
}

// zeros is a body without end that takes no memory.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// TestPeakMemory: a request with a body of 1 MiB and an answer of 1 MiB takes at
// most 2.5 MiB more than at the bare handler, the record included. It looks at the
// whole heap, and has a process of its own for that.
func TestPeakMemory(t *testing.T) {
	const alone = "IDEMPOTENCY_TEST_ALONE"
	if os.Getenv(alone) == "" {
		t.Parallel()
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestPeakMemory$", "-test.v")
		cmd.Env = append(os.Environ(), alone+"=1")
		out, err := cmd.CombinedOutput()
		t.Logf("%s", out)
		require.NoError(t, err)
		return
	}
	const size, aim = 1 << 20, 5 << 19
	piece := make([]byte, 32<<10)
	whole := make([]byte, size)
	tests := []struct {
		name  string
		read  func(io.Reader)
		reads bool
		piece []byte
	}{
		{"copied, answered at once", func(body io.Reader) { _, _ = io.Copy(io.Discard, body) }, true, whole},
		{"read, answered piece by piece", func(body io.Reader) { _, _ = io.ReadFull(body, whole) }, true, piece},
		{"unread, answered at once", func(io.Reader) {}, false, whole},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			handler := func(p *probe) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					p.look()
					tt.read(r.Body)
					p.working = reachable()
					for range size / len(tt.piece) {
						_, _ = w.Write(tt.piece)
						p.look()
					}
				})
			}
			send := func(h http.Handler, p *probe) (most, working int64) {
				r := httptest.NewRequest(http.MethodPost, "/payments", io.LimitReader(zeros{}, size))
				r.ContentLength = size
				r.Header.Set("Idempotency-Key", "order-1")
				before := reachable()
				h.ServeHTTP(probedWriter{httptest.NewRecorder(), p}, r)
				return p.most - before, p.working - before
			}
			var bare, guarded probe
			least, _ := send(handler(&bare), &bare)
			store := probedStore{memstore.New(), &guarded}
			most, working := send(idempotency.New(store, idempotency.SharedKeys).Handler(handler(&guarded)), &guarded)
			t.Logf("%.2f MiB above the bare handler", float64(most-least)/(1<<20))
			require.Less(t, most-least, int64(aim))
			require.Greater(t, most-least, int64(size), "too little was seen")
			if tt.reads {
				require.Less(t, working, int64(size/2), "the body is still in memory")
			}
			runtime.KeepAlive(store)
		})
	}
}
