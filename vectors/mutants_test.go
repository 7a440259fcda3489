package vectors_test

import (
	"crypto/sha256"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/memstore"
	"github.com/retrysafe/idempotency/vectors"
)

// A mutant is an implementation with one fault that has been seen in the wild.
type mutant struct {
	name  string
	guard func(target *vectors.Target) func(http.Handler) http.Handler
}

const keyHeader = "Idempotency-Key"

// with is this library with options that make it wrong.
func with(opts ...idempotency.Option) func(*vectors.Target) func(http.Handler) http.Handler {
	return func(target *vectors.Target) func(http.Handler) http.Handler {
		return idempotency.New(memstore.New(), target.User, opts...).Handler
	}
}

// layer is this library behind a layer that changes the request.
func layer(change func(*http.Request)) func(*vectors.Target) func(http.Handler) http.Handler {
	return func(target *vectors.Target) func(http.Handler) http.Handler {
		mw := idempotency.New(memstore.New(), target.User)
		return func(next http.Handler) http.Handler {
			guarded := mw.Handler(next)
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				change(r)
				guarded.ServeHTTP(w, r)
			})
		}
	}
}

// keys is a layer that changes the key.
func keys(change func(user, key string) string) func(*vectors.Target) func(http.Handler) http.Handler {
	return layer(func(r *http.Request) {
		if lines := r.Header[keyHeader]; len(lines) == 1 {
			r.Header.Set(keyHeader, change(r.Header.Get(vectors.HeaderUser), lines[0]))
		}
	})
}

// users is a layer that changes the user.
func users(change func(string) string) func(*vectors.Target) func(http.Handler) http.Handler {
	return layer(func(r *http.Request) { r.Header.Set(vectors.HeaderUser, change(r.Header.Get(vectors.HeaderUser))) })
}

func fingerprint(of func(r *http.Request, body []byte) []byte) func(*vectors.Target) func(http.Handler) http.Handler {
	return with(idempotency.WithFingerprint(func(r *http.Request, body []byte) (idempotency.Fingerprint, error) {
		return sha256.Sum256(of(r, body)), nil
	}))
}

// cache is the implementation of many blog posts: a map by the key alone.
func cache(*vectors.Target) func(http.Handler) http.Handler {
	var mu sync.Mutex
	records := make(map[string]*httptest.ResponseRecorder)
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			place := strings.Split(r.URL.Path, "/")[3] // the vectors use the same few keys
			key := place + r.Header.Get(keyHeader)
			mu.Lock()
			record := records[key]
			mu.Unlock()
			if record == nil {
				record = httptest.NewRecorder()
				next.ServeHTTP(record, r)
				mu.Lock()
				records[key] = record
				mu.Unlock()
			}
			for name, lines := range record.Header() {
				w.Header()[name] = lines
			}
			w.WriteHeader(record.Code)
			_, _ = w.Write(record.Body.Bytes())
		})
	}
}

// oneByOne lets one request in at a time.
func oneByOne(target *vectors.Target) func(http.Handler) http.Handler {
	mw := idempotency.New(memstore.New(), target.User)
	var mu sync.Mutex
	return func(next http.Handler) http.Handler {
		guarded := mw.Handler(next)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			guarded.ServeHTTP(w, r)
		})
	}
}

func mutants() []mutant {
	return []mutant{
		{"no guard at all", func(*vectors.Target) func(http.Handler) http.Handler {
			return func(h http.Handler) http.Handler { return h }
		}},
		{"a cache by the key", cache},
		{"one request at a time", oneByOne},
		{"every ending recorded", with(idempotency.WithPolicy(idempotency.RecordAll))},
		{"every method guarded", with(idempotency.WithMethods("POST", "PATCH", "GET", "PUT", "DELETE"))},
		{"keys always required", with(idempotency.WithRequiredKey())},
		{"one endpoint", with(idempotency.WithEndpoint(func(*http.Request) string { return "" }))},
		{"no fingerprint", fingerprint(func(*http.Request, []byte) []byte { return nil })},
		{"a fingerprint of the first bytes", fingerprint(func(_ *http.Request, body []byte) []byte { return body[:min(8, len(body))] })},
		{"a fingerprint of query and body run together", fingerprint(func(r *http.Request, body []byte) []byte {
			return append([]byte(r.URL.RawQuery), body...)
		})},
		{"users in lower case", users(strings.ToLower)},
		{"users who may be nobody", users(func(user string) string { return user + "x" })},
		{"keys in lower case", keys(func(_, key string) string { return strings.ToLower(key) })},
		{"keys cut off", keys(func(_, key string) string { return key[:min(2, len(key))] })},
		{"user and key run together", func(target *vectors.Target) func(http.Handler) http.Handler {
			mw := idempotency.New(memstore.New(), idempotency.SharedKeys)
			return func(next http.Handler) http.Handler {
				guarded := mw.Handler(next)
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					r.Header.Set(keyHeader, r.Header.Get(vectors.HeaderUser)+r.Header.Get(keyHeader))
					guarded.ServeHTTP(w, r)
				})
			}
		}},
	}
}

// Every vector fails with an implementation that has the fault it is against. A
// vector that none of the mutants fails would prove nothing.
func TestEveryVectorCanFail(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	caught := make(map[string]bool)
	t.Run("mutants", func(t *testing.T) {
		for _, m := range mutants() {
			t.Run(m.name, func(t *testing.T) {
				t.Parallel()
				target := vectors.NewTarget()
				guard := m.guard(target)
				runner := vectors.Runner{URL: serve(t, target.Handler(guard, guard)), Patience: time.Second}
				some := false
				for _, v := range all(t) {
					if runner.Run(t.Context(), v) != nil {
						some = true
						mu.Lock()
						caught[v.Name] = true
						mu.Unlock()
					}
				}
				require.True(t, some, "no vector fails")
			})
		}
	})
	for _, v := range all(t) {
		require.True(t, caught[v.Name], "no mutant fails %s", v.Name)
	}
}
