package pgstore

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
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
