package client

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/google/uuid"
)

// Transport is an [http.RoundTripper] that gives every POST and PATCH an
// idempotency key and repeats it, under that key, when it is safe and useful to
// do so. The package documentation says what is repeated.
//
// The zero value is ready to use. A Transport is safe for concurrent use and
// meant to be shared: its retry budget belongs to all requests that go through
// it. Its fields must not be changed once it is in use, and it must not be
// copied.
//
// For every duration and number below, zero means the default and, where the
// field says so, a negative value means no limit.
type Transport struct {
	// Base makes the attempts. Default: [http.DefaultTransport].
	Base http.RoundTripper

	// NewKey makes the key of a request that brings none. It is called once for
	// each operation, before the first attempt, and must be safe for concurrent
	// use and leave the request alone. Default: a random UUID. An empty or
	// invalid key refuses the request with [ErrInvalidKey].
	NewKey func(*http.Request) string

	// Header is the name of the header that carries the key. Default:
	// "Idempotency-Key". With "X-Idempotency-Key" net/http, too, knows that it
	// may send a request again; with other names only this Transport does.
	Header string

	// Quoted sends keys in the quoted form that the IETF draft asks for, "K"
	// rather than K. It also allows keys with spaces and punctuation.
	Quoted bool

	// Methods are the methods that get a key and are repeated. All others pass
	// through to Base, once and as they are. Default: POST and PATCH.
	Methods []string

	// MaxBodyBytes is how much of a request body without GetBody is kept in
	// memory so that it can be sent again. A longer one is sent once. Default:
	// 1 MiB; negative: no body is kept.
	MaxBodyBytes int64

	// MaxAnswerBytes is the largest answer that is read before RoundTrip returns
	// it, so that a connection cut in the middle of the answer counts as a failed
	// attempt. It applies to answers that announce their length, so that streams
	// are never held up. Default: 64 KiB; negative: no answer is read ahead.
	MaxAnswerBytes int64

	// MaxAttempts is how often a request is sent at most, the first time
	// included. Attempts that were told that the operation is still in progress
	// do not count: waiting for one's own operation is bounded by MaxElapsed.
	// Default: 5; 1: nothing is ever repeated; negative: no limit.
	MaxAttempts int

	// MaxElapsed bounds all attempts and waits of one RoundTrip together: no
	// attempt begins after it, and the one that is under way is cut off. Default:
	// 2 minutes; negative: no limit.
	MaxElapsed time.Duration

	// AttemptTimeout bounds one attempt: connecting, sending, waiting for the
	// answer's header, and reading the answer if it is read ahead (see
	// MaxAnswerBytes). It never cuts off a body that the caller is reading. Raise
	// it for large uploads. Default: 30 seconds; negative: no limit.
	AttemptTimeout time.Duration

	// KeyLifetime is how long the server is trusted to remember a key. No attempt
	// begins later than this after the first, since it would be a new operation.
	// Default: 24 hours; negative: no limit.
	KeyLifetime time.Duration

	// MinBackoff and MaxBackoff are the ceilings of the first and of the longest
	// wait between attempts. The ceiling doubles with each attempt, and the wait
	// is drawn evenly from zero to the ceiling. Defaults: 100 ms and 10 s.
	MinBackoff, MaxBackoff time.Duration

	// MaxRetryAfter caps the wait that a server asks for with Retry-After.
	// Default: 30 seconds; negative: no limit.
	MaxRetryAfter time.Duration

	// RetryBudget is how many retries all requests of this Transport together may
	// make in a burst. A tenth of it comes back every second, and a fifth of a
	// retry with each new operation, so that an outage is not made worse by
	// everybody's retries. Attempts after an answer "in progress" cost nothing.
	// Default: 100; negative: no limit.
	RetryBudget int

	// Judge, if set, is asked about answers of status 400 and above before this
	// package's own table is, and so brings in the signals of other vendors; see
	// [StripeShouldRetry]. It is not asked about answers that are final in any
	// case: replayed ones, unguarded ones, and those whose problem document says
	// so. It must not read the body.
	Judge func(*http.Response) Verdict

	// OnAttempt, if set, is called after each attempt, in the caller's goroutine.
	OnAttempt func(Attempt)

	// Logger gets one record at debug level for each attempt, without the key.
	// Default: [slog.Default].
	Logger *slog.Logger

	budget budget
}

var _ http.RoundTripper = (*Transport)(nil)

// The defaults of Transport's fields.
const (
	defaultHeader         = "Idempotency-Key"
	defaultMaxBodyBytes   = 1 << 20
	defaultMaxAnswerBytes = 64 << 10
	defaultMaxAttempts    = 5
	defaultMaxElapsed     = 2 * time.Minute
	defaultAttemptTimeout = 30 * time.Second
	defaultKeyLifetime    = 24 * time.Hour
	defaultMinBackoff     = 100 * time.Millisecond
	defaultMaxBackoff     = 10 * time.Second
	defaultMaxRetryAfter  = 30 * time.Second
	defaultRetryBudget    = 100
)

// RoundTrip sends req, as often as the package documentation says, and returns
// the last answer. It leaves req as it is, except for closing its body.
//
// The error is [ErrInvalidKey] or [ErrKeyExpired], possibly wrapped, when
// nothing was sent because of the key, an [*UnknownOutcomeError] when a request
// was sent, or may have been, and no answer came that could be returned. Any
// other error, of Base or of reading the request's body, means that no attempt
// reached the server.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	hop := hopOf(req)
	if !t.guards(req.Method) {
		if hop.foreign {
			req = withoutKey(req, t.header())
		}
		return t.base().RoundTrip(req)
	}
	op, err := t.newOperation(req, hop)
	if err != nil {
		closeBody(req)
		return nil, err
	}
	return op.run()
}

// CloseIdleConnections closes the idle connections of Base, if it has such a
// method. [http.Client.CloseIdleConnections] calls it.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.base().(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

func (t *Transport) base() http.RoundTripper {
	if t.Base != nil {
		return t.Base
	}
	return http.DefaultTransport
}

func (t *Transport) header() string {
	if t.Header != "" {
		return http.CanonicalHeaderKey(t.Header)
	}
	return defaultHeader
}

func (t *Transport) guards(method string) bool {
	if t.Methods != nil {
		return slices.Contains(t.Methods, method)
	}
	return method == http.MethodPost || method == http.MethodPatch
}

func (t *Transport) newKey(req *http.Request) (string, error) {
	if t.NewKey != nil {
		return t.NewKey(req), nil
	}
	id, err := uuid.NewRandom()
	if err != nil {
		return "", fmt.Errorf("client: making a key: %w", err)
	}
	return id.String(), nil
}

// bound resolves a limit: zero is the default, negative none.
func bound[T int | time.Duration](v, byDefault T) int64 {
	switch {
	case v == 0:
		return int64(byDefault)
	case v < 0:
		return math.MaxInt64
	}
	return int64(v)
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
}

// ErrInvalidKey says that the key of a request is empty or holds what the
// header cannot carry, or that a request brings more than one. Nothing was
// sent.
var ErrInvalidKey = errors.New("client: invalid idempotency key")

// ErrKeyExpired says that a key is older than [Transport.KeyLifetime], so that
// the server may have forgotten it and would take a repetition for a new
// operation.
var ErrKeyExpired = errors.New("client: the idempotency key is past its lifetime")

// ErrBodyNotRepeatable is part of the error when a request would have been sent
// again, but its body is longer than [Transport.MaxBodyBytes] and has no
// GetBody.
var ErrBodyNotRepeatable = errors.New("client: the request body cannot be sent again")
