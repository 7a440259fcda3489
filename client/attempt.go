package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"time"
)

// An answer that is not returned is read up to these bounds, so that its
// connection can be used again; beyond them it is cheaper to close it.
const (
	drainBytes = 64 << 10
	drainTime  = 250 * time.Millisecond
)

// attempt is one sending of the request. Either resp or err is set.
type attempt struct {
	resp *http.Response
	err  error

	replayed  bool    // the server answered from its record
	unguarded bool    // the server ran the handler without protection
	problem   problem // zero if the answer is none
	sent      bool    // the request may have reached the server
	read      bool    // the answer's body is in memory
	local     bool    // nothing was sent, for a reason on this side
	took      time.Duration

	cancel context.CancelCauseFunc // ends the attempt's context
}

// send makes one attempt.
func (o *operation) send() *attempt {
	o.attempts++
	began := time.Now()
	if o.key.since.IsZero() {
		o.key.since = began
	}
	a := o.roundTrip()
	a.took = time.Since(began)
	o.sent = o.sent || a.sent
	return a
}

func (o *operation) roundTrip() *attempt {
	ctx, cancel := context.WithCancelCause(withoutContextKey(o.req.Context()))
	a := &attempt{cancel: cancel}
	var w wire
	out := o.req.WithContext(httptrace.WithClientTrace(ctx, w.trace()))
	out.Header = o.header.Clone() // Base may be a RoundTripper that adds to it
	if err := o.body.attach(out); err != nil {
		a.local = true
		a.fail(err)
		return a
	}
	stopTimer := o.startTimer(ctx, cancel)
	a.resp, a.err = o.t.base().RoundTrip(out)
	a.sent = a.err == nil || w.maybeSent(a.err)
	if a.err == nil {
		a.err = a.receive(o.t.answerLimit())
	}
	if late := stopTimer(); late != nil && !a.read {
		a.err = late // it may have struck after the header and before the body
	}
	if a.err != nil {
		a.fail(a.err)
	}
	return a
}

// startTimer bounds an attempt, whose context is ctx. The returned function
// stops the timer; if it has struck already, it returns what ended the attempt.
func (o *operation) startTimer(ctx context.Context, cancel context.CancelCauseFunc) (stop func() error) {
	why := errAttemptTimeout
	limit := time.Duration(min(
		bound(o.t.AttemptTimeout, defaultAttemptTimeout),
		bound(o.t.MaxElapsed, defaultMaxElapsed)-int64(elapsed(o.began)),
	))
	if left, ok := clientTimeout(o.req); ok && left < limit {
		limit, why = left, errClientTimeout
	}
	timer := time.AfterFunc(limit, func() { cancel(why) })
	return func() error {
		if timer.Stop() {
			return nil
		}
		cancel(why) // the timer's own call may be yet to come
		return context.Cause(ctx)
	}
}

// clientTimeout returns what is left of http.Client's Timeout, less a little.
// When that time-out strikes, http.Client replaces the error by one that does
// not wrap it, and the key would be lost with it; so the attempt ends just
// before.
func clientTimeout(req *http.Request) (time.Duration, bool) {
	deadline, ok := req.Context().Deadline()
	if !ok || legacyCancel(req) == nil {
		return 0, false
	}
	left := time.Until(deadline)
	return left - min(max(left/100, time.Millisecond), 100*time.Millisecond), true
}

func (t *Transport) answerLimit() int64 {
	if t.MaxAnswerBytes == 0 {
		return defaultMaxAnswerBytes
	}
	return t.MaxAnswerBytes
}

// receive looks at an answer, and reads it if it is small.
func (a *attempt) receive(limit int64) error {
	if a.resp == nil {
		return errors.New("client: Base returned neither an answer nor an error")
	}
	if a.resp.Body == nil {
		a.resp.Body = http.NoBody
	}
	a.replayed = isTrue(a.resp.Header, "Idempotent-Replayed")
	a.unguarded = isTrue(a.resp.Header, "Idempotency-Unguarded")
	if a.resp.ContentLength >= 0 && a.resp.ContentLength <= limit && a.resp.StatusCode != http.StatusSwitchingProtocols {
		if err := a.readAhead(a.resp.ContentLength); err != nil {
			return err
		}
	}
	return a.readProblem()
}

// readAhead reads a body of n bytes, so that a connection that is cut in the
// middle of it is noticed while the request can still be repeated.
func (a *attempt) readAhead(n int64) error {
	// One byte more makes Base see the end and take the connection back.
	head, err := io.ReadAll(io.LimitReader(a.resp.Body, n+1))
	switch {
	case err != nil:
		return err
	case int64(len(head)) < n:
		return io.ErrUnexpectedEOF
	case int64(len(head)) > n:
		a.putBack(head)
		return nil
	}
	_ = a.resp.Body.Close()
	a.resp.Body = io.NopCloser(bytes.NewReader(head))
	a.read = true
	return nil
}

// putBack gives the body of the answer back what was read of it.
func (a *attempt) putBack(head []byte) {
	a.resp.Body = readCloser{io.MultiReader(bytes.NewReader(head), a.resp.Body), a.resp.Body}
}

// fail ends an attempt that has no answer, or lost it.
func (a *attempt) fail(err error) {
	a.err = err
	if a.resp != nil {
		_ = a.resp.Body.Close()
		a.resp = nil
	}
	a.cancel(nil)
}

// discard gives up an answer that is not returned.
func (a *attempt) discard() {
	if a.resp == nil {
		return
	}
	timer := time.AfterFunc(drainTime, func() { a.cancel(nil) })
	_, _ = io.CopyN(io.Discard, a.resp.Body, drainBytes)
	timer.Stop()
	_ = a.resp.Body.Close()
	a.cancel(nil)
}

// result makes the answer the caller's. Its body ends the attempt's context when
// it is closed or read to its end, not before.
func (a *attempt) result(req *http.Request, tr *trail) *http.Response {
	a.resp.Request = req.WithContext(context.WithValue(req.Context(), trailKey{}, tr))
	if a.read {
		a.cancel(nil)
		return a.resp
	}
	body := &answerBody{ReadCloser: a.resp.Body, done: func() { a.cancel(nil) }}
	if w, ok := a.resp.Body.(io.Writer); ok {
		// 101 Switching Protocols: the body is the connection.
		a.resp.Body = struct {
			*answerBody
			io.Writer
		}{body, w}
		return a.resp
	}
	a.resp.Body = body
	return a.resp
}

// outcome describes the attempt in an error's text.
func (a *attempt) outcome() string {
	if a.err != nil {
		return "the error \"" + a.err.Error() + "\""
	}
	return fmt.Sprintf("status %d", a.resp.StatusCode)
}

// answerBody is a body that the caller reads.
type answerBody struct {
	io.ReadCloser
	done func()
}

func (b *answerBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.done()
	}
	return n, err
}

func (b *answerBody) Close() error {
	err := b.ReadCloser.Close()
	b.done()
	return err
}

// wire watches how far Base came with sending a request.
type wire struct {
	asked atomic.Bool // for a connection: Base reports to httptrace
	wrote atomic.Bool // began to write the header
}

func (w *wire) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GetConn: func(string) { w.asked.Store(true) },
		// Not WroteHeaders: with HTTP/2 that comes after the bytes have left, and a
		// cancelled RoundTrip may have returned before it.
		WroteHeaderField: func(string, []string) { w.wrote.Store(true) },
	}
}

// maybeSent reports whether the server may have got a request that failed with
// err. A Base that says nothing to httptrace may have sent it.
func (w *wire) maybeSent(err error) bool {
	if w.wrote.Load() {
		return true
	}
	return !w.asked.Load() && !neverSent(err) && !isVerification(err)
}

// isTrue reports whether a header says true.
func isTrue(h http.Header, name string) bool {
	return strings.EqualFold(strings.TrimSpace(h.Get(name)), "true")
}
