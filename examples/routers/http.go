package routers

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/retrysafe/idempotency"
)

// User is the UserFunc of all five: authentication has put the user into the
// request's context.
func User(r *http.Request) (string, error) { return userOf(r.Context()), nil }

// api are the handlers for the routers whose handlers are net/http's. param
// returns a path parameter, which is all that differs.
type api struct {
	orders *Orders
	param  func(r *http.Request, name string) string
}

func (a api) create(w http.ResponseWriter, r *http.Request) {
	var in struct{ Item string }
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		http.Error(w, "no JSON", http.StatusBadRequest)
		return
	}
	trace := idempotency.FromContext(r.Context()).Derive("order")
	order, err := a.orders.Create(userOf(r.Context()), in.Item, trace)
	if err == nil {
		w.Header().Set("Location", "/orders/"+order.ID)
	}
	reply(w, http.StatusCreated, order, err)
}

func (a api) pay(w http.ResponseWriter, r *http.Request) {
	order, err := a.orders.Pay(a.param(r, "id"))
	reply(w, http.StatusOK, order, err)
}

func (a api) track(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	err := a.orders.Track(r.Context(), a.param(r, "id"), func(event string) {
		_, _ = fmt.Fprintf(w, "data: %s\n\n", event)
		_ = http.NewResponseController(w).Flush()
	})
	if err != nil {
		reply(w, 0, Order{}, err)
	}
}

func (a api) refund(_ http.ResponseWriter, r *http.Request) { a.orders.Refund(a.param(r, "id")) }

func reply(w http.ResponseWriter, status int, order Order, err error) {
	if err != nil {
		http.Error(w, err.Error(), statusOf(err))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(order)
}

func statusOf(err error) int {
	switch {
	case errors.Is(err, ErrNoItem):
		return http.StatusUnprocessableEntity
	case errors.Is(err, ErrNoOrder):
		return http.StatusNotFound
	}
	return http.StatusInternalServerError
}

// Authenticate is authentication for the routers whose middleware is net/http's.
func Authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, ok := tokens(r.Header.Get("Authorization"))
		if !ok {
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r.WithContext(withUser(r.Context(), user)))
	})
}

// Recover answers a panic with 500. http.ErrAbortHandler is net/http's own.
func Recover(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if p := recover(); p == http.ErrAbortHandler {
				panic(p)
			} else if p != nil {
				http.Error(w, "internal error", http.StatusInternalServerError)
			}
		}()
		next.ServeHTTP(w, r)
	})
}

// Compress compresses JSON and text for the clients that accept it.
func Compress(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "Accept-Encoding")
		if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			next.ServeHTTP(w, r)
			return
		}
		z := &gzipWriter{ResponseWriter: w}
		next.ServeHTTP(z, r)
		if z.z != nil {
			_ = z.z.Close() // the client has gone: nobody to tell
		}
	})
}

// gzipWriter decides when the status is known, and keeps to net/http's rules.
type gzipWriter struct {
	http.ResponseWriter
	z     *gzip.Writer
	begun bool
}

func (w *gzipWriter) WriteHeader(status int) {
	h := w.Header()
	if kind := h.Get("Content-Type"); !w.begun && status >= 200 {
		w.begun = true
		if status != 204 && status != 304 && h.Get("Content-Encoding") == "" &&
			(strings.Contains(kind, "json") || strings.HasPrefix(kind, "text/plain")) {
			h.Set("Content-Encoding", "gzip")
			h.Del("Content-Length")
			w.z = gzip.NewWriter(w.ResponseWriter)
		}
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *gzipWriter) Write(p []byte) (int, error) {
	if !w.begun {
		if w.Header().Get("Content-Type") == "" {
			w.Header().Set("Content-Type", http.DetectContentType(p))
		}
		w.WriteHeader(http.StatusOK)
	}
	if w.z != nil {
		return w.z.Write(p)
	}
	return w.ResponseWriter.Write(p)
}

// FlushError lets a streaming handler through. Without it, or an Unwrap, the
// guard would hold a stream back to its end.
func (w *gzipWriter) FlushError() error {
	if w.z != nil {
		if err := w.z.Flush(); err != nil {
			return err
		}
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Flush is for gin, whose writer looks for http.Flusher only: without it a flush
// under gin would do nothing and say nothing.
func (w *gzipWriter) Flush() { _ = w.FlushError() }
