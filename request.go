package idempotency

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// request is one keyed request on its way.
type request struct {
	m     *Middleware
	w     http.ResponseWriter
	r     *http.Request
	next  http.Handler
	body  []byte
	claim Claim
	event Event

	lasting context.Context // made by values
	leased  time.Time       // when the last call that may have given the claim its lease was begun
	calls   [2]deadline     // room for the contexts of the first calls of the store
	probe   [1]byte         // room for the read that finds the end of the body
	headers [3]string       // room for the header values that a replay adds
}

// values returns a context with the values of the request's that does not end.
func (q *request) values() context.Context {
	if q.lasting == nil {
		q.lasting = context.WithoutCancel(q.r.Context())
	}
	return q.lasting
}

// serve takes the request from its key to its answer.
func (q *request) serve(lines []string) {
	if refusal := q.prepare(lines); refusal != nil {
		q.refuse(refusal)
		return
	}
	if outer := FromContext(q.r.Context()); outer != nil && outer.behind == q.m.behind && outer.key == q.claim.Key {
		if q.body != nil {
			q.r.Body = &replayedBody{rest: q.body}
		}
		q.next.ServeHTTP(q.w, q.r)
		return
	}
	q.decide()
}

// prepare finds out everything about the request that its claim needs.
func (q *request) prepare(lines []string) *Error {
	m := q.m
	if len(lines) == 0 {
		return &Error{Code: CodeKeyMissing}
	}
	key, err := parseKey(lines)
	if err != nil {
		return &Error{Code: CodeKeyInvalid, Detail: "The " + m.keyHeader + " header is not valid: " + err.Error() + ".", Err: err}
	}
	if m.keyCheck != nil {
		if err := m.keyCheck(key); err != nil {
			return asError(err, CodeKeyInvalid)
		}
	}
	user, err := m.user(q.r)
	if err != nil || user == "" {
		return asError(err, CodeUserUnknown)
	}
	place := endpoint(q.r)
	scope := place
	if m.endpoint != nil {
		scope = m.endpoint(q.r)
	}
	q.claim.Key = NewKey(user, scope, key)

	var refusal *Error
	if q.body, refusal = q.readBody(); refusal != nil {
		return refusal
	}
	if q.claim.Fingerprint, err = q.print(); err != nil {
		refusal := asError(err, CodeBodyUnreadable)
		if refusal.Detail == "" {
			refusal.Detail, refusal.final = "The request body is not what this endpoint expects. Nothing was executed.", true
		}
		return refusal
	}
	if m.endpoint != nil {
		q.claim.Fingerprint = bind(place, q.claim.Fingerprint[:])
	}
	if err := q.r.Context().Err(); err != nil {
		return &Error{Code: CodeBodyUnreadable, Err: err} // the client has gone: nothing is claimed for it
	}
	q.claim.Token = rand.Text()
	return nil
}

// print computes the fingerprint. A panic of the function is an error: what a
// client sends must not be able to bring it about unanswered.
func (q *request) print() (f Fingerprint, err error) {
	defer func() {
		if p := recover(); p != nil {
			if p == http.ErrAbortHandler {
				panic(p)
			}
			err = fmt.Errorf("idempotency: the fingerprint function panicked: %v", p)
		}
	}()
	return q.m.fingerprint(q.r, q.body)
}

// endpoint is the method and the path as the client sent it, before any router
// rewrote it.
func endpoint(r *http.Request) string {
	path, _, _ := strings.Cut(r.RequestURI, "?")
	if _, rest, absolute := strings.Cut(path, "://"); absolute && path[0] != '/' {
		if i := strings.IndexByte(rest, '/'); i >= 0 {
			path = rest[i:]
		} else {
			path = "/"
		}
	}
	if path == "" {
		path = r.URL.EscapedPath()
	}
	return r.Method + " " + path
}

// decide claims the key and does what the claim's result asks for.
func (q *request) decide() {
	var twin waiting
	for {
		held, err := q.take()
		switch {
		case err != nil:
			q.claimFailed(err)
			return
		case held == nil && q.claim.Replaces != "":
			newRun(q).reconcile()
			return
		case held == nil:
			newRun(q).execute()
			return
		case held.Fingerprint != q.claim.Fingerprint:
			q.refuse(&Error{Code: CodeKeyReused, Status: q.m.mismatchStatus})
			return
		case held.Response != nil:
			q.replay(held.Response)
			return
		case held.Lapsed:
			if q.m.reconciler == nil || q.claim.Replaces == held.Token {
				q.refuse(q.m.outcomeUnknown(nil))
				return
			}
			q.freshToken()
			q.claim.Replaces, q.claim.Hold = held.Token, q.m.ttl
		default:
			q.freshToken()
			q.claim.Replaces, q.claim.Hold = "", 0
			if !q.wait(&twin, held) {
				q.refuse(q.busy(held))
				return
			}
		}
	}
}

// freshToken changes the token once it has been used for a take-over. That one may
// have been carried out, its reply lost, and the claim have lapsed since; what is
// still on its way to replace or to free that claim must not find another one.
func (q *request) freshToken() {
	if q.claim.Replaces != "" {
		q.claim.Token = rand.Text()
	}
}

// take claims the key once.
func (q *request) take() (held *Record, err error) {
	q.leased = time.Now()
	err = q.call(func(ctx context.Context) error {
		held, err = q.m.store.Claim(ctx, q.claim, q.m.lease)
		return err
	})
	if err == nil && held != nil && held.Token == q.claim.Token && held.Response == nil {
		held = nil // a store that reports our own claim, made by a call whose reply was lost
	}
	if err == nil && held == nil {
		err = q.stale()
	}
	return held, err
}

var errStale = errors.New("idempotency: the store took longer than the lease to make the claim")

// stale returns an error if the call that gave the claim its lease took so long
// that the claim may be another's by now: the handler must not run under it.
func (q *request) stale() error {
	if q.m.tx == nil && time.Since(q.leased) >= q.m.lease {
		return errStale
	}
	return nil
}

// call makes one call of the store, in a context that has the request's values,
// does not end with the client, and is bounded by the store timeout.
func (q *request) call(f func(context.Context) error) error {
	start := time.Now()
	ctx := q.deadline()
	ctx.init(q.parent(), start.Add(q.m.storeTimeout))
	defer ctx.cancel()
	defer func() { q.event.Store += time.Since(start) }()
	return f(ctx)
}

// parent returns the context whose values the store gets: a replay never asks
// for one that does not end.
func (q *request) parent() context.Context {
	if q.lasting != nil {
		return q.lasting
	}
	return q.r.Context()
}

// deadline returns room for a context. None is used twice: a store may keep it.
func (q *request) deadline() *deadline {
	for i := range q.calls {
		if q.calls[i].Context == nil {
			return &q.calls[i]
		}
	}
	return new(deadline)
}

// claimFailed answers a request whose claim failed.
func (q *request) claimFailed(err error) {
	if errors.Is(err, ErrCorrupt) {
		q.refuse(&Error{Code: CodeRecordCorrupt, Err: err})
		return
	}
	if q.m.failOpen {
		q.event.Err = err
		newRun(q).executeUnguarded()
		return
	}
	if !errors.Is(err, ErrStoreFull) && q.claim.Replaces == "" {
		q.releaseAbandoned() // the claim may have been made
	}
	q.refuse(&Error{Code: CodeStoreUnavailable, RetryAfter: time.Second, Err: err})
}

// busy is the refusal of a twin.
func (q *request) busy(held *Record) *Error {
	if err := q.r.Context().Err(); err != nil {
		return &Error{Code: CodeBodyUnreadable, Err: err} // the client has gone
	}
	after := time.Duration(max(seconds(q.m.retryAfter), 1)) * time.Second
	if left := held.ExpiresIn; left > 0 && left < after {
		after = max(left.Truncate(time.Second), time.Second)
	}
	return &Error{Code: CodeInProgress, RetryAfter: after}
}

// refuse answers with a problem.
func (q *request) refuse(e *Error) {
	e = e.filled(e.Code)
	if e.Docs == "" {
		e.Docs = q.m.docs
	}
	q.event.Code, q.event.Status = e.Code, e.Status
	if e.Err != nil {
		q.event.Err = e.Err
	}
	defer q.done(OutcomeRefused)
	q.m.errorHandler(q.w, q.r, e)
}

// replay answers from the record.
func (q *request) replay(resp *Response) {
	if s := resp.Status; s != http.StatusSwitchingProtocols && (s < 200 || s > 999) {
		q.refuse(&Error{Code: CodeRecordCorrupt, Err: fmt.Errorf("%w: it has the status %d", ErrCorrupt, s)})
		return
	}
	if resp.BodyLost {
		q.refuse(&Error{Code: CodeNotReplayable, OriginalStatus: resp.Status})
		return
	}
	q.event.Status = resp.Status
	defer q.done(OutcomeReplayed)
	q.write(resp)
}

// asError returns err as the refusal that it is or causes.
func asError(err error, code Code) *Error {
	if e := (*Error)(nil); errors.As(err, &e) && e != nil {
		return e.filled(code)
	}
	return &Error{Code: code, Err: err}
}
