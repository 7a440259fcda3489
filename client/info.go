package client

import (
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"time"

	"github.com/retrysafe/idempotency"
)

// Facts are what a Transport knows about an answer.
type Facts struct {
	Key       string           // the operation's key; "" if the request carried none
	Attempts  int              // how often the request was sent, this answer's included
	Replayed  bool             // the server answered from its record and did not run the handler for this attempt
	Unguarded bool             // the server could not reach its store and ran the handler without protection
	Code      idempotency.Code // of the middleware's problem document; "" if the answer is none
}

// Info returns the facts about resp, an answer of a [Transport], also through an
// [http.Client] and its redirects. They are zero for the answers to requests
// that passed through, and for those of other transports.
func Info(resp *http.Response) Facts {
	if tr := trailOf(resp); tr != nil {
		return tr.facts
	}
	return Facts{}
}

// trail is what an answer carries along: for Info, and for the request that
// follows when it is a redirect. It is kept in the context of resp.Request, which
// net/http does not touch, whereas it wraps bodies.
type trail struct {
	facts Facts
	since time.Time // when the key was first sent
}

type trailKey struct{}

func trailOf(resp *http.Response) *trail {
	if resp == nil || resp.Request == nil {
		return nil
	}
	tr, _ := resp.Request.Context().Value(trailKey{}).(*trail)
	return tr
}

// maxProblem bounds how much of an answer is read to find out whether it is one
// of the middleware's problems. Those have a few hundred bytes.
const maxProblem = 16 << 10

// problem is what counts of a problem document.
type problem struct {
	Code      idempotency.Code `json:"error"`
	Retryable *bool            `json:"retryable"`
}

// final reports whether the problem says that the same request cannot succeed.
func (p problem) final() bool {
	switch p.Code {
	case idempotency.CodeKeyReused, idempotency.CodeNotReplayable:
		return true
	}
	return p.Retryable != nil && !*p.Retryable
}

// readProblem reads a problem document and leaves the body as it was. What is
// no problem document, or none that can be read, leaves the problem zero.
func (a *attempt) readProblem() error {
	media, _, err := mime.ParseMediaType(a.resp.Header.Get("Content-Type"))
	if a.resp.StatusCode < 400 || err != nil || media != "application/problem+json" {
		return nil
	}
	head, err := io.ReadAll(io.LimitReader(a.resp.Body, maxProblem))
	if err != nil {
		return err
	}
	a.putBack(head)
	var p problem
	if json.Unmarshal(head, &p) == nil {
		a.problem = p
	}
	return nil
}
