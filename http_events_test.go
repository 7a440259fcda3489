package idempotency_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/memstore"
)

// scripted is a guarded handler whose answer the request names.
func scripted(l *ledger) http.Handler {
	return l.counted(func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("Do") {
		case "large":
			_, _ = w.Write([]byte(fill(2000)))
		case "busy":
			w.WriteHeader(429)
		case "panic":
			panic(http.ErrAbortHandler)
		case "short":
			w.Header().Set("Content-Length", "10")
		case "discard":
			idempotency.FromContext(r.Context()).Discard()
		default:
			w.WriteHeader(201)
		}
	})
}

// fate is what an Event tells.
type fate struct {
	Outcome idempotency.Outcome
	Code    idempotency.Code
	Status  int
	Key     string
	Failed  bool
}

// step is a request of the script, and what becomes of it.
type step struct {
	path, key, do, body string
	want                fate
}

func script() []step {
	return []step{
		{"/", "A", "", "", fate{"executed", "", 201, "A", false}},
		{"/", "A", "", "", fate{"replayed", "", 201, "A", false}},
		{"/", "A", "", "other", fate{"refused", "idempotency_key_reused_with_different_params", 409, "A", false}},
		{"/", "B", "large", "", fate{"executed", "response_not_replayable", 200, "B", false}},
		{"/", "B", "large", "", fate{"refused", "response_not_replayable", 409, "B", false}},
		{"/", "C", "busy", "", fate{"released", "", 429, "C", false}},
		{"/", "C", "discard", "", fate{"released", "", 200, "C", false}},
		{"/", "C", "panic", "", fate{"released", "handler_panicked", 0, "C", false}},
		{"/", "C", "short", "", fate{"released", "", 200, "C", false}},
		{"/", "C", "", "", fate{"executed", "", 201, "C", false}},
		{"/", "D", "", fill(1001), fate{"refused", "request_body_too_large", 413, "D", false}},
		{"/", "a,b", "", "", fate{"refused", "idempotency_key_invalid", 400, "", true}},
		{"/required", "", "", "", fate{"refused", "idempotency_key_missing", 400, "", false}},
		{"/", "E", "fail", "", fate{"refused", "store_unavailable", 503, "E", true}},
		{"/open", "F", "fail", "", fate{"unguarded", "", 201, "F", true}},
		{"/open", "F", "", "", fate{"replayed", "", 201, "F", false}},
	}
}

// The Observer is told of every guarded request once, with what became of it;
// and of no other.
func TestHTTPEvents(t *testing.T) {
	t.Parallel()
	onEachProtocol(t, func(t *testing.T, proto string) {
		var l ledger
		seen := newEvents()
		broken := errors.New("broken")
		failing := false
		store := &fakeStore{Store: memstore.New()}
		store.claim = func(next func() (*idempotency.Record, error)) (*idempotency.Record, error) {
			if failing {
				return nil, broken
			}
			return next()
		}
		mw := guardWith(store, seen.option(), idempotency.WithMaxResponseBytes(1000), idempotency.WithMaxRequestBytes(1000))
		mux := http.NewServeMux()
		mux.Handle("/", mw.Handler(scripted(&l)))
		mux.Handle("/required", mw.With(idempotency.WithRequiredKey()).Handler(scripted(&l)))
		mux.Handle("/open", mw.With(idempotency.WithFailOpen()).Handler(scripted(&l)))
		web := newSite(t, proto, mux)
		for i, step := range script() {
			failing = step.do == "fail"
			web.fresh()
			a, err := web.try(web.request(step.path, step.key, step.body, withHeader("Do", step.do)))
			event := seen.next(t)
			got := fate{event.Outcome, event.Code, event.Status, event.Key.Value, event.Err != nil}
			require.Equal(t, step.want, got, "step %d", i)
			if step.do != "panic" && step.do != "short" {
				require.NoError(t, err)
				require.Equal(t, step.want.Status, a.Status, "step %d", i)
			}
			if event.Key.Value != "" {
				require.Equal(t, idempotency.NewKey("ann", "POST "+step.path, step.key), event.Key)
			}
			require.Equal(t, event.Outcome == "executed" || event.Outcome == "released" || event.Outcome == "unguarded", event.Handler > 0)
			if step.do == "fail" {
				require.ErrorIs(t, event.Err, broken)
			}
		}
		failing = false
		web.post("/", "", "")                          // no key
		web.post("/", "K", "", withMethod("GET"))      // not guarded
		web.post("/", "last", "", withMethod("PATCH")) // so that everything before has been told
		require.Equal(t, "last", seen.next(t).Key.Value)
		require.Empty(t, seen.c)
	})
}

// The numbers of the events are those of a run of many clients.
func TestHTTPEventsAddUp(t *testing.T) {
	t.Parallel()
	onEachProtocol(t, func(t *testing.T, proto string) {
		const clients, keys = 8, 25
		var l ledger
		seen := newEvents()
		web := newSite(t, proto, guard(seen.option()).Handler(&l))
		var all sync.WaitGroup
		var mu sync.Mutex
		statuses := make(map[string]int)
		for c := range clients {
			all.Go(func() {
				for k := range keys {
					body := "b1"
					if c == 0 && k%5 == 0 {
						body = "another"
					}
					a, _ := web.try(web.request("/", fmt.Sprint("K", k), body))
					mu.Lock()
					statuses[fmt.Sprint(a.Status, a.Header.Get("Idempotent-Replayed"))]++
					mu.Unlock()
				}
			})
		}
		all.Wait()
		counts := make(map[idempotency.Outcome]int)
		for range clients * keys {
			counts[seen.next(t).Outcome]++
		}
		require.Empty(t, seen.c)
		require.Equal(t, keys, l.runs())
		require.Equal(t, keys, counts[idempotency.OutcomeExecuted])
		require.Equal(t, statuses["201"], counts[idempotency.OutcomeExecuted])
		require.Equal(t, statuses["201true"], counts[idempotency.OutcomeReplayed])
		require.Equal(t, statuses["409"], counts[idempotency.OutcomeRefused])
		require.Len(t, counts, 3)
	})
}

// The Observer's context has the request's values and does not end with it, and a
// replay is told apart from a run.
func TestHTTPEventsContext(t *testing.T) {
	t.Parallel()
	contexts := make(chan context.Context, 1)
	mw := guard(idempotency.WithObserver(func(ctx context.Context, _ idempotency.Event) { contexts <- ctx }))
	guarded := mw.Handler(&ledger{})
	web := newSite(t, http1, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		guarded.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), valueKey{}, "a value")))
	}))
	web.post("/", "K", "b1")
	ctx := within(t, contexts)
	require.NoError(t, ctx.Err())
	require.Equal(t, "a value", ctx.Value(valueKey{}))
}

// Abnormal ends are logged, without key, user or body; ordinary ones are not.
func TestHTTPEventsLogged(t *testing.T) {
	t.Parallel()
	var text lockedText
	store := &fakeStore{Store: memstore.New(), claim: claimTimes(1, false, errors.New("connection refused"))}
	mw := guardWith(store, idempotency.WithLogger(slog.New(slog.NewJSONHandler(&text, nil))))
	web := newSite(t, http1, mw.Handler(&ledger{}))
	requireProblem(t, web.post("/pay", "SECRETKEY", "SECRETBODY", asUser("SECRETUSER")), 503, idempotency.CodeStoreUnavailable)
	requireFirst(t, 201, web.post("/pay", "SECRETKEY", "SECRETBODY", asUser("SECRETUSER")))
	requireProblem(t, web.post("/pay", "SECRETKEY", "other", asUser("SECRETUSER")), 409, idempotency.CodeKeyReused)
	requireProblem(t, web.post("/pay", "SECRET,KEY", "other"), 400, idempotency.CodeKeyInvalid)
	web.server.Close()
	lines := strings.Split(strings.TrimSpace(text.String()), "\n")
	require.Len(t, lines, 1, text.String())
	require.NotContains(t, text.String(), "SECRET")
	var line map[string]any
	require.NoError(t, json.NewDecoder(bytes.NewReader([]byte(lines[0]))).Decode(&line))
	require.Equal(t, "ERROR", line["level"])
	require.Equal(t, "store_unavailable", line["code"])
	require.Equal(t, "refused", line["outcome"])
	require.Equal(t, "POST /pay", line["endpoint"])
	require.Contains(t, line["error"], "connection refused")
}
