package idempotency

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// Key is the scope a record is kept under: whose key it is, for which endpoint,
// and the client's value. Two requests share a record only if all three agree.
//
// The parts of a Key made by [NewKey] are printable ASCII of at most 255 bytes.
type Key struct{ User, Endpoint, Value string }

const (
	maxPart   = 255
	separator = '|'
	// shortMark stands before the hash of a shortened part. An escape is '%' and
	// two hexadecimal digits, so no escaped text holds it.
	shortMark = "%~"
)

// NewKey returns the Key of the three texts, whatever bytes they hold. What is
// not printable ASCII, the percent sign and the separator of [Key.String] are
// escaped as %XX (a space stays); a part that is then longer than 255 bytes is
// cut and ends in a SHA-256 of the whole, in a form that no escaped text has.
// Different texts give different Keys.
func NewKey(user, endpoint, value string) Key {
	return Key{User: part(user), Endpoint: part(endpoint), Value: part(value)}
}

// String returns the Key on one line of printable ASCII, "user|endpoint|value"
// for a Key made by NewKey. Different Keys give different strings, hand-made
// ones included: a Key with a part that holds the separator or is not printable
// ASCII is written with all its parts escaped and a leading separator.
func (k Key) String() string {
	if isClean(k.User) && isClean(k.Endpoint) && isClean(k.Value) {
		return k.User + "|" + k.Endpoint + "|" + k.Value
	}
	// Three separators, where the form above has two.
	return "|" + escape(k.User) + "|" + escape(k.Endpoint) + "|" + escape(k.Value)
}

// part escapes and, if need be, shortens one text.
func part(s string) string {
	if len(s) <= maxPart && isPlain(s) {
		return s
	}
	e := escape(s)
	if len(e) <= maxPart {
		return e
	}
	sum := sha256.Sum256([]byte(s))
	keep := e[:maxPart-len(shortMark)-hex.EncodedLen(len(sum))]
	// Not in the middle of an escape.
	if i := strings.LastIndexByte(keep, '%'); i > len(keep)-3 {
		keep = keep[:i]
	}
	return keep + shortMark + hex.EncodeToString(sum[:])
}

func escape(s string) string {
	if isPlain(s) {
		return s
	}
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	b.Grow(len(s) + 16)
	for i := range len(s) {
		if c := s[i]; isPlainByte(c) {
			b.WriteByte(c)
		} else {
			b.WriteByte('%')
			b.WriteByte(digits[c>>4])
			b.WriteByte(digits[c&15])
		}
	}
	return b.String()
}

// isPlain reports whether escape leaves s as it is.
func isPlain(s string) bool {
	for i := range len(s) {
		if !isPlainByte(s[i]) {
			return false
		}
	}
	return true
}

func isPlainByte(c byte) bool {
	return c >= ' ' && c <= '~' && c != '%' && c != separator
}

// isClean reports whether s can stand in String's plain form.
func isClean(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == separator {
			return false
		}
	}
	return true
}
