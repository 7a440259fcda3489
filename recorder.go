package idempotency

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// errLateWrite is what a handler gets that goes on writing after it has returned.
var errLateWrite = errors.New("idempotency: write after the handler has returned")

// recorder is the ResponseWriter of a guarded handler. It holds the answer back
// until it has been recorded, and keeps a copy of what it sends when it cannot:
// a handler that flushes, or writes more than can be kept, goes live.
//
// It behaves as net/http's own writer does, errors and panics included, and
// offers what cannot go round the record: no Unwrap, no Hijacker, no Pusher, no
// ReaderFrom. A client that has gone is no error: a handler that stopped for
// that would leave half an answer to be recorded.
type recorder struct {
	mu sync.Mutex // against handlers that write after they have returned

	w      http.ResponseWriter
	m      *Middleware
	whole  bool // never live, and no limit to what is buffered (TxStore)
	marked bool // the answer is to say that it was given unguarded

	outer  http.Header // what the layers round the middleware had set
	header http.Header // the handler's
	sent   http.Header // a copy of header made by WriteHeader; nil before
	status int         // 0 before WriteHeader
	length int64       // announced by Content-Length; -1: not announced

	body    []byte // what the handler wrote, as far as it is kept
	written int64  // how much the handler wrote
	refused int64  // how much of that was above the announced length
	lost    bool   // it was more than is kept
	live    bool   // the client gets it as it is written
	done    bool   // the handler has returned

	sniffed []string // the Content-Type that net/http finds out; empty: none, nil: the handler's own counts

	resp     Response  // what response returns
	trailing []trailer // found by response
}

func (rec *recorder) init(m *Middleware, w http.ResponseWriter) {
	rec.m, rec.w = m, w
	rec.whole = m.tx != nil
	rec.length = -1
	if outer := w.Header(); len(outer) > 0 {
		rec.outer, rec.header = maps.Clone(outer), outer.Clone()
	} else {
		rec.header = make(http.Header)
	}
}

// Header returns the headers of the answer. As with net/http, changes after
// WriteHeader only count for trailers; once the handler has returned, none do.
func (rec *recorder) Header() http.Header {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if rec.done {
		return make(http.Header) // the other is being read
	}
	return rec.header
}

// WriteHeader sets the status. Informational ones (1xx) pass through at once and
// are not recorded.
func (rec *recorder) WriteHeader(status int) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	rec.writeHeader(status)
}

func (rec *recorder) writeHeader(status int) {
	if rec.status != 0 || rec.done {
		return
	}
	if status < 100 || status > 999 {
		panic(fmt.Sprintf("invalid WriteHeader code %v", status)) // net/http's words
	}
	if status < 200 && status != http.StatusSwitchingProtocols {
		rec.inform(status)
		return
	}
	rec.status = status
	rec.sent = rec.header.Clone()
	announced := rec.header.Get("Content-Length")
	if announced == "" {
		return
	}
	if n, err := strconv.ParseInt(announced, 10, 64); err == nil && n >= 0 {
		rec.length = n
		rec.body = make([]byte, 0, min(n, rec.m.maxResponse))
	}
}

// inform sends an informational answer with the headers as they are, and puts
// those of the outer layers back.
func (rec *recorder) inform(status int) {
	rec.put(rec.header)
	rec.w.WriteHeader(status)
	h := rec.w.Header()
	clear(h)
	maps.Copy(h, rec.outer)
}

// put makes headers those of the writer below.
func (rec *recorder) put(headers http.Header) {
	h := rec.w.Header()
	if len(h) > 0 {
		clear(h)
	}
	for name, values := range headers {
		if !rec.isMark(name) {
			h[name] = values
		}
	}
	if rec.marked {
		h[headerUnguarded] = []string{"true"}
	}
}

// isMark reports whether name is a header that only the middleware sets: a first
// answer is no replay, whatever the handler says.
func (rec *recorder) isMark(name string) bool {
	return strings.EqualFold(name, rec.m.replayHeader) || strings.EqualFold(name, headerUnguarded)
}

func (rec *recorder) Write(p []byte) (int, error) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if err := rec.admit(len(p)); err != nil || len(p) == 0 {
		return 0, err
	}
	if rec.keep(len(p)) {
		rec.body = append(rec.body, p...)
	}
	if rec.live {
		_, _ = rec.w.Write(p)
	}
	return len(p), nil
}

// WriteString is Write without the conversion.
func (rec *recorder) WriteString(s string) (int, error) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if err := rec.admit(len(s)); err != nil || s == "" {
		return 0, err
	}
	if rec.keep(len(s)) {
		rec.body = append(rec.body, s...)
	}
	if rec.live {
		_, _ = io.WriteString(rec.w, s)
	}
	return len(s), nil
}

// admit refuses a write of n bytes for the reasons net/http does.
func (rec *recorder) admit(n int) error {
	if rec.done {
		return errLateWrite
	}
	rec.writeHeader(http.StatusOK)
	if n == 0 {
		return nil
	}
	if !bodyAllowedFor(rec.status) {
		return http.ErrBodyNotAllowed
	}
	rec.written += int64(n)
	if rec.length >= 0 && rec.written > rec.length {
		rec.refused += int64(n)
		return http.ErrContentLength
	}
	return nil
}

// keep reports whether the next n bytes are to be kept. When they are more than
// can be, what was kept is sent or dropped, and the answer is live.
func (rec *recorder) keep(n int) bool {
	if rec.lost && !rec.whole {
		return false
	}
	if int64(len(rec.body))+int64(n) > rec.m.maxResponse {
		rec.lost = true
		if !rec.whole {
			if !rec.live {
				rec.goLive()
			}
			rec.body = nil
			return false
		}
	}
	return true
}

// goLive sends what has been written so far.
func (rec *recorder) goLive() {
	rec.live = true
	rec.put(rec.sent)
	rec.begin()
}

// begin sends the header, and the body as far as it is buffered.
func (rec *recorder) begin() {
	rec.w.WriteHeader(rec.status)
	if len(rec.body) > 0 {
		_, _ = rec.w.Write(rec.body)
	}
}

// sniff returns what net/http makes the Content-Type of an answer that does not
// say it, from what has been written when its header goes out: a value, no
// value, or nil where it has no business to.
func (rec *recorder) sniff() []string {
	_, typed := rec.sent["Content-Type"]
	if typed || !bodyAllowedFor(rec.status) || rec.sent.Get("Content-Encoding") != "" || rec.sent.Get("Transfer-Encoding") != "" {
		return nil
	}
	if len(rec.body) == 0 {
		return []string{}
	}
	return []string{http.DetectContentType(rec.body)}
}

// finish ends the handler's part: what it writes from now on is refused. It
// reports whether the answer is complete.
func (rec *recorder) finish() bool {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	rec.writeHeader(http.StatusOK) // if the handler has not
	rec.done = true
	return rec.length < 0 || rec.written-rec.refused == rec.length || !bodyAllowedFor(rec.status)
}

// response returns the answer as it is to be recorded.
func (rec *recorder) response(now time.Time) *Response {
	rec.trailing = rec.trailers()
	resp := &rec.resp
	*resp = Response{
		Status:   rec.status,
		Header:   rec.m.recordable(rec.sent, rec.outer),
		Trailer:  rec.recordableTrailer(),
		BodyLost: rec.lost,
		Time:     now,
	}
	if !rec.lost {
		resp.Body = rec.body
	}
	if !rec.live && len(rec.body) > 0 {
		rec.sniffed = rec.sniff()
	}
	if rec.sniffed != nil {
		if resp.Header == nil {
			resp.Header = make(http.Header, 1)
		}
		resp.Header["Content-Type"] = rec.sniffed // resp.Header may be rec.sent, where it does no harm
	}
	return resp
}

// send lets the client have the answer, or the rest of it.
func (rec *recorder) send() {
	h := rec.w.Header()
	if !rec.live {
		rec.put(rec.sent)
		// A trailer that was not declared has to be known before the header goes
		// out, or net/http announces a length, and HTTP/1.1 then has no trailers.
		for _, t := range rec.trailing {
			if t.name != t.key {
				h[t.key] = rec.header[t.key]
			}
		}
		rec.begin()
	}
	for _, t := range rec.trailing {
		h[t.key] = rec.header[t.key]
	}
}

// SetReadDeadline is forwarded to the writer below.
func (rec *recorder) SetReadDeadline(t time.Time) error {
	return http.NewResponseController(rec.w).SetReadDeadline(t)
}

// SetWriteDeadline is forwarded to the writer below.
func (rec *recorder) SetWriteDeadline(t time.Time) error {
	return http.NewResponseController(rec.w).SetWriteDeadline(t)
}

// EnableFullDuplex is forwarded to the writer below.
func (rec *recorder) EnableFullDuplex() error {
	return http.NewResponseController(rec.w).EnableFullDuplex()
}

// flusher is a recorder whose answer may go live.
type flusher struct{ *recorder }

// Flush is FlushError without the error.
func (f flusher) Flush() { _ = f.FlushError() }

// FlushError makes the answer live and flushes the writer below. It returns an
// error that is http.ErrNotSupported when that writer cannot flush; the answer
// then stays buffered.
func (f flusher) FlushError() error {
	rec := f.recorder
	rec.mu.Lock()
	defer rec.mu.Unlock()
	switch {
	case rec.done:
		return errLateWrite
	case !canFlush(rec.w):
		return fmt.Errorf("idempotency: the writer below cannot flush: %w", http.ErrNotSupported)
	}
	rec.writeHeader(http.StatusOK)
	if !rec.live {
		rec.sniffed = rec.sniff()
		rec.goLive()
	}
	_ = http.NewResponseController(rec.w).Flush()
	return nil
}

// canFlush reports whether http.ResponseController can flush w.
func canFlush(w http.ResponseWriter) bool {
	for {
		switch t := w.(type) {
		case interface{ FlushError() error }, http.Flusher:
			return true
		case interface{ Unwrap() http.ResponseWriter }:
			w = t.Unwrap()
		default:
			return false
		}
	}
}
