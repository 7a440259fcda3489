package idempotency_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/memstore"
)

// txStore is a TxStore in name.
type txStore struct{ *memstore.Store }

func (txStore) Bind(ctx context.Context, _ idempotency.Claim) context.Context { return ctx }

// senseless are options that make no sense.
type senseless struct {
	name  string
	opts  []idempotency.Option
	tx    bool   // with a TxStore
	words string // that the sentence has
}

func senselessOptions() []senseless {
	reconciler := func(context.Context, *idempotency.Execution) (*idempotency.Response, error) {
		return nil, errors.New("unknown")
	}
	type opts []idempotency.Option
	return []senseless{
		{"TTL zero", opts{idempotency.WithTTL(0)}, false, "WithTTL"},
		{"TTL below zero", opts{idempotency.WithTTL(-1)}, false, "WithTTL"},
		{"lease zero", opts{idempotency.WithLease(0)}, false, "WithLease"},
		{"lease below zero", opts{idempotency.WithLease(-time.Second)}, false, "WithLease"},
		{"max execution zero", opts{idempotency.WithMaxExecution(0)}, false, "WithMaxExecution"},
		{"store timeout zero", opts{idempotency.WithStoreTimeout(0)}, false, "WithStoreTimeout"},
		{"store timeout below zero", opts{idempotency.WithStoreTimeout(-1)}, false, "WithStoreTimeout"},
		{"no request bytes", opts{idempotency.WithMaxRequestBytes(0)}, false, "WithMaxRequestBytes"},
		{"request bytes below zero", opts{idempotency.WithMaxRequestBytes(-1)}, false, "WithMaxRequestBytes"},
		{"no response bytes", opts{idempotency.WithMaxResponseBytes(0)}, false, "WithMaxResponseBytes"},
		{"lease longer than TTL", opts{idempotency.WithTTL(time.Second), idempotency.WithLease(2 * time.Second)}, false, "TTL"},
		{"max execution shorter than lease", opts{idempotency.WithMaxExecution(time.Second)}, false, "WithMaxExecution"},
		{"wait below zero", opts{idempotency.WithWait(-1)}, false, "WithWait"},
		{"retry-after below zero", opts{idempotency.WithRetryAfter(-1)}, false, "WithRetryAfter"},
		{"mismatch 399", opts{idempotency.WithMismatchStatus(399)}, false, "WithMismatchStatus"},
		{"mismatch 500", opts{idempotency.WithMismatchStatus(500)}, false, "WithMismatchStatus"},
		{"no methods", opts{idempotency.WithMethods()}, false, "WithMethods"},
		{"no method", opts{idempotency.WithMethods("POST", "")}, false, "WithMethods"},
		{"method with a space", opts{idempotency.WithMethods("PO ST")}, false, "WithMethods"},
		{"HEAD", opts{idempotency.WithMethods("POST", "HEAD")}, false, "WithMethods"},
		{"key header empty", opts{idempotency.WithKeyHeader("")}, false, "WithKeyHeader"},
		{"key header with a colon", opts{idempotency.WithKeyHeader("Key:")}, false, "WithKeyHeader"},
		{"key header with a space", opts{idempotency.WithKeyHeader("Idempotency Key")}, false, "WithKeyHeader"},
		{"replay header empty", opts{idempotency.WithReplayHeader("")}, false, "WithReplayHeader"},
		{"replay header with a newline", opts{idempotency.WithReplayHeader("A\r\nB")}, false, "WithReplayHeader"},
		{"replay header that is the key's", opts{idempotency.WithReplayHeader("idempotency-key")}, false, "WithReplayHeader"},
		{"unrecorded header that is none", opts{idempotency.WithUnrecordedHeaders("A", "B C")}, false, "WithUnrecordedHeaders"},
		{"nil reconciler", opts{idempotency.WithAtMostOnce(), idempotency.WithReconciler(nil)}, false, "WithReconciler"},
		{"reconciler alone", opts{idempotency.WithReconciler(reconciler)}, false, "WithAtMostOnce"},
		{"fail open at most once", opts{idempotency.WithFailOpen(), idempotency.WithAtMostOnce()}, false, "WithFailOpen"},
		{"nil key check", opts{idempotency.WithKeyCheck(nil)}, false, "WithKeyCheck"},
		{"nil skip", opts{idempotency.WithSkip(nil)}, false, "WithSkip"},
		{"nil endpoint", opts{idempotency.WithEndpoint(nil)}, false, "WithEndpoint"},
		{"nil fingerprint", opts{idempotency.WithFingerprint(nil)}, false, "WithFingerprint"},
		{"nil policy", opts{idempotency.WithPolicy(nil)}, false, "WithPolicy"},
		{"nil error handler", opts{idempotency.WithErrorHandler(nil)}, false, "WithErrorHandler"},
		{"nil observer", opts{idempotency.WithObserver(nil)}, false, "WithObserver"},
		{"nil logger", opts{idempotency.WithLogger(nil)}, false, "WithLogger"},
		{"docs empty", opts{idempotency.WithDocs("")}, false, "WithDocs"},
		{"docs with a fragment", opts{idempotency.WithDocs("https://a.example/docs#x")}, false, "WithDocs"},
		{"docs that break out of the Link", opts{idempotency.WithDocs("https://a.example/>; rel=evil")}, false, "WithDocs"},
		{"at most once with a transaction", opts{idempotency.WithAtMostOnce()}, true, "WithAtMostOnce"},
		{"reconciler with a transaction", opts{idempotency.WithAtMostOnce(), idempotency.WithReconciler(reconciler)}, true, "WithAtMostOnce"},
		{"fail open with a transaction", opts{idempotency.WithFailOpen()}, true, "WithFailOpen"},
	}
}

// Options that make no sense make New and With panic, with a sentence that names
// what to mend.
func TestHTTPOptionsThatMakeNoSense(t *testing.T) {
	t.Parallel()
	for _, tt := range senselessOptions() {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var store idempotency.Store = memstore.New()
			if tt.tx {
				store = txStore{memstore.New()}
			}
			sensible := idempotency.New(store, byHeader)
			for name, f := range map[string]func(){
				"New":  func() { idempotency.New(store, byHeader, tt.opts...) },
				"With": func() { sensible.With(tt.opts...) },
			} {
				requireSentence(t, name, tt.words, f)
			}
		})
	}
}

// requireSentence demands that f panics with a sentence of this package's.
func requireSentence(t *testing.T, name, words string, f func()) {
	t.Helper()
	defer func() {
		p := recover()
		sentence, ok := p.(string)
		require.True(t, ok, "%s: %v", name, p)
		require.True(t, strings.HasPrefix(sentence, "idempotency: "), sentence)
		require.Contains(t, sentence, words)
	}()
	f()
	require.FailNow(t, name+" did not panic")
}

// What New, Handler and UserFromHeader cannot do without.
func TestHTTPOptionsNilArguments(t *testing.T) {
	t.Parallel()
	requireSentence(t, "store", "store", func() { idempotency.New(nil, byHeader) })
	requireSentence(t, "user", "UserFunc", func() { idempotency.New(memstore.New(), nil) })
	requireSentence(t, "handler", "Handler", func() { guard().Handler(nil) })
	requireSentence(t, "header", "UserFromHeader", func() { idempotency.UserFromHeader("a b") })
}

// Options at the edge of sense are taken.
func TestHTTPOptionsThatMakeSense(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]idempotency.Option{
		"lease as long as the TTL":  {idempotency.WithTTL(time.Minute), idempotency.WithLease(time.Minute)},
		"execution as the lease":    {idempotency.WithMaxExecution(time.Minute), idempotency.WithLease(time.Minute)},
		"no wait":                   {idempotency.WithWait(0), idempotency.WithRetryAfter(0)},
		"mismatch 400":              {idempotency.WithMismatchStatus(400)},
		"mismatch 499":              {idempotency.WithMismatchStatus(499)},
		"limits of one":             {idempotency.WithMaxRequestBytes(1), idempotency.WithMaxResponseBytes(1)},
		"a logger":                  {idempotency.WithLogger(slog.Default())},
		"mended by the later one":   {idempotency.WithTTL(-1), idempotency.WithTTL(time.Hour)},
		"order of options is free":  {idempotency.WithLease(48 * time.Hour), idempotency.WithMaxExecution(48 * time.Hour), idempotency.WithTTL(72 * time.Hour)},
		"a method of one's own":     {idempotency.WithMethods("CHARGE")},
		"docs that are a path only": {idempotency.WithDocs("/docs/errors")},
	} {
		require.NotPanics(t, func() { guard(opts...) }, name)
		require.NotPanics(t, func() { guard().With(opts...) }, name)
	}
}

// With leaves the Middleware as it was.
func TestHTTPOptionsWithChangesNothing(t *testing.T) {
	t.Parallel()
	mw := guard()
	mw.With(idempotency.WithUnrecordedHeaders("Etag"), idempotency.WithReplayHeader("X-Etag-Free"), idempotency.WithMethods("PUT"), idempotency.WithRequiredKey())
	web := newSite(t, http1, mw.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Etag", `"1"`) })))
	requireFirst(t, 200, web.post("/", "", ""))
	first := web.post("/", "K", "")
	again := web.post("/", "K", "")
	requireReplay(t, first, again)
	require.Equal(t, `"1"`, again.Header.Get("Etag"))
}
