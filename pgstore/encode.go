package pgstore

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// What is kept as text is printable ASCII, so that it is the same in a database
// of any encoding, and every byte comes back.

const (
	maxPart = 255
	// mark begins a part of a key that is not kept as it is. NewKey makes no
	// part that begins so: its own mark stands behind a long text.
	mark   = "%~"
	digits = "0123456789ABCDEF"
)

// encodePart turns one part of a Key into what its column holds; different
// parts give different texts. What NewKey makes stays as it is.
func encodePart(s string) string {
	if len(s) <= maxPart && isPrintable(s) && !strings.HasPrefix(s, mark) {
		return s
	}
	e := mark + escape(s)
	if len(e) <= maxPart {
		return e
	}
	// No escaped text holds the mark a second time.
	sum := sha256.Sum256([]byte(s))
	return e[:maxPart-len(mark)-2*len(sum)] + mark + hex.EncodeToString(sum[:])
}

func isPrintable(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// escape writes what is not printable ASCII, and the percent sign, as %XX.
func escape(s string) string {
	if isPrintable(s) && !strings.Contains(s, "%") {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + 16)
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '%' {
			b.WriteByte('%')
			b.WriteByte(digits[c>>4])
			b.WriteByte(digits[c&15])
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

var errEscape = errors.New("a broken escape")

// unescape undoes escape.
func unescape(s string) (string, error) {
	if !strings.Contains(s, "%") {
		return s, nil
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b = append(b, s[i])
			continue
		}
		if i+2 >= len(s) {
			return "", errEscape
		}
		c, err := hex.DecodeString(s[i+1 : i+3])
		if err != nil {
			return "", errEscape
		}
		b = append(b, c[0])
		i += 2
	}
	return string(b), nil
}

// encodeHeader writes h as a JSON object of arrays in pure ASCII, one character
// a byte: valid UTF-8 is not asked of a header, so its bytes are written as the
// ISO 8859-1 characters that they are on the wire. nil gives nil.
func encodeHeader(h http.Header) *string {
	if h == nil {
		return nil
	}
	var b bytes.Buffer
	b.WriteByte('{')
	for i, name := range slices.Sorted(maps.Keys(h)) {
		if i > 0 {
			b.WriteString(", ")
		}
		quote(&b, name)
		b.WriteString(": ")
		values := h[name]
		if values == nil {
			b.WriteString("null")
			continue
		}
		b.WriteByte('[')
		for j, v := range values {
			if j > 0 {
				b.WriteString(", ")
			}
			quote(&b, v)
		}
		b.WriteByte(']')
	}
	b.WriteByte('}')
	s := b.String()
	return &s
}

func quote(b *bytes.Buffer, s string) {
	b.WriteByte('"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ' || c > '~':
			b.WriteString(`\u00`)
			b.WriteByte(digits[c>>4])
			b.WriteByte(digits[c&15])
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
}

var errHeader = errors.New("headers that are no object of arrays of ISO 8859-1 text")

// decodeHeader undoes encodeHeader.
func decodeHeader(s *string) (http.Header, error) {
	if s == nil {
		return nil, nil
	}
	var raw map[string][]string
	if err := json.Unmarshal([]byte(*s), &raw); err != nil || raw == nil {
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
