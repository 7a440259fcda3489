package vectors

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The headers of the test protocol.
const (
	HeaderUser   = "Vector-User"   // whose request it is: stands for authentication
	HeaderAnswer = "Vector-Answer" // what the handler is to do, see [Answer]
	HeaderRun    = "Vector-Run"    // which run of its path's handler made an answer, from 1
)

// longestHold is how long a held handler waits, so that a measurement that was
// broken off leaves nothing running for good.
const longestHold = time.Minute

// Target is the test handler of README.md: the handler that an implementation is
// to guard, and the endpoints that count its runs and open its paths. It may be
// used by many goroutines; its memory grows with every path.
type Target struct {
	mu    sync.Mutex
	runs  map[string]int
	gates map[string]chan struct{}
}

// NewTarget returns a Target that has run nothing yet.
func NewTarget() *Target {
	return &Target{runs: make(map[string]int), gates: make(map[string]chan struct{})}
}

// User returns the user that a request names. It fails where it names none.
func (t *Target) User(r *http.Request) (string, error) {
	if user := r.Header.Get(HeaderUser); user != "" {
		return user, nil
	}
	return "", errors.New("vectors: the request names no user")
}

// Handler returns the whole server: guard is the implementation with its defaults,
// required is it with keys required.
func (t *Target) Handler(guard, required func(http.Handler) http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/vectors/default/", guard(t))
	mux.Handle("/vectors/required/", required(t))
	mux.Handle("/vectors/control/", t.Control())
	return mux
}

// Control returns the endpoints /vectors/control/runs and /vectors/control/open.
// They are not to be guarded.
func (t *Target) Control() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /vectors/control/runs", func(w http.ResponseWriter, r *http.Request) {
		t.mu.Lock()
		n := t.runs[r.FormValue("path")]
		t.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]int{"runs": n})
	})
	mux.HandleFunc("POST /vectors/control/open", func(_ http.ResponseWriter, r *http.Request) {
		gate := t.gate(r.FormValue("path"))
		t.mu.Lock()
		defer t.mu.Unlock()
		select {
		case <-gate: // opened before
		default:
			close(gate)
		}
	})
	return mux
}

// gate returns the channel that is closed when path is opened.
func (t *Target) gate(path string) chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.gates[path] == nil {
		t.gates[path] = make(chan struct{})
	}
	return t.gates[path]
}

// ServeHTTP is the handler to be guarded: it counts the run and does what the
// request's Vector-Answer says.
func (t *Target) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	t.mu.Lock()
	t.runs[path]++
	run := t.runs[path]
	t.mu.Unlock()

	var a Answer
	if told := r.Header.Get(HeaderAnswer); told != "" {
		if err := json.Unmarshal([]byte(told), &a); err != nil {
			http.Error(w, "Vector-Answer: "+err.Error(), http.StatusNotImplemented)
			return
		}
	}
	if a.Hold {
		t.hold(r.Context(), path)
	}
	if a.Abort {
		panic(errors.New("vectors: told to break down"))
	}
	a.write(w, run)
}

func (t *Target) hold(ctx context.Context, path string) {
	timer := time.NewTimer(longestHold)
	defer timer.Stop()
	select {
	case <-t.gate(path):
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (a *Answer) write(w http.ResponseWriter, run int) {
	body := []byte(a.Body)
	switch {
	case a.Base64 != "":
		var err error
		if body, err = base64.StdEncoding.DecodeString(a.Base64); err != nil {
			http.Error(w, "Vector-Answer: "+err.Error(), http.StatusNotImplemented)
			return
		}
	case a.Size > 0:
		body = []byte(strings.Repeat("x", a.Size))
	}
	h := w.Header()
	for name, lines := range a.Headers {
		h[http.CanonicalHeaderKey(name)] = lines
	}
	h.Set(HeaderRun, strconv.Itoa(run))
	status := a.Status
	if status == 0 {
		status = http.StatusOK
	}
	w.WriteHeader(status)
	if a.Flush {
		half := len(body) / 2
		_, _ = w.Write(body[:half])
		_ = http.NewResponseController(w).Flush()
		body = body[half:]
	}
	if len(body) > 0 {
		_, _ = w.Write(body)
	}
}
