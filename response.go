package idempotency

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// unrecorded are the headers that are never recorded: those that belong to one
// caller or one connection, and those that net/http or a replay writes afresh.
var unrecorded = []string{
	"Set-Cookie", "Www-Authenticate", "Proxy-Authenticate", "Authentication-Info", "Proxy-Authentication-Info",
	"Date", "Content-Length",
	"Connection", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
	headerUnguarded,
}

// headerUnguarded marks an answer that was given without a claim.
const headerUnguarded = "Idempotency-Unguarded"

// recordable returns what is to be recorded of the headers that a handler sent:
// what it set itself, that is, not what outer layers had set and it left alone.
// A name that it took away stays, without values.
func (m *Middleware) recordable(sent, outer http.Header) http.Header {
	if len(outer) == 0 && !m.holdsUnrecorded(sent) {
		return sent
	}
	var h http.Header
	connection := sent["Connection"]
	set := func(name string, values []string) {
		name = http.CanonicalHeaderKey(name) // handlers may write to the map as they like
		if m.unrecorded[name] || strings.HasPrefix(name, http.TrailerPrefix) || listed(connection, name) {
			return
		}
		if h == nil {
			h = make(http.Header, len(sent))
		}
		if have, twice := h[name]; twice {
			values = append(slices.Clip(have), values...)
		}
		h[name] = values
	}
	for name, values := range sent {
		if before, ok := outer[name]; !ok || !slices.Equal(before, values) {
			set(name, values)
		}
	}
	for name := range outer {
		if _, ok := sent[name]; !ok {
			set(name, nil)
		}
	}
	return h
}

// holdsUnrecorded reports whether there is anything in sent that is not to be
// recorded as it stands.
func (m *Middleware) holdsUnrecorded(sent http.Header) bool {
	for name := range sent {
		if m.unrecorded[name] || strings.HasPrefix(name, http.TrailerPrefix) || name != http.CanonicalHeaderKey(name) {
			return true
		}
	}
	return false
}

// listed reports whether name stands in the comma-separated lists of lines.
func listed(lines []string, name string) bool {
	for _, line := range lines {
		for element := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.TrimSpace(element), name) {
				return true
			}
		}
	}
	return false
}

// write answers with resp as with the handler's own answer, marked as a replay.
// resp is the request's own: its header values may end up in w's header map.
func (q *request) write(resp *Response) {
	h := q.w.Header()
	for name, values := range resp.Header {
		if name = http.CanonicalHeaderKey(name); !q.m.unrecorded[name] {
			h[name] = values
		}
	}
	set := func(i int, name, value string) {
		q.headers[i] = value
		h[name] = q.headers[i : i+1 : i+1]
	}
	set(0, q.m.replayHeader, "true")
	if h.Get("Cache-Control") == "" {
		set(1, "Cache-Control", "no-store")
	}
	bodyAllowed := bodyAllowedFor(resp.Status)
	switch {
	case len(resp.Trailer) > 0: // HTTP/1.1 sends trailers only where no length is announced
		set(2, "Trailer", strings.Join(slices.Sorted(maps.Keys(resp.Trailer)), ", "))
	case bodyAllowed:
		set(2, "Content-Length", strconv.Itoa(len(resp.Body)))
	}
	q.w.WriteHeader(resp.Status)
	if bodyAllowed && len(resp.Body) > 0 {
		_, _ = q.w.Write(resp.Body) // the client has gone: nobody to tell
	}
	maps.Copy(h, resp.Trailer)
}

// bodyAllowedFor reports whether an answer of that status has a body, by
// RFC 9110, section 6.4.1.
func bodyAllowedFor(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}
