package idempotency

import (
	"net/http"
	"strings"
)

// trailers calls yield with every trailer that the handler has set, declared or
// under http.TrailerPrefix: the name, and the name in the handler's headers.
func (rec *recorder) trailers(yield func(name, key string) bool) {
	for _, line := range rec.sent["Trailer"] {
		for name := range strings.SplitSeq(line, ",") {
			name = http.CanonicalHeaderKey(strings.TrimSpace(name))
			if len(rec.header[name]) > 0 && !rec.isMark(name) && !yield(name, name) {
				return
			}
		}
	}
	for key, values := range rec.header {
		name, ok := strings.CutPrefix(key, http.TrailerPrefix)
		name = http.CanonicalHeaderKey(name)
		if ok && len(values) > 0 && !rec.isMark(name) && !yield(name, key) {
			return
		}
	}
}

// trailer returns the trailers that are to be recorded.
func (rec *recorder) trailer() http.Header {
	var t http.Header
	for name, key := range rec.trailers {
		if rec.m.unrecorded[name] {
			continue
		}
		if t == nil {
			t = make(http.Header)
		}
		t[name] = rec.header[key]
	}
	return t
}
