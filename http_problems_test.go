package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/memstore"
)

// stated is a store in which every key is in one state.
type stated struct {
	*memstore.Store
	record *idempotency.Record
	err    error
}

func (s stated) Claim(_ context.Context, c idempotency.Claim, _ time.Duration) (*idempotency.Record, error) {
	if s.record != nil {
		s.record.Fingerprint = c.Fingerprint
	}
	return s.record, s.err
}

func failingFingerprint(*http.Request, []byte) (idempotency.Fingerprint, error) {
	return idempotency.Fingerprint{}, errors.New("cause")
}

func panickingFingerprint(*http.Request, []byte) (idempotency.Fingerprint, error) { panic("cause") }

// refusals are a way to every refusal that needs no time to pass.
func refusals() []refusalCase {
	type opts = []idempotency.Option
	lapsed := func() *idempotency.Record {
		return &idempotency.Record{Token: "dead", Lapsed: true, ExpiresIn: time.Hour}
	}
	lost := &idempotency.Record{Token: "x", Response: &idempotency.Response{Status: 201, BodyLost: true}, ExpiresIn: time.Hour}
	running := func(left time.Duration) *idempotency.Record { return &idempotency.Record{Token: "x", ExpiresIn: left} }
	return []refusalCase{
		{name: "key missing", key: "-", opts: opts{idempotency.WithRequiredKey()}, status: 400, code: idempotency.CodeKeyMissing},
		{name: "key invalid", key: "a,b", status: 400, code: idempotency.CodeKeyInvalid},
		{name: "key no UUID", opts: opts{idempotency.WithKeyCheck(idempotency.RequireUUID)}, status: 400, code: idempotency.CodeKeyInvalid},
		{name: "key check", opts: opts{idempotency.WithKeyCheck(func(string) error { return errors.New("cause") })}, status: 400, code: idempotency.CodeKeyInvalid},
		{name: "user unknown", user: "-", status: 401, code: idempotency.CodeUserUnknown},
		{name: "body too large", body: "large", opts: opts{idempotency.WithMaxRequestBytes(1)}, status: 413, code: idempotency.CodeBodyTooLarge},
		{name: "fingerprint fails", opts: opts{idempotency.WithFingerprint(failingFingerprint)}, status: 400, code: idempotency.CodeBodyUnreadable},
		{name: "fingerprint panics", opts: opts{idempotency.WithFingerprint(panickingFingerprint)}, status: 400, code: idempotency.CodeBodyUnreadable},
		{name: "in progress", store: stated{record: running(time.Hour)}, status: 409, code: idempotency.CodeInProgress, retryable: true, after: 2},
		{name: "in progress for a moment", store: stated{record: running(time.Millisecond)}, status: 409, code: idempotency.CodeInProgress, retryable: true, after: 1},
		{name: "in progress, own retry-after", store: stated{record: running(time.Hour)}, opts: opts{idempotency.WithRetryAfter(4500 * time.Millisecond)}, status: 409, code: idempotency.CodeInProgress, retryable: true, after: 5},
		{name: "in progress, no retry-after", store: stated{record: running(time.Hour)}, opts: opts{idempotency.WithRetryAfter(0)}, status: 409, code: idempotency.CodeInProgress, retryable: true, after: 1},
		{name: "in progress, not for so long", store: stated{record: running(3500 * time.Millisecond)}, opts: opts{idempotency.WithRetryAfter(time.Hour)}, status: 409, code: idempotency.CodeInProgress, retryable: true, after: 3},
		{name: "not replayable", store: stated{record: lost}, status: 409, code: idempotency.CodeNotReplayable, original: 201},
		{name: "outcome unknown", store: stated{record: lapsed()}, status: 409, code: idempotency.CodeOutcomeUnknown},
		{name: "store unavailable", store: stated{err: errors.New("cause")}, status: 503, code: idempotency.CodeStoreUnavailable, retryable: true, after: 1},
		{name: "store full", store: stated{err: idempotency.ErrStoreFull}, status: 503, code: idempotency.CodeStoreUnavailable, retryable: true, after: 1},
		{name: "record corrupt", store: stated{err: idempotency.ErrCorrupt}, status: 500, code: idempotency.CodeRecordCorrupt},
	}
}

type refusalCase struct {
	name            string
	key, user, body string // "-": none
	store           stated
	opts            []idempotency.Option
	status          int
	code            idempotency.Code
	retryable       bool
	after           int64
	original        int
}

func (c refusalCase) ask(t *testing.T, proto string, opts ...idempotency.Option) answer {
	t.Helper()
	c.store.Store = memstore.New()
	var store idempotency.Store = c.store
	if c.store.record == nil && c.store.err == nil {
		store = memstore.New()
	}
	var l ledger
	web := newSite(t, proto, guardWith(store, append(c.opts, opts...)...).Handler(&l))
	key, user := "KEYTEXT", "USERTEXT"
	if c.key != "" {
		key = strings.Trim(c.key, "-")
	}
	if c.user != "" {
		user = ""
	}
	a := web.post("/", key, c.body, asUser(user))
	require.Zero(t, l.runs())
	return a
}

// Every refusal is a problem document that says what a client's developer and a
// client's program need, and nothing that is nobody's business.
func TestHTTPProblems(t *testing.T) {
	t.Parallel()
	onEachProtocol(t, func(t *testing.T, proto string) {
		for _, c := range refusals() {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				a := c.ask(t, proto)
				p := requireProblem(t, a, c.status, c.code)
				require.Equal(t, "about:blank", p.Type)
				require.Equal(t, http.StatusText(c.status), p.Title)
				require.Equal(t, c.retryable, *p.Retryable)
				require.Equal(t, "nosniff", a.Header.Get("X-Content-Type-Options"))
				require.Empty(t, a.Header.Values("Link"))
				require.EqualValues(t, len(a.Body), a.Length)
				for _, secret := range []string{"KEYTEXT", "USERTEXT", "cause", "dead"} {
					require.NotContains(t, a.Body+fmt.Sprint(a.Header), secret)
				}
				if c.after == 0 {
					require.Nil(t, p.RetryAfter)
					require.Empty(t, a.Header.Values("Retry-After"))
				} else {
					require.Equal(t, c.after, *p.RetryAfter)
					require.Equal(t, []string{fmt.Sprint(c.after)}, a.Header.Values("Retry-After"))
				}
				if c.original == 0 {
					require.Nil(t, p.OriginalStatus)
				} else {
					require.Equal(t, c.original, *p.OriginalStatus)
				}
			})
		}
	})
}

// WithDocs gives every problem a type that can be looked up.
func TestHTTPProblemsWithDocs(t *testing.T) {
	t.Parallel()
	for _, c := range refusals() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := c.ask(t, http1, idempotency.WithDocs("https://a.example/errors"))
			p := requireProblem(t, a, c.status, c.code)
			address := "https://a.example/errors#" + string(c.code)
			require.Equal(t, address, p.Type)
			require.NotEqual(t, http.StatusText(c.status), p.Title)
			require.Equal(t, []string{"<" + address + `>; rel="describedby"`}, a.Header.Values("Link"))
		})
	}
}

// An ErrorHandler of one's own gets all that is known, and answers.
func TestHTTPProblemsErrorHandler(t *testing.T) {
	t.Parallel()
	for _, c := range refusals() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := make(chan *idempotency.Error, 1)
			a := c.ask(t, http1, idempotency.WithDocs("/errors"), idempotency.WithErrorHandler(func(w http.ResponseWriter, r *http.Request, err *idempotency.Error) {
				got <- err
				w.Header().Set("X-Method", r.Method)
				w.WriteHeader(418)
				_, _ = w.Write([]byte("own words"))
			}))
			require.Equal(t, 418, a.Status)
			require.Equal(t, "own words", a.Body)
			require.Equal(t, "POST", a.Header.Get("X-Method"))
			err := within(t, got)
			require.Equal(t, c.code, err.Code)
			require.Equal(t, c.status, err.Status)
			require.NotEmpty(t, err.Detail)
			require.Equal(t, c.original, err.OriginalStatus)
			require.Equal(t, "/errors", err.Docs)
			require.Equal(t, c.retryable, err.Retryable())
			require.Equal(t, time.Duration(c.after)*time.Second, err.RetryAfter.Round(time.Second))
			require.Contains(t, err.Error(), string(c.code))
			if c.store.err != nil {
				require.ErrorIs(t, err, c.store.err)
			}
		})
	}
}

// A mismatch is told before everything else, as it can never succeed; its status
// can be chosen; the record stays.
func TestHTTPProblemsMismatchFirst(t *testing.T) {
	t.Parallel()
	onEachProtocol(t, func(t *testing.T, proto string) {
		for _, status := range []int{0, 422} {
			var opts []idempotency.Option
			want := 409
			if status != 0 {
				opts, want = append(opts, idempotency.WithMismatchStatus(status)), status
			}
			b := newBlocking(t)
			web := newSite(t, proto, guard(opts...).Handler(b))
			first := b.begin(t, web, web.request("/", "K", "b1"))
			p := requireProblem(t, web.post("/", "K", "b2"), want, idempotency.CodeKeyReused)
			require.False(t, *p.Retryable)
			requireProblem(t, web.post("/", "K", "b1"), 409, idempotency.CodeInProgress)
			b.let <- struct{}{}
			answered := within(t, first)
			requireProblem(t, web.post("/", "K", "b2"), want, idempotency.CodeKeyReused)
			requireReplay(t, answered, web.post("/", "K", "b1"))
			require.Equal(t, 1, b.runs())
		}
	})
}

// What an outer layer said of another body is not said of a problem.
func TestHTTPProblemsUnderOuterHeaders(t *testing.T) {
	t.Parallel()
	guarded := guard().Handler(&ledger{})
	web := newSite(t, http1, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range map[string]string{
			"Content-Length": "3", "Content-Type": "text/html", "Etag": `"1"`, "Last-Modified": "Sun, 06 Nov 1994 08:49:37 GMT", "Cache-Control": "max-age=60", "X-Request-Id": "7",
		} {
			w.Header().Set(name, value)
		}
		guarded.ServeHTTP(w, r)
	}))
	a := web.post("/", "a,b", "")
	requireProblem(t, a, 400, idempotency.CodeKeyInvalid)
	require.NotContains(t, a.Header, "Etag")
	require.NotContains(t, a.Header, "Last-Modified")
	require.Equal(t, "7", a.Header.Get("X-Request-Id"))
}
