package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
)

// payload is a request body that is sent once or more often. Every attempt gets
// the same bytes, with the length and framing that the caller chose.
type payload struct {
	open func() (io.ReadCloser, error) // nil: no body, or once
	once io.ReadCloser                 // a body that cannot be had again
}

// newPayload makes the body of req repeatable if it can. GetBody is used for
// every attempt, the first included: the attempts are the same by construction,
// and a request that the caller sends a second time is not sent with a used-up
// body. A body without it is read, up to limit, before anything is sent, so that
// a body that cannot be read is not sent in part. An error leaves the body to be
// closed by the caller.
func newPayload(req *http.Request, limit int64) (*payload, error) {
	switch {
	case req.Body == nil || req.Body == http.NoBody:
		return &payload{}, nil
	case req.GetBody != nil:
		_ = req.Body.Close()
		return &payload{open: req.GetBody}, nil
	case limit < 0 || req.ContentLength > limit:
		return &payload{once: req.Body}, nil
	}
	head, err := readHead(req, limit)
	if err != nil {
		return nil, err
	}
	if int64(len(head)) > limit {
		rest := io.MultiReader(bytes.NewReader(head), req.Body)
		return &payload{once: readCloser{rest, req.Body}}, nil
	}
	if req.ContentLength > 0 && int64(len(head)) != req.ContentLength {
		return nil, fmt.Errorf("client: the request body has %d bytes where Content-Length says %d", len(head), req.ContentLength)
	}
	_ = req.Body.Close()
	return &payload{open: func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(head)), nil
	}}, nil
}

// readHead reads the body of req up to one byte more than limit. It gives up
// when the caller does, even if the body's Read does not return; then, as in
// net/http, the body is closed while it may still be being read.
func readHead(req *http.Request, limit int64) ([]byte, error) {
	type result struct {
		head []byte
		err  error
	}
	done := make(chan result, 1)
	go func() {
		head, err := io.ReadAll(io.LimitReader(req.Body, min(limit, math.MaxInt64-1)+1))
		done <- result{head, err}
	}()
	select {
	case r := <-done:
		if r.err != nil {
			return nil, fmt.Errorf("client: reading the request body: %w", r.err)
		}
		return r.head, nil
	case <-req.Context().Done():
		return nil, context.Cause(req.Context())
	case <-legacyCancel(req):
		return nil, errLegacyCancel
	}
}

// streamed is the body of a request that is sent once and may be handed to Base
// as it is.
func streamed(req *http.Request) *payload {
	if req.Body == nil || req.Body == http.NoBody {
		return &payload{}
	}
	return &payload{once: req.Body}
}

// repeatable reports whether the body can be sent again.
func (p *payload) repeatable() bool { return p.once == nil }

// attach gives out, a copy of the caller's request, its body for one attempt.
func (p *payload) attach(out *http.Request) error {
	switch {
	case p.once != nil:
		// GetBody stays as the caller set it: nil for a body that was read in part
		// and so cannot be had again from it, and else still the same body's.
		out.Body = p.once
	case p.open != nil:
		body, err := p.open()
		if err != nil {
			return fmt.Errorf("client: opening the request body again: %w", err)
		}
		out.Body, out.GetBody = body, p.open
	}
	return nil
}

type readCloser struct {
	io.Reader
	io.Closer
}

var errLegacyCancel = errors.New("client: request cancelled")

// legacyCancel is how http.Client tells a RoundTripper that it does not know
// about Client.Timeout; a nil channel never fires.
func legacyCancel(req *http.Request) <-chan struct{} {
	return req.Cancel //nolint:staticcheck // deprecated for callers, but http.Client still sets it
}

// gone returns why the caller no longer wants an answer, or nil.
func gone(req *http.Request) error {
	if err := context.Cause(req.Context()); err != nil {
		return err
	}
	select {
	case <-legacyCancel(req):
		return errLegacyCancel
	default:
		return nil
	}
}
