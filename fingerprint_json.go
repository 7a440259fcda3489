package idempotency

import (
	"bytes"
	"encoding/json"
	"math/big"
	"net/http"
	"slices"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// FingerprintJSON is a FingerprintFunc for clients that build the body anew for
// every attempt: the order of members, white space and the spelling of strings do
// not count, and numbers are compared by their exact decimal value, so 1, 1.0 and
// 10e-1 are one number and 9007199254740993 is not 9007199254740992. The query
// string counts as in [FingerprintBody].
//
// A body that has no one meaning counts by its bytes: one that is no JSON or no
// valid UTF-8, has two members of one name in an object, is nested deeper than
// 1000, or has a number with an exponent of more than 1000 digits.
func FingerprintJSON(r *http.Request, body []byte) (Fingerprint, error) {
	if canonical, ok := canonicalJSON(body); ok {
		// Itself JSON of the same meaning, so it is no other body's bytes.
		body = canonical
	}
	return FingerprintBody(r, body)
}

const (
	maxDepth          = 1000
	maxExponentDigits = 1000
)

// canonicalJSON returns the one spelling of the JSON value in body.
func canonicalJSON(body []byte) ([]byte, bool) {
	if !utf8.Valid(body) || !json.Valid(body) {
		return nil, false
	}
	s := jsonScanner{in: body}
	if _, ok := s.scan(0, 0); !ok {
		return nil, false
	}
	w := jsonWriter{in: body, objects: s.objects, out: make([]byte, 0, len(body))}
	_, _, ok := w.value(0, 0)
	return w.out, ok
}

// jsonObject is an object of the body. Its members are sorted by name, and know
// where their values are, so that the body is written in order without being
// copied once for every level of nesting.
type jsonObject struct {
	members []jsonMember
	end     int // after the closing brace
	next    int // the number of the first object after this one
}

type jsonMember struct {
	name  string // unescaped
	value int    // where the value begins
	first int    // the number of the first object at or after that
}

// jsonScanner finds the objects of valid JSON, numbered by where they begin.
type jsonScanner struct {
	in      []byte
	objects []jsonObject
}

// scan scans the value at i, inside depth arrays and objects, and returns where
// it ends.
func (s *jsonScanner) scan(i, depth int) (int, bool) {
	i = skipSpace(s.in, i)
	switch c := s.in[i]; {
	case (c == '{' || c == '[') && depth == maxDepth:
		return 0, false
	case c == '{':
		return s.object(i+1, depth+1)
	case c == '[':
		for i++; ; i++ {
			if i = skipSpace(s.in, i); s.in[i] == ']' {
				return i + 1, true
			}
			var ok bool
			if i, ok = s.scan(i, depth+1); !ok {
				return 0, false
			}
			if i = skipSpace(s.in, i); s.in[i] == ']' {
				return i + 1, true
			}
		}
	}
	return scalarEnd(s.in, i), true
}

// object scans the object whose members begin at i.
func (s *jsonScanner) object(i, depth int) (int, bool) {
	number := len(s.objects)
	s.objects = append(s.objects, jsonObject{})
	var members []jsonMember
	for ; ; i++ {
		if i = skipSpace(s.in, i); s.in[i] == '}' {
			break
		}
		end := scalarEnd(s.in, i)
		name := string(unquoteJSON(s.in[i:end]))
		i = skipSpace(s.in, skipSpace(s.in, end)+1)
		members = append(members, jsonMember{name, i, len(s.objects)})
		var ok bool
		if i, ok = s.scan(i, depth); !ok {
			return 0, false
		}
		if i = skipSpace(s.in, i); s.in[i] == '}' {
			break
		}
	}
	slices.SortFunc(members, func(a, b jsonMember) int {
		switch {
		case a.name < b.name:
			return -1
		case a.name > b.name:
			return 1
		}
		return 0
	})
	for j := 1; j < len(members); j++ {
		if members[j].name == members[j-1].name {
			return 0, false
		}
	}
	s.objects[number] = jsonObject{members, i + 1, len(s.objects)}
	return i + 1, true
}

// jsonWriter writes the canonical form of scanned JSON.
type jsonWriter struct {
	in      []byte
	objects []jsonObject
	out     []byte
}

// value writes the value at i; object is the number of the first object at or
// after i. It returns where the value ends and the number of the first object
// after that.
func (w *jsonWriter) value(i, object int) (end, next int, ok bool) {
	i = skipSpace(w.in, i)
	switch c := w.in[i]; {
	case c == '{':
		w.out = append(w.out, c)
		for j, m := range w.objects[object].members {
			if j > 0 {
				w.out = append(w.out, ',')
			}
			w.out = append(quoteJSON(w.out, []byte(m.name)), ':')
			if _, _, ok := w.value(m.value, m.first); !ok {
				return 0, 0, false
			}
		}
		w.out = append(w.out, '}')
		return w.objects[object].end, w.objects[object].next, true
	case c == '[':
		return w.array(i+1, object)
	case c == '"':
		end = scalarEnd(w.in, i)
		w.out = quoteJSON(w.out, unquoteJSON(w.in[i:end]))
		return end, object, true
	case c == '-' || isDigit(c):
		end = scalarEnd(w.in, i)
		w.out, ok = appendNumber(w.out, w.in[i:end])
		return end, object, ok
	default: // true, false, null
		end = scalarEnd(w.in, i)
		w.out = append(w.out, w.in[i:end]...)
		return end, object, true
	}
}

func (w *jsonWriter) array(i, object int) (end, next int, ok bool) {
	w.out = append(w.out, '[')
	for first := true; ; first = false {
		if i = skipSpace(w.in, i); w.in[i] == ']' {
			w.out = append(w.out, ']')
			return i + 1, object, true
		}
		if !first {
			w.out = append(w.out, ',')
			i++ // the comma of the body
		}
		if i, object, ok = w.value(i, object); !ok {
			return 0, 0, false
		}
	}
}

// appendNumber appends a JSON number in its one spelling: digits that neither
// begin nor end with a zero, and an exponent unless it is zero.
func appendNumber(out, number []byte) ([]byte, bool) {
	negative := number[0] == '-'
	if negative {
		number = number[1:]
	}
	mantissa, exponent := number, []byte(nil)
	if i := bytes.IndexAny(number, "eE"); i >= 0 {
		mantissa, exponent = number[:i], number[i+1:]
	}
	whole, fraction, _ := bytes.Cut(mantissa, []byte("."))
	digits := append(append(make([]byte, 0, len(mantissa)), whole...), fraction...)
	shift := -len(fraction)
	trimmed := bytes.TrimRight(digits, "0")
	shift += len(digits) - len(trimmed)
	if trimmed = bytes.TrimLeft(trimmed, "0"); len(trimmed) == 0 {
		return append(out, '0'), true
	}
	if negative {
		out = append(out, '-')
	}
	out = append(out, trimmed...)
	sum, ok := addExponent(exponent, shift)
	if sum != "0" {
		out = append(append(out, 'e'), sum...)
	}
	return out, ok
}

// addExponent returns the sum of a JSON exponent, possibly empty, and shift.
func addExponent(exponent []byte, shift int) (string, bool) {
	sign := ""
	switch {
	case len(exponent) > 0 && exponent[0] == '-':
		sign, exponent = "-", exponent[1:]
	case len(exponent) > 0 && exponent[0] == '+':
		exponent = exponent[1:]
	}
	exponent = bytes.TrimLeft(exponent, "0")
	switch {
	case len(exponent) == 0:
		return strconv.Itoa(shift), true
	case len(exponent) > maxExponentDigits:
		return "", false
	}
	e, _ := new(big.Int).SetString(sign+string(exponent), 10)
	return e.Add(e, big.NewInt(int64(shift))).String(), true
}

func skipSpace(in []byte, i int) int {
	for i < len(in) && (in[i] == ' ' || in[i] == '\t' || in[i] == '\n' || in[i] == '\r') {
		i++
	}
	return i
}

// scalarEnd returns where the string, number or literal at i ends.
func scalarEnd(in []byte, i int) int {
	if in[i] == '"' {
		for i++; in[i] != '"'; i++ {
			if in[i] == '\\' {
				i++
			}
		}
		return i + 1
	}
	for i < len(in) && bytes.IndexByte([]byte(",:]} \t\r\n"), in[i]) < 0 {
		i++
	}
	return i
}

// unquoteJSON returns the text of a JSON string. A surrogate without its pair,
// which UTF-8 cannot say, becomes the three bytes that it would have in UTF-8, so
// that it differs from every other text.
func unquoteJSON(quoted []byte) []byte {
	in := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(in, '\\') < 0 {
		return in
	}
	out := make([]byte, 0, len(in))
	for i := 0; i < len(in); i++ {
		if in[i] != '\\' {
			out = append(out, in[i])
			continue
		}
		i++
		if in[i] != 'u' {
			out = append(out, unescapeJSON(in[i]))
			continue
		}
		r := hexRune(in[i+1:])
		i += 4
		if i+6 < len(in) && in[i+1] == '\\' && in[i+2] == 'u' {
			if pair := utf16.DecodeRune(r, hexRune(in[i+3:])); pair != utf8.RuneError {
				r = pair
				i += 6
			}
		}
		if utf16.IsSurrogate(r) {
			out = append(out, 0xe0|byte(r>>12), 0x80|byte(r>>6)&0x3f, 0x80|byte(r)&0x3f)
		} else {
			out = utf8.AppendRune(out, r)
		}
	}
	return out
}

func unescapeJSON(c byte) byte {
	switch c {
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	}
	return c // a quotation mark, a slash or a backslash
}

// hexRune returns the number of four hexadecimal digits.
func hexRune(in []byte) rune {
	n, _ := strconv.ParseUint(string(in[:4]), 16, 32)
	return rune(n)
}

// quoteJSON appends text as a JSON string, with as few escapes as JSON allows
// and lone surrogates escaped as they were.
func quoteJSON(out, text []byte) []byte {
	const digits = "0123456789abcdef"
	out = append(out, '"')
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"' || c == '\\':
			out = append(out, '\\', c)
		case c < ' ':
			out = append(out, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		case c == 0xed && text[i+1] >= 0xa0: // of a lone surrogate: 0xd800 to 0xdfff
			low := text[i+2] & 0x3f
			out = append(out, '\\', 'u', 'd', digits[text[i+1]>>2&15], digits[text[i+1]<<2&12|low>>4], digits[low&15])
			i += 2
		default:
			out = append(out, c)
		}
	}
	return append(out, '"')
}
