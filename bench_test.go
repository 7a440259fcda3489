package idempotency_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/memstore"
)

// The benchmarks compare the middleware with a floor: a handler that only does
// what no middleware of this kind can leave out. It reads the body, hashes it,
// touches a map under a mutex and copies the answer. Keys go round in a fixed
// set, so that what is measured is not the growth of a heap.
const benchKeys = 1 << 10

// benchWriter is a ResponseWriter that costs next to nothing.
type benchWriter struct {
	header http.Header
	status int
	n      int
}

func (w *benchWriter) Header() http.Header { return w.header }
func (w *benchWriter) WriteHeader(s int)   { w.status = s }
func (w *benchWriter) Write(p []byte) (int, error) {
	w.n += len(p)
	return len(p), nil
}

func (w *benchWriter) reset() {
	clear(w.header)
	w.status, w.n = 0, 0
}

// benchBody is a request body that can be sent again.
type benchBody struct{ bytes.Reader }

func (*benchBody) Close() error { return nil }

// benchClient sends one request after the other to a handler.
type benchClient struct {
	w    benchWriter
	r    *http.Request
	body benchBody
	data []byte
}

func newBenchClient(size int) *benchClient {
	c := &benchClient{data: bytes.Repeat([]byte("x"), size)}
	c.w.header = make(http.Header)
	c.r = httptest.NewRequest(http.MethodPost, "/payments", nil)
	c.r.Body = &c.body
	c.r.ContentLength = int64(size)
	return c
}

func (c *benchClient) send(h http.Handler, key []string) {
	c.w.reset()
	c.body.Reset(c.data)
	c.r.Body = &c.body
	if key == nil {
		delete(c.r.Header, "Idempotency-Key")
	} else {
		c.r.Header["Idempotency-Key"] = key
	}
	h.ServeHTTP(&c.w, c.r)
}

func benchKeySet() [][]string {
	keys := make([][]string, benchKeys)
	for i := range keys {
		keys[i] = []string{fmt.Sprintf("9b2d7c1e-0000-4000-8000-%012d", i)}
	}
	return keys
}

// benchHandler reads its request and answers with a body of that size.
func benchHandler(size int) http.Handler {
	answer := bytes.Repeat([]byte("y"), size)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		// The record is of no use once it is made: the next round runs again.
		idempotency.FromContext(r.Context()).SetTTL(time.Nanosecond)
		h := w.Header()
		h.Set("Content-Type", "application/json")
		h.Set("Location", "/payments/1")
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(answer)
	})
}

func benchUser(*http.Request) (string, error) { return "user-1", nil }

// floor is the handler with the least that any middleware must do.
type floor struct {
	mu      sync.Mutex
	next    http.Handler
	answers map[string]*floorAnswer
	rerun   bool
}

type floorAnswer struct {
	print  [32]byte
	status int
	header http.Header
	body   []byte
}

func (f *floor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body := make([]byte, r.ContentLength)
	_, _ = io.ReadFull(r.Body, body)
	print := sha256.Sum256(body)
	key := r.Header.Get("Idempotency-Key")
	f.mu.Lock()
	a := f.answers[key]
	f.mu.Unlock()
	if a != nil && !f.rerun && a.print == print {
		for name, values := range a.header.Clone() {
			w.Header()[name] = values
		}
		w.WriteHeader(a.status)
		_, _ = w.Write(bytes.Clone(a.body))
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	rec := floorRecorder{ResponseWriter: w}
	f.next.ServeHTTP(&rec, r)
	a = &floorAnswer{print, rec.status, w.Header().Clone(), rec.body}
	f.mu.Lock()
	f.answers[key] = a
	f.mu.Unlock()
}

type floorRecorder struct {
	http.ResponseWriter
	status int
	body   []byte
}

func (w *floorRecorder) WriteHeader(s int) { w.status = s; w.ResponseWriter.WriteHeader(s) }
func (w *floorRecorder) Write(p []byte) (int, error) {
	w.body = append(w.body, p...)
	return w.ResponseWriter.Write(p)
}

func newFloor(next http.Handler, rerun bool) *floor {
	return &floor{next: next, answers: make(map[string]*floorAnswer), rerun: rerun}
}

// benchRun measures one handler, serially or in parallel.
func benchRun(b *testing.B, h http.Handler, size int, keys [][]string, parallel bool) {
	b.ReportAllocs()
	if !parallel {
		c := newBenchClient(size)
		for i := 0; b.Loop(); i++ {
			c.send(h, benchKey(keys, i))
		}
		return
	}
	var next struct {
		sync.Mutex
		n int
	}
	b.RunParallel(func(pb *testing.PB) {
		next.Lock()
		i := next.n // each goroutine its own part of the keys, so that none is a twin
		next.n += benchKeys / 64
		next.Unlock()
		c := newBenchClient(size)
		for j := 0; pb.Next(); j = (j + 1) % (benchKeys / 64) {
			c.send(h, benchKey(keys, i+j))
		}
	})
}

func benchKey(keys [][]string, i int) []string {
	if keys == nil {
		return nil
	}
	return keys[i%len(keys)]
}

func BenchmarkNoKey(b *testing.B) {
	for _, size := range []int{1 << 10, 64 << 10} {
		bare := benchHandler(size)
		b.Run("size="+strconv.Itoa(size)+"/bare", func(b *testing.B) { benchRun(b, bare, size, nil, false) })
		mw := idempotency.New(memstore.New(), benchUser)
		b.Run("size="+strconv.Itoa(size)+"/guarded", func(b *testing.B) { benchRun(b, mw.Handler(bare), size, nil, false) })
	}
}

func BenchmarkFirst(b *testing.B)  { benchSizes(b, false) }
func BenchmarkReplay(b *testing.B) { benchSizes(b, true) }

func benchSizes(b *testing.B, replay bool) {
	keys := benchKeySet()
	for _, size := range []int{1 << 10, 64 << 10} {
		for _, parallel := range []bool{false, true} {
			name := fmt.Sprintf("size=%d/parallel=%t/", size, parallel)
			bare := benchHandler(size)
			handler := bare
			if replay {
				handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					bare.ServeHTTP(w, r)
					idempotency.FromContext(r.Context()).SetTTL(time.Hour)
				})
			}
			floor := newFloor(handler, !replay)
			guarded := idempotency.New(memstore.New(), benchUser).Handler(handler)
			if replay {
				c := newBenchClient(size)
				for i := range keys {
					c.send(floor, keys[i])
					c.send(guarded, keys[i])
				}
			}
			b.Run(name+"bare", func(b *testing.B) { benchRun(b, bare, size, keys, parallel) })
			b.Run(name+"floor", func(b *testing.B) { benchRun(b, floor, size, keys, parallel) })
			b.Run(name+"guarded", func(b *testing.B) { benchRun(b, guarded, size, keys, parallel) })
		}
	}
}

// BenchmarkTwin measures the refusal of a request whose first one still runs.
func BenchmarkTwin(b *testing.B) {
	key := benchKeySet()[0]
	store := memstore.New()
	running, end := make(chan struct{}), make(chan struct{})
	guarded := idempotency.New(store, benchUser).Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(running)
		<-end
	}))
	var wg sync.WaitGroup
	wg.Go(func() { newBenchClient(1<<10).send(guarded, key) })
	<-running
	c := newBenchClient(1 << 10)
	b.ReportAllocs()
	for b.Loop() {
		c.send(guarded, key)
	}
	close(end)
	wg.Wait()
	if err := store.Forget(context.Background(), idempotency.NewKey("user-1", "POST /payments", key[0])); err != nil {
		b.Fatal(err)
	}
}
