package docs_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/memstore"
)

// troubledAPI is a payment API behind the middleware whose store is out of reach
// for the first attempt, and whose network is cut under the second one.
type troubledAPI struct {
	guarded http.Handler
	charges atomic.Int64
	running chan struct{} // closed when the handler runs
	finish  chan struct{} // closed when it may end
	ended   chan struct{} // closed when its answer is recorded

	conflict bool // the handler goes on until an attempt has been told so
	mu       sync.Mutex
	story    []string // what became of each attempt
}

func newTroubledAPI(t *testing.T, conflict bool) (api *troubledAPI, url string) {
	api = &troubledAPI{
		conflict: conflict,
		running:  make(chan struct{}),
		finish:   make(chan struct{}),
		ended:    make(chan struct{}),
	}
	mw := idempotency.New(&outage{Store: memstore.New()}, idempotency.SharedKeys,
		idempotency.WithRetryAfter(time.Second), idempotency.WithLogger(discard))
	api.guarded = mw.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := api.charges.Add(1)
		if n == 1 {
			close(api.running)
			<-api.finish
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintf(w, "charge %d", n)
	}))
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	return api, server.URL
}

func (api *troubledAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch attempt := api.begin(); attempt {
	case 2:
		api.runAndCut(r)
	case 3:
		api.answer(w, r, attempt)
		if api.conflict {
			close(api.finish)
			<-api.ended
		}
	default:
		api.answer(w, r, attempt)
	}
}

// begin counts an attempt, which is cut unless it is answered.
func (api *troubledAPI) begin() (attempt int) {
	api.mu.Lock()
	defer api.mu.Unlock()
	api.story = append(api.story, "cut")
	return len(api.story)
}

func (api *troubledAPI) answer(w http.ResponseWriter, r *http.Request, attempt int) {
	answer := httptest.NewRecorder()
	api.guarded.ServeHTTP(answer, r)
	told := fmt.Sprint(answer.Code)
	if answer.Header().Get("Idempotent-Replayed") == "true" {
		told += " replayed"
	}
	api.mu.Lock()
	api.story[attempt-1] = told
	api.mu.Unlock()
	maps.Copy(w.Header(), answer.Header())
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes())
}

// runAndCut has the handler run, and cuts the connection meanwhile, or when it
// has ended.
func (api *troubledAPI) runAndCut(r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(err)
	}
	again := httptest.NewRequest(r.Method, r.RequestURI, newReader(body))
	again.Header = r.Header.Clone()
	go func() {
		defer close(api.ended)
		api.guarded.ServeHTTP(httptest.NewRecorder(), again)
	}()
	<-api.running
	if !api.conflict {
		close(api.finish)
		<-api.ended
	}
	panic(http.ErrAbortHandler)
}

// requireStory compares what became of the attempts, all of them.
func (api *troubledAPI) requireStory(t *testing.T, want ...string) {
	t.Helper()
	api.mu.Lock()
	defer api.mu.Unlock()
	require.Equal(t, want, api.story)
	require.EqualValues(t, 1, api.charges.Load(), "the handler runs once")
}

// outage is a store whose first claim fails.
type outage struct {
	*memstore.Store
	claims atomic.Int64
}

func (o *outage) Claim(ctx context.Context, c idempotency.Claim, lease time.Duration) (*idempotency.Record, error) {
	if o.claims.Add(1) == 1 {
		return nil, errors.New("connection refused")
	}
	return o.Store.Claim(ctx, c, lease)
}
