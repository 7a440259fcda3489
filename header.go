package idempotency

import (
	"encoding/base64"
	"errors"
	"strings"
	"unicode/utf8"
)

// The reasons for which a key header is refused. Clients read them in the
// problem's detail, so none of them repeats what was sent.
var (
	errKeyRepeated = errors.New("the header was sent more than once")
	errKeyEmpty    = errors.New("the key is empty")
	errKeyTooLong  = errors.New("the key is longer than 255 bytes")
	errKeyBare     = errors.New("an unquoted key is visible ASCII without quotation marks, commas, semicolons and backslashes")
	errKeyQuoted   = errors.New("the quoted key is not a string of RFC 9651")
)

// maxKeyBytes is the length of the longest key, after unquoting.
const maxKeyBytes = 255

// parseKey returns the key in the lines of its header. A key comes bare, or as
// a String of RFC 9651, section 3.3.3, whose parameters are checked and ignored;
// both forms of one text are one key.
func parseKey(lines []string) (string, error) {
	if len(lines) != 1 {
		return "", errKeyRepeated
	}
	s := strings.Trim(lines[0], " \t")
	switch {
	case s == "":
		return "", errKeyEmpty
	case s[0] == '"':
		return parseQuotedKey(s)
	}
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c > '~' || c == '"' || c == ',' || c == ';' || c == '\\' {
			return "", errKeyBare
		}
	}
	return limitKey(s)
}

func parseQuotedKey(s string) (string, error) {
	key, rest, ok := cutString(s)
	if !ok || !isParameters(rest) {
		return "", errKeyQuoted
	}
	return limitKey(key)
}

func limitKey(key string) (string, error) {
	switch {
	case key == "":
		return "", errKeyEmpty
	case len(key) > maxKeyBytes:
		return "", errKeyTooLong
	}
	return key, nil
}

// cutString cuts a String of RFC 9651 off the front of s, which begins with a
// quotation mark.
func cutString(s string) (value, rest string, ok bool) {
	escaped := false
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			value = s[1:i]
			if escaped {
				value = unescape(value)
			}
			return value, s[i+1:], true
		case c == '\\':
			i++
			if i == len(s) || s[i] != '"' && s[i] != '\\' {
				return "", "", false
			}
			escaped = true
		case c < ' ' || c > '~':
			return "", "", false
		}
	}
	return "", "", false
}

// unescape takes the backslashes of a String away; each has its pair.
func unescape(s string) string {
	var b strings.Builder
	b.Grow(len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' {
			i++
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// isParameters reports whether s is the parameters of an Item, RFC 9651,
// section 3.1.2, possibly none.
func isParameters(s string) bool {
	for s != "" {
		if s[0] != ';' {
			return false
		}
		s = strings.TrimLeft(s[1:], " ")
		n := prefix(s, func(c byte) bool {
			return isLower(c) || isDigit(c) || c == '_' || c == '-' || c == '.' || c == '*'
		})
		if n == 0 || !isLower(s[0]) && s[0] != '*' {
			return false
		}
		if s = s[n:]; s == "" || s[0] != '=' {
			continue
		}
		var ok bool
		if s, ok = cutBareItem(s[1:]); !ok {
			return false
		}
	}
	return true
}

// cutBareItem cuts a Bare Item of RFC 9651, section 4.2.3.1, off the front of s.
func cutBareItem(s string) (rest string, ok bool) {
	if s == "" {
		return "", false
	}
	switch c := s[0]; {
	case c == '"':
		_, rest, ok = cutString(s)
		return rest, ok
	case c == '*' || isAlpha(c):
		return s[prefix(s, isTokenByte):], true
	case c == '-' || isDigit(c):
		rest, _, ok = cutNumber(s)
		return rest, ok
	case c == '@':
		rest, decimal, ok := cutNumber(s[1:])
		return rest, ok && !decimal
	case c == '?':
		if len(s) < 2 || s[1] != '0' && s[1] != '1' {
			return "", false
		}
		return s[2:], true
	case c == ':':
		encoded, rest, ok := strings.Cut(s[1:], ":")
		if strings.ContainsAny(encoded, "\r\n") { // DecodeString would pass over them
			return "", false
		}
		_, err := base64.StdEncoding.DecodeString(encoded)
		return rest, ok && err == nil
	case strings.HasPrefix(s, `%"`):
		return cutDisplayString(s[2:])
	}
	return "", false
}

// cutNumber cuts an Integer or a Decimal off the front of s.
func cutNumber(s string) (rest string, decimal, ok bool) {
	s = strings.TrimPrefix(s, "-")
	n := prefix(s, isDigit)
	if n == 0 || n > 15 {
		return "", false, false
	}
	if n == len(s) || s[n] != '.' {
		return s[n:], false, true
	}
	fraction := prefix(s[n+1:], isDigit)
	return s[n+1+fraction:], true, n <= 12 && fraction >= 1 && fraction <= 3
}

// cutDisplayString cuts the rest of a Display String off the front of s.
func cutDisplayString(s string) (rest string, ok bool) {
	var text []byte
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			return s[i+1:], utf8.Valid(text)
		case c == '%':
			if i+2 >= len(s) || !isLowerHex(s[i+1]) || !isLowerHex(s[i+2]) {
				return "", false
			}
			text = append(text, unhex(s[i+1])<<4|unhex(s[i+2]))
			i += 2
		case c < ' ' || c > '~':
			return "", false
		default:
			text = append(text, c)
		}
	}
	return "", false
}

// prefix returns the length of the longest prefix of s of which every byte is in.
func prefix(s string, in func(byte) bool) int {
	for i := range len(s) {
		if !in(s[i]) {
			return i
		}
	}
	return len(s)
}

func isDigit(c byte) bool    { return '0' <= c && c <= '9' }
func isLower(c byte) bool    { return 'a' <= c && c <= 'z' }
func isAlpha(c byte) bool    { return isLower(c | 0x20) }
func isLowerHex(c byte) bool { return isDigit(c) || 'a' <= c && c <= 'f' }

func isTokenByte(c byte) bool {
	return isAlpha(c) || isDigit(c) || strings.IndexByte("!#$%&'*+-.^_`|~:/", c) >= 0
}

func unhex(c byte) byte {
	if isDigit(c) {
		return c - '0'
	}
	return c - 'a' + 10
}

// RequireUUID is a check for [WithKeyCheck]: keys are UUIDs in the text form of
// RFC 9562, 36 characters, of any version and in either case. Case counts in
// comparing keys all the same.
func RequireUUID(key string) error {
	ok := len(key) == 36
	for i := 0; ok && i < len(key); i++ {
		switch i {
		case 8, 13, 18, 23:
			ok = key[i] == '-'
		default:
			ok = isDigit(key[i]) || isAlpha(key[i]) && isLowerHex(key[i]|0x20)
		}
	}
	if !ok {
		return &Error{Code: CodeKeyInvalid, Detail: "The idempotency key must be a UUID of 36 characters."}
	}
	return nil
}
