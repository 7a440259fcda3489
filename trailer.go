package idempotency

import (
	"net/http"
	"strings"
)

// trailer is one that the handler has set: its name, and the name it stands under
// in the handler's headers.
type trailer struct{ name, key string }

// trailers returns the trailers that the handler has set, declared or under
// http.TrailerPrefix.
func (rec *recorder) trailers() (found []trailer) {
	add := func(name, key string) {
		name = http.CanonicalHeaderKey(name)
		if len(rec.header[key]) > 0 && !rec.isMark(name) {
			found = append(found, trailer{name, key})
		}
	}
	for _, line := range rec.sent["Trailer"] {
		for name := range strings.SplitSeq(line, ",") {
			name = http.CanonicalHeaderKey(strings.TrimSpace(name))
			add(name, name)
		}
	}
	for key := range rec.header {
		if name, ok := strings.CutPrefix(key, http.TrailerPrefix); ok {
			add(name, key)
		}
	}
	return found
}

// recordableTrailer returns the trailers that are to be recorded.
func (rec *recorder) recordableTrailer() http.Header {
	var t http.Header
	for _, set := range rec.trailing {
		if rec.m.unrecorded[set.name] {
			continue
		}
		if t == nil {
			t = make(http.Header)
		}
		t[set.name] = rec.header[set.key]
	}
	return t
}
