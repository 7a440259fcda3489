package pgstore

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
)

// encodeHeader writes h as a JSON object of arrays in pure ASCII, one character
// a byte: valid UTF-8 is not asked of a header, so its bytes are written as the
// ISO 8859-1 characters that they are on the wire. nil gives nil, which is NULL.
func encodeHeader(h http.Header) any {
	if h == nil {
		return nil
	}
	// Most have few headers, and their names stay on the stack.
	var few [24]string
	names, size := few[:0], len("{}")
	for name, values := range h {
		names = append(names, name)
		size += len(name) + len(`"": null, `)
		for _, v := range values {
			size += len(v) + len(`"", `)
		}
	}
	slices.Sort(names)
	b := append(make([]byte, 0, size), '{')
	for i, name := range names {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = append(appendQuoted(b, name), ": "...)
		values := h[name]
		if values == nil {
			b = append(b, "null"...)
			continue
		}
		b = append(b, '[')
		for j, v := range values {
			if j > 0 {
				b = append(b, ", "...)
			}
			b = appendQuoted(b, v)
		}
		b = append(b, ']')
	}
	return string(append(b, '}'))
}

func appendQuoted(b []byte, s string) []byte {
	b = append(b, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < ' ' || c > '~':
			b = append(b, `\u00`...)
			b = append(b, digits[c>>4], digits[c&15])
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}

var errHeader = errors.New("headers that are no object of arrays of ISO 8859-1 text")

// decodeHeader undoes encodeHeader. The column keeps a text as it was written;
// JSON that says the same in another way is read too.
func decodeHeader(t nullText) (http.Header, error) {
	if !t.valid {
		return nil, nil
	}
	r := headerReader{rest: t.text}
	if h := r.header(); !r.strange {
		return h, nil
	}
	return decodeJSONHeader(t.text)
}

func decodeJSONHeader(s string) (http.Header, error) {
	var raw map[string][]string
	if err := json.Unmarshal([]byte(s), &raw); err != nil || raw == nil {
		return nil, errHeader
	}
	h := make(http.Header, len(raw))
	for name, values := range raw {
		name, ok := narrow(name)
		if !ok {
			return nil, errHeader
		}
		for i := range values {
			if values[i], ok = narrow(values[i]); !ok {
				return nil, errHeader
			}
		}
		h[name] = values
	}
	return h, nil
}

// narrow turns characters into the bytes they stand for.
func narrow(s string) (string, bool) {
	if isPrintable(s) {
		return s, true
	}
	b := make([]byte, 0, len(s))
	for _, r := range s {
		if r > 0xff {
			return "", false
		}
		b = append(b, byte(r))
	}
	return string(b), true
}

// headerReader reads what encodeHeader writes, to the letter, from the beginning
// of rest. At anything else it is strange, and what it gives is of no use.
type headerReader struct {
	rest    string
	strange bool
}

func (r *headerReader) header() http.Header {
	r.expect("{")
	h := make(http.Header)
	// One array for the values of all names.
	values := make([]string, 0, min(strings.Count(r.rest, "["), 64))
	for !r.strange && !r.skip("}") {
		if len(h) > 0 {
			r.expect(", ")
		}
		name := r.text()
		r.expect(": ")
		if r.skip("null") {
			h[name] = nil
			continue
		}
		r.expect("[")
		start := len(values)
		for !r.strange && !r.skip("]") {
			if len(values) > start {
				r.expect(", ")
			}
			values = append(values, r.text())
		}
		// The cap keeps an append to one name off the values of the next.
		h[name] = values[start:len(values):len(values)]
	}
	if r.rest != "" {
		r.strange = true
	}
	return h
}

// skip passes over s if it comes next, and reports whether it did.
func (r *headerReader) skip(s string) (ok bool) {
	r.rest, ok = strings.CutPrefix(r.rest, s)
	return ok
}

func (r *headerReader) expect(s string) {
	if !r.skip(s) {
		r.strange = true
	}
}

// text reads what appendQuoted writes.
func (r *headerReader) text() string {
	r.expect(`"`)
	for i := range len(r.rest) {
		switch c := r.rest[i]; {
		case c == '"':
			s := r.rest[:i]
			r.rest = r.rest[i+1:]
			return s
		case c == '\\':
			return r.escaped(i)
		case c < ' ' || c > '~':
			r.strange = true
			return ""
		}
	}
	r.strange = true
	return ""
}

// escaped reads a text in which the first escape stands at i.
func (r *headerReader) escaped(i int) string {
	b := append(make([]byte, 0, i+16), r.rest[:i]...)
	r.rest = r.rest[i:]
	for r.rest != "" && !r.strange {
		c := r.rest[0]
		r.rest = r.rest[1:]
		switch {
		case c == '"':
			return string(b)
		case c < ' ' || c > '~':
			r.strange = true
		case c != '\\':
			b = append(b, c)
		case r.skip("u00") && len(r.rest) >= 2:
			code, err := hex.DecodeString(r.rest[:2])
			if err != nil {
				r.strange = true
				break
			}
			b = append(b, code[0])
			r.rest = r.rest[2:]
		case r.skip(`"`):
			b = append(b, '"')
		case r.skip(`\`):
			b = append(b, '\\')
		default:
			r.strange = true
		}
	}
	r.strange = true
	return ""
}
