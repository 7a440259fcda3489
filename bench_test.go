package idempotency_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
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

// benchKeySet returns n keys.
func benchKeySet(n int) [][]string {
	keys := make([][]string, n)
	for i := range keys {
		keys[i] = []string{fmt.Sprintf("9b2d7c1e-0000-4000-8000-%012d", i)}
	}
	return keys
}

// benchHandler reads its request and answers with a body of that size. Its record
// is of no use once it is made: the next round runs again.
func benchHandler(size int) http.Handler { return benchHandlerFor(size, time.Nanosecond) }

// benchHandlerFor is benchHandler with another TTL.
func benchHandlerFor(size int, ttl time.Duration) http.Handler {
	answer := bytes.Repeat([]byte("y"), size)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		idempotency.FromContext(r.Context()).SetTTL(ttl)
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

// benchRun sends requests with the keys in turn, or without a key.
func benchRun(b *testing.B, h http.Handler, size int, keys [][]string) {
	b.ReportAllocs()
	c := newBenchClient(size)
	for i := 0; b.Loop(); i++ {
		if keys == nil {
			c.send(h, nil)
		} else {
			c.send(h, keys[i%len(keys)])
		}
	}
}

func BenchmarkNoKey(b *testing.B) {
	for _, size := range []int{1 << 10, 64 << 10} {
		bare := benchHandler(size)
		mw := idempotency.New(memstore.New(), benchUser)
		b.Run(fmt.Sprintf("size=%d/bare", size), func(b *testing.B) { benchRun(b, bare, size, nil) })
		b.Run(fmt.Sprintf("size=%d/guarded", size), func(b *testing.B) { benchRun(b, mw.Handler(bare), size, nil) })
	}
}

// BenchmarkFirst and BenchmarkReplay measure how the cost grows with the body:
// that of the request is as large as that of the answer.
func BenchmarkFirst(b *testing.B)  { benchSizes(b, false) }
func BenchmarkReplay(b *testing.B) { benchSizes(b, true) }

func benchSizes(b *testing.B, replay bool) {
	for _, size := range []int{1 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20} {
		keys := benchKeySet(max(16, min(1024, 16<<20/size)))
		floor, guarded := benchPair(size, keys, replay)
		name := fmt.Sprintf("size=%d/", size)
		b.Run(name+"bare", func(b *testing.B) { benchRun(b, benchHandler(size), size, keys) })
		b.Run(name+"floor", func(b *testing.B) { benchRun(b, floor, size, keys) })
		b.Run(name+"guarded", func(b *testing.B) { benchRun(b, guarded, size, keys) })
	}
}

// benchPair returns the floor and the guarded handler. For replays they have
// answered all keys already.
func benchPair(size int, keys [][]string, replay bool) (floor, guarded http.Handler) {
	handler := benchHandler(size)
	if replay {
		handler = benchHandlerFor(size, time.Hour)
	}
	store := memstore.New(memstore.WithMaxBytes(8 << 30))
	floor, guarded = newFloor(handler, !replay), idempotency.New(store, benchUser).Handler(handler)
	if replay {
		c := newBenchClient(size)
		for i := range keys {
			c.send(floor, keys[i])
			c.send(guarded, keys[i])
		}
	}
	return floor, guarded
}

// BenchmarkTwin measures the refusal of a request whose first one still runs.
func BenchmarkTwin(b *testing.B) {
	key := benchKeySet(1)[0]
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
