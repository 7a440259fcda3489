package idempotency

import (
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// An Option changes a default of a [Middleware]. Options that make no sense make
// [New] and [Middleware.With] panic with a sentence that says how to mend it.
type Option func(*config)

// config is what the options set. It does not change once a Middleware is made.
type config struct {
	ttl            time.Duration
	lease          time.Duration
	maxExecution   time.Duration
	storeTimeout   time.Duration
	atMostOnce     bool
	reconciler     Reconciler
	wait           time.Duration
	retryAfter     time.Duration
	keyHeader      string
	keyCheck       func(string) error
	requireKey     bool
	methods        []string
	skip           func(*http.Request) bool
	endpoint       func(*http.Request) string
	fingerprint    FingerprintFunc
	mismatchStatus int
	policy         Policy // nil: the store's default
	unrecorded     map[string]bool
	replayHeader   string
	maxRequest     int64
	maxResponse    int64
	failOpen       bool
	docs           string
	errorHandler   ErrorHandler
	observer       Observer
	logger         *slog.Logger // nil: slog.Default, as it is when something is logged
}

func defaults() config {
	c := config{
		ttl:            24 * time.Hour,
		lease:          30 * time.Second,
		maxExecution:   15 * time.Minute,
		storeTimeout:   2 * time.Second,
		retryAfter:     2 * time.Second,
		keyHeader:      "Idempotency-Key",
		methods:        []string{http.MethodPost, http.MethodPatch},
		fingerprint:    FingerprintBody,
		mismatchStatus: http.StatusConflict,
		unrecorded:     make(map[string]bool),
		replayHeader:   "Idempotent-Replayed",
		maxRequest:     1 << 20,
		maxResponse:    1 << 20,
		errorHandler:   WriteProblem,
	}
	for _, name := range unrecorded {
		c.unrecorded[name] = true
	}
	return c
}

// WithTTL sets how long a completed record is replayed, counted from its
// completion. Default 24 hours. After it, the key is unknown and a request with
// it runs the handler: clients must not retry for longer.
func WithTTL(d time.Duration) Option { return func(c *config) { c.ttl = d } }

// WithLease sets how long a claim lives without being extended. Default 30
// seconds. A running handler extends it every third of that, so a lease says
// nothing about how long a handler may take: it is how long a key stays blocked
// after a crash, and how long the store may be out of reach before a running
// handler loses its claim. Keep it at three times the store timeout or more: a
// claim is not extended while its completion hangs in the store.
func WithLease(d time.Duration) Option { return func(c *config) { c.lease = d } }

// WithMaxExecution sets how long a handler may run. Default 15 minutes. After it
// the handler's context ends with the cause [ErrMaxExecution] and its lease is no
// longer extended. It also bounds how long recording is retried behind a request.
func WithMaxExecution(d time.Duration) Option { return func(c *config) { c.maxExecution = d } }

// WithStoreTimeout bounds each call of the store on a request's way. Default 2
// seconds.
func WithStoreTimeout(d time.Duration) Option { return func(c *config) { c.storeTimeout = d } }

// WithAtMostOnce makes the claim of a handler that has begun block its key for
// one TTL when it lapses, instead of freeing it: a run that died leaves the
// outcome unknown, and requests with its key are answered 409 outcome_unknown
// until an operator frees it ([Inspector]), a [Reconciler] settles it, or the TTL
// is over. A panic leaves the same.
func WithAtMostOnce() Option { return func(c *config) { c.atMostOnce = true } }

// WithReconciler sets the function that settles unknown outcomes. It needs
// [WithAtMostOnce].
func WithReconciler(r Reconciler) Option {
	return func(c *config) { must(r != nil, "WithReconciler(nil): pass a function"); c.reconciler = r }
}

// WithWait makes a twin wait up to d for the first request's answer and replay
// it. Default 0: a twin gets 409 request_in_progress at once. A waiting request
// holds a goroutine, a connection and its body.
func WithWait(d time.Duration) Option { return func(c *config) { c.wait = d } }

// WithRetryAfter sets the Retry-After of request_in_progress. Default 2 seconds.
// It is sent in whole seconds, at least one, and never more than what is left of
// the lease.
func WithRetryAfter(d time.Duration) Option { return func(c *config) { c.retryAfter = d } }

// WithKeyHeader sets the name of the header that carries the key. Default
// Idempotency-Key.
func WithKeyHeader(name string) Option {
	return func(c *config) { c.keyHeader = headerName("WithKeyHeader", name) }
}

// WithKeyCheck adds a check to the rules for keys, for example [RequireUUID]. An
// error refuses the request with 400 idempotency_key_invalid; an [*Error] is
// answered as it is.
func WithKeyCheck(check func(key string) error) Option {
	return func(c *config) { must(check != nil, "WithKeyCheck(nil): pass a function"); c.keyCheck = check }
}

// WithRequiredKey refuses guarded requests without a key, with 400
// idempotency_key_missing. By default they pass through unguarded.
func WithRequiredKey() Option { return func(c *config) { c.requireKey = true } }

// WithMethods sets the guarded methods. Default POST and PATCH. Requests of other
// methods pass through untouched, key or no key. HEAD cannot be guarded.
func WithMethods(methods ...string) Option {
	return func(c *config) { c.methods = slices.Clone(methods) }
}

// WithSkip sets which requests pass through unguarded, key or no key: those for
// which skip returns true. It must not read the body.
func WithSkip(skip func(r *http.Request) bool) Option {
	return func(c *config) { must(skip != nil, "WithSkip(nil): pass a function"); c.skip = skip }
}

// WithEndpoint sets what the endpoint of a request's [Key] is. By default that is
// the method and the path as the client sent it; the host does not count. With
// this option method and path go into the fingerprint instead, so that a route
// pattern shared by many resources gives a mismatch, never another resource's
// answer.
func WithEndpoint(endpoint func(r *http.Request) string) Option {
	return func(c *config) { must(endpoint != nil, "WithEndpoint(nil): pass a function"); c.endpoint = endpoint }
}

// WithFingerprint sets how requests with one key are compared. Default
// [FingerprintBody].
func WithFingerprint(f FingerprintFunc) Option {
	return func(c *config) { must(f != nil, "WithFingerprint(nil): pass a function"); c.fingerprint = f }
}

// WithMismatchStatus sets the status for a key that was used with a different
// request. Default 409; draft-ietf-httpapi-idempotency-key-header-07 says 422.
func WithMismatchStatus(status int) Option { return func(c *config) { c.mismatchStatus = status } }

// WithPolicy sets which endings of a run are recorded and which free the key.
// Default [RecordFinal], and [RecordNon5xx] with a [TxStore].
func WithPolicy(p Policy) Option {
	return func(c *config) { must(p != nil, "WithPolicy(nil): pass a function"); c.policy = p }
}

// WithUnrecordedHeaders adds to the headers that are never recorded: Set-Cookie,
// WWW-Authenticate, Proxy-Authenticate, Authentication-Info,
// Proxy-Authentication-Info, Date, Content-Length, the hop-by-hop ones, and the
// replay header. The first answer has them all.
func WithUnrecordedHeaders(names ...string) Option {
	return func(c *config) {
		c.unrecorded = maps.Clone(c.unrecorded)
		for _, name := range names {
			c.unrecorded[headerName("WithUnrecordedHeaders", name)] = true
		}
	}
}

// WithReplayHeader sets the name of the header that says "true" on a replay and
// is absent from a first answer. Default Idempotent-Replayed.
func WithReplayHeader(name string) Option {
	return func(c *config) { c.replayHeader = headerName("WithReplayHeader", name) }
}

// WithMaxRequestBytes sets how large the body of a request with a key may be.
// Default 1 MiB. Larger ones get 413. The body is held in memory.
func WithMaxRequestBytes(n int64) Option { return func(c *config) { c.maxRequest = n } }

// WithMaxResponseBytes sets how large a body is recorded. Default 1 MiB. A larger
// answer is sent whole to the first client and recorded without its body: later
// requests get 409 response_not_replayable, and the handler does not run again.
func WithMaxResponseBytes(n int64) Option { return func(c *config) { c.maxResponse = n } }

// WithFailOpen lets requests run unguarded when the store cannot be reached or is
// full, instead of refusing them with 503. Their answers carry the header
// "Idempotency-Unguarded: true". A retry may then run a second time: use it only
// where that is better than an outage.
func WithFailOpen() Option { return func(c *config) { c.failOpen = true } }

// WithDocs sets the address of a page that documents the error codes. Problem
// documents then have it, with the code as fragment, as their type, and a Link
// header with rel="describedby".
func WithDocs(address string) Option {
	return func(c *config) {
		u, err := url.Parse(address)
		must(err == nil && address != "" && u.Fragment == "" && !strings.ContainsAny(address, " <>\"#"),
			"WithDocs(%q): pass the address of a page, without a fragment", address)
		c.docs = address
	}
}

// WithErrorHandler sets how refusals are answered. Default [WriteProblem].
func WithErrorHandler(h ErrorHandler) Option {
	return func(c *config) { must(h != nil, "WithErrorHandler(nil): pass a function"); c.errorHandler = h }
}

// WithObserver sets who is told of every guarded request.
func WithObserver(o Observer) Option {
	return func(c *config) { must(o != nil, "WithObserver(nil): pass a function"); c.observer = o }
}

// WithLogger sets where abnormal ends are logged: store failures, answers that
// could not be recorded, lost claims. Default [slog.Default]. Keys and users are
// logged as a hash.
func WithLogger(l *slog.Logger) Option {
	return func(c *config) {
		must(l != nil, "WithLogger(nil): pass a logger, or leave the option out")
		c.logger = l
	}
}

// check panics when the options together make no sense.
func (c *config) check(tx bool) {
	above := func(d time.Duration, name string) { must(d > 0, "%s(%v): pass a duration above zero", name, d) }
	above(c.ttl, "WithTTL")
	above(c.lease, "WithLease")
	above(c.maxExecution, "WithMaxExecution")
	above(c.storeTimeout, "WithStoreTimeout")
	must(c.maxRequest > 0, "WithMaxRequestBytes(%d): pass a number above zero", c.maxRequest)
	must(c.maxResponse > 0, "WithMaxResponseBytes(%d): pass a number above zero", c.maxResponse)
	must(c.lease <= c.ttl, "the lease (%v) is longer than the TTL (%v): shorten WithLease or lengthen WithTTL", c.lease, c.ttl)
	must(c.maxExecution >= c.lease, "the longest execution (%v) is shorter than the lease (%v): lengthen WithMaxExecution or shorten WithLease", c.maxExecution, c.lease)
	must(c.wait >= 0, "WithWait(%v): pass zero or more", c.wait)
	must(c.retryAfter >= 0, "WithRetryAfter(%v): pass zero or more", c.retryAfter)
	must(c.mismatchStatus >= 400 && c.mismatchStatus <= 499, "WithMismatchStatus(%d): pass a status from 400 to 499", c.mismatchStatus)
	must(len(c.methods) > 0, "WithMethods(): name at least one method")
	for _, method := range c.methods {
		must(isToken(method), "WithMethods(%q): that is no method", method)
		must(method != http.MethodHead, "WithMethods(%q): leave it out, an answer to HEAD has nothing to record", method)
	}
	must(c.keyHeader != c.replayHeader, "WithReplayHeader(%q): that is the header of the key", c.replayHeader)
	must(c.reconciler == nil || c.atMostOnce, "WithReconciler needs WithAtMostOnce: without it no outcome stays unknown")
	must(!c.failOpen || !c.atMostOnce, "WithFailOpen and WithAtMostOnce contradict each other: leave one of them out")
	must(!tx || !c.atMostOnce, "WithAtMostOnce with a TxStore: leave it out, a crash rolls the transaction back")
	must(!tx || !c.failOpen, "WithFailOpen with a TxStore: leave it out, without the transaction there is nothing to write to")
}

func must(ok bool, format string, args ...any) {
	if !ok {
		panic("idempotency: " + fmt.Sprintf(format, args...))
	}
}

func headerName(option, name string) string {
	must(isToken(name), "%s(%q): that is no name of a header", option, name)
	return http.CanonicalHeaderKey(name)
}

// isToken reports whether s is a token of RFC 9110, section 5.6.2.
func isToken(s string) bool {
	return s != "" && prefix(s, func(c byte) bool { return c != ':' && c != '/' && isTokenByte(c) }) == len(s)
}
