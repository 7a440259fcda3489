package shop

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
)

// formerly is the old middleware, over the same locks.
func formerly(old former, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get("Idempotency-Key")
		taken, answer, body, err := old.Begin(r.Context(), key)
		switch {
		case err != nil:
			w.WriteHeader(http.StatusServiceUnavailable)
		case taken && answer == nil:
			w.WriteHeader(http.StatusConflict)
		case taken:
			w.WriteHeader(answer.StatusCode)
			_, _ = w.Write(body)
		default:
			recorder := httptest.NewRecorder()
			next.ServeHTTP(recorder, r)
			if recorder.Code == http.StatusServiceUnavailable {
				_ = old.Abort(r.Context(), key)
			} else {
				_ = old.Finish(r.Context(), key, recorder)
			}
			w.WriteHeader(recorder.Code)
			_, _ = w.Write(recorder.Body.Bytes())
		}
	})
}

// payments counts its runs by key, and is busy the first time.
type payments struct {
	mu      sync.Mutex
	tries   map[string]int
	charges map[string]int
}

func (p *payments) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := r.Header.Get("Idempotency-Key")
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tries[key]++; p.tries[key] == 1 {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	p.charges[key]++
	w.Header().Set("Location", "/payments/"+key)
	w.WriteHeader(http.StatusCreated)
	_, _ = fmt.Fprintf(w, "charge %d for %s", p.charges[key], key)
}

// Old and new processes get the same keys at the same time, again and again. Each
// key is charged once, and all get the same answer.
func TestBothRun(t *testing.T) {
	server := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	defer server.Close()
	pay := &payments{tries: make(map[string]int), charges: make(map[string]int)}
	processes := []http.Handler{
		formerly(setNX{server}, pay), guarded(server, idempotency.SharedKeys, pay),
		formerly(setNX{server}, pay), guarded(server, idempotency.SharedKeys, pay),
	}
	const keys, rounds = 40, 3
	var clients sync.WaitGroup
	for i := range keys * rounds {
		for j, process := range processes {
			clients.Go(func() {
				key := fmt.Sprintf("order-%d", (i+j)%keys)
				status, body := send(process, key)
				if want := "charge 1 for " + key; status != http.StatusCreated || body != want {
					t.Errorf("process %d answers %d %q, want %q", j, status, body, want)
				}
			})
		}
	}
	clients.Wait()
	require.Len(t, pay.charges, keys)
	for key, n := range pay.charges {
		require.Equal(t, 1, n, key)
	}
}

// send sends a request until it is answered otherwise than "later", or long
// enough for a key that is stuck.
func send(process http.Handler, key string) (status int, body string) {
	for range 10_000 {
		r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader("{}"))
		r.Header.Set("Idempotency-Key", key)
		w := httptest.NewRecorder()
		process.ServeHTTP(w, r)
		if w.Code != http.StatusConflict && w.Code != http.StatusServiceUnavailable {
			text, _ := io.ReadAll(w.Body)
			return w.Code, string(text)
		}
		time.Sleep(time.Millisecond)
	}
	return 0, "stuck"
}

// What an old process has answered a new one replays, with its headers, and the
// other way round.
func TestAnswersCross(t *testing.T) {
	server := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	defer server.Close()
	pay := &payments{tries: make(map[string]int), charges: make(map[string]int)}
	former, latter := formerly(setNX{server}, pay), guarded(server, idempotency.SharedKeys, pay)
	for _, way := range [][2]http.Handler{{former, latter}, {latter, former}} {
		key := fmt.Sprint("order-", len(pay.charges))
		_, first := send(way[0], key)
		_, second := send(way[1], key)
		require.Equal(t, first, second)
		require.Equal(t, 1, pay.charges[key])
	}
	r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader("{}"))
	r.Header.Set("Idempotency-Key", "order-0")
	w := httptest.NewRecorder()
	latter.ServeHTTP(w, r)
	require.Equal(t, "/payments/order-0", w.Header().Get("Location"))
	require.Equal(t, "true", w.Header().Get("Idempotent-Replayed"))
}

// A panic in a new process gives both locks back.
func TestPanicFreesBoth(t *testing.T) {
	server := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	defer server.Close()
	broken := guarded(server, idempotency.SharedKeys, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("broken") }))
	require.Panics(t, func() { send(broken, "order-1") })
	pay := &payments{tries: make(map[string]int), charges: make(map[string]int)}
	_, body := send(formerly(setNX{server}, pay), "order-1")
	require.Equal(t, "charge 1 for order-1", body)
}
