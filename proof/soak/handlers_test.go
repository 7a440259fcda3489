package soak_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strings"
	"time"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/pgstore"
)

// endings are how the first run of a key can end; later ones end well.
var endings = map[string]func(http.ResponseWriter, *http.Request, *entry){
	"well": well,
	"kept": func(w http.ResponseWriter, r *http.Request, e *entry) {
		idempotency.FromContext(r.Context()).Keep()
		answer(w, e, http.StatusServiceUnavailable, 100)
	},
	"brief": func(w http.ResponseWriter, r *http.Request, e *entry) {
		idempotency.FromContext(r.Context()).SetTTL(lease / 2)
		well(w, r, e)
	},
	"discarded": func(w http.ResponseWriter, r *http.Request, e *entry) {
		idempotency.FromContext(r.Context()).Discard()
		answer(w, e, http.StatusUnprocessableEntity, 100)
	},
	"busy": func(w http.ResponseWriter, _ *http.Request, e *entry) {
		answer(w, e, http.StatusServiceUnavailable, 100)
	},
	"failure": func(w http.ResponseWriter, _ *http.Request, e *entry) {
		answer(w, e, http.StatusInternalServerError, 100)
	},
	"panic": func(http.ResponseWriter, *http.Request, *entry) { panic("soak") },
	"abort": func(http.ResponseWriter, *http.Request, *entry) { panic(http.ErrAbortHandler) },
	"exit":  func(http.ResponseWriter, *http.Request, *entry) { runtime.Goexit() },
	"short": func(w http.ResponseWriter, r *http.Request, e *entry) {
		w.Header().Set("Content-Length", "1000")
		answer(w, e, http.StatusOK, 10)
	},
	"slow":   func(w http.ResponseWriter, r *http.Request, e *entry) { slow(w, r, e, 3*lease/2) },
	"slower": func(w http.ResponseWriter, r *http.Request, e *entry) { slow(w, r, e, 6*lease) },
	"stream": stream,
	"large":  func(w http.ResponseWriter, _ *http.Request, e *entry) { answer(w, e, http.StatusOK, maxBody) },
	"chatty": func(w http.ResponseWriter, _ *http.Request, e *entry) {
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Set("Trailer", "X-Sum")
		answer(w, e, http.StatusOK, 200)
		w.Header().Set("X-Sum", "200")
	},
	"careless": func(w http.ResponseWriter, r *http.Request, e *entry) {
		if tx := pgstore.Tx(r.Context()); tx != nil {
			rows, err := tx.Query(r.Context(), "SELECT generate_series(1, 3)")
			if err == nil {
				rows.Next() // and leaves them open
			}
		}
		well(w, r, e)
	},
	"late": func(w http.ResponseWriter, r *http.Request, e *entry) {
		well(w, r, e)
		go func() { // writes on when all is over
			pause(context.Background(), 5*time.Millisecond)
			_, _ = w.Write([]byte("too late"))
		}()
	},
}

// handle is the handler behind every route.
func (s *soak) handle(w http.ResponseWriter, r *http.Request) {
	e := visitOf(r.Context()).entry
	if e == nil { // without a key
		w.WriteHeader(http.StatusNoContent)
		return
	}
	s.add(runs)
	n := e.run()
	_, _ = io.Copy(io.Discard, r.Body)
	if x := idempotency.FromContext(r.Context()); x != nil {
		x.SetReference(e.id)
		if !e.derives(x.Derive("charge")) {
			s.problem("key %s: two derived keys", e.id)
		}
	}
	if tx := pgstore.Tx(r.Context()); tx != nil {
		_, _ = tx.Exec(r.Context(), "SELECT 1")
	}
	pause(r.Context(), rand.N(10*time.Millisecond)) // so that there are twins
	if n == 1 {
		endings[e.ending](w, r, e)
		return
	}
	well(w, r, e)
}

// answer writes an answer of n bytes behind the operation's id.
func answer(w http.ResponseWriter, e *entry, status, n int) {
	w.Header().Set("Set-Cookie", "session=1")
	w.Header().Set("X-Trace", "soak")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, e.id+strings.Repeat(".", n))
}

func well(w http.ResponseWriter, _ *http.Request, e *entry) {
	answer(w, e, http.StatusCreated, 1000)
}

func slow(w http.ResponseWriter, r *http.Request, e *entry, d time.Duration) {
	if !pause(r.Context(), d) {
		answer(w, e, http.StatusServiceUnavailable, 100)
		return
	}
	well(w, r, e)
}

func stream(w http.ResponseWriter, r *http.Request, e *entry) {
	control := http.NewResponseController(w)
	if _, _, err := control.Hijack(); !errors.Is(err, http.ErrNotSupported) {
		panic("the connection could be hijacked")
	}
	for range 5 {
		answer(w, e, http.StatusOK, 100)
		_ = control.Flush() // not with a transaction
		pause(r.Context(), time.Millisecond)
	}
}

// reconcile finds out what a run did: mostly at the second time.
func (s *soak) reconcile(_ context.Context, x *idempotency.Execution) (*idempotency.Response, error) {
	e := s.book.find(x.Key().Value)
	if e == nil {
		return nil, errors.New("nobody knows")
	}
	if !e.derives(x.Derive("charge")) {
		s.problem("key %s: the Reconciler derives another key", e.id)
	}
	switch n := e.ask(); {
	case n == 1 && e.id < "I":
		return nil, errors.New("not known yet")
	case n == 1 && e.id < "Q":
		return nil, idempotency.ErrNotExecuted
	}
	return &idempotency.Response{Status: http.StatusOK, Body: []byte(e.id + " reconciled")}, nil
}
