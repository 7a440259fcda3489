package idempotency

import (
	"errors"
	"io"
	"net/http"
	"sync"
)

// eagerBytes is how much memory an announced length is trusted with before a
// byte of the body has arrived.
const eagerBytes = 1 << 20

// errShortBody is the cause when a body ends before its announced length.
var errShortBody = errors.New("idempotency: the body is shorter than announced")

// readBody reads the whole body of the request, or returns the refusal.
func (q *request) readBody() ([]byte, *Error) {
	r, limit := q.r, q.m.maxRequest
	if r.ContentLength > limit {
		return nil, &Error{Code: CodeBodyTooLarge} // before a byte is read, so no 100-continue
	}
	if r.Body == nil || r.Body == http.NoBody {
		if r.ContentLength > 0 { // some layer has taken it away
			return nil, &Error{Code: CodeBodyUnreadable, Err: errShortBody}
		}
		return nil, nil
	}
	size := int64(512)
	if r.ContentLength >= 0 {
		size = min(r.ContentLength, eagerBytes)
	}
	body := make([]byte, 0, size)
	for {
		n, err := r.Body.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		if len(body) == cap(body) && err == nil {
			// Usually the end: not worth a larger body to find that out.
			n, err = r.Body.Read(q.probe[:])
			body = append(body, q.probe[:n]...)
		}
		switch {
		case int64(len(body)) > limit:
			return nil, &Error{Code: CodeBodyTooLarge}
		case err == io.EOF && int64(len(body)) < r.ContentLength:
			return nil, &Error{Code: CodeBodyUnreadable, Err: errShortBody}
		case err == io.EOF:
			return body, nil
		case err != nil:
			return nil, bodyError(err)
		}
	}
}

func bodyError(err error) *Error {
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return &Error{Code: CodeBodyTooLarge, Err: err}
	}
	return &Error{Code: CodeBodyUnreadable, Err: err}
}

// replayedBody is the request body that the handler reads: the bytes that were
// read for it. Once they have been read, or the handler has returned, it lets go of
// them, since the answer is about to take as much memory again.
type replayedBody struct {
	mu     sync.Mutex // against handlers that read after they have returned
	rest   []byte
	closed bool
}

func (b *replayedBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed:
		return 0, http.ErrBodyReadAfterClose
	case len(p) == 0:
		return 0, nil
	case len(b.rest) == 0:
		return 0, io.EOF
	}
	n := copy(p, b.rest)
	if b.rest = b.rest[n:]; len(b.rest) == 0 {
		b.rest = nil
	}
	return n, nil
}

// WriteTo lets io.Copy do without a buffer. It does not hold mu while w, which may
// never end, takes the bytes.
func (b *replayedBody) WriteTo(w io.Writer) (int64, error) {
	b.mu.Lock()
	rest, closed := b.rest, b.closed
	b.rest = nil
	b.mu.Unlock()
	if closed {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := w.Write(rest)
	if n < len(rest) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.rest = rest[n:]
	}
	return int64(n), err
}

func (b *replayedBody) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rest, b.closed = nil, true
	return nil
}
