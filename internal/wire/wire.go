// Package wire is the form in which a store that keeps bytes keeps a claim or a
// completed record: one value that a script on the server can compare, that an
// operator can read in the main, and that a later release can still decode.
//
// Every value is an envelope, a version and what that version defines:
//
//	P26:7XQ2…JD 1 <fingerprint> <hold>            a claim (in progress)
//	C26:7XQ2…JD 1 <fingerprint> <meta length>\n<meta><body>   a completed record
//
// The envelope is the state (P or C), the token's length, and the token. It
// stands first, is the same in every version, and no envelope is the beginning
// of another, whatever bytes a token holds. So a script tells an owner by
// comparing the first bytes of a value with [ClaimPrefix] or [DonePrefix],
// without knowing the version.
//
// Version 1: the fingerprint is 64 hexadecimal digits. The hold, last in a
// claim, is [HoldDigits] decimal digits of milliseconds, so that a script can
// read and replace it. The meta length is 8 hexadecimal digits; see meta.go for
// the meta. The body follows as it is.
//
// A new version is written only by a release after the one that can read it,
// so that processes of two neighbouring releases can share a store.
package wire

import (
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/retrysafe/idempotency"
)

const (
	stateClaim = 'P'
	stateDone  = 'C'

	version = " 1 "

	// HoldDigits is the number of digits of the hold, with which a claim ends.
	HoldDigits = 13

	// MaxMilliseconds is the longest time that a time.Duration can hold.
	MaxMilliseconds = int64(math.MaxInt64 / time.Millisecond)

	fingerprintDigits = 2 * len(idempotency.Fingerprint{})
	metaLengthDigits  = 8
	// claimTail is what follows the envelope of a claim.
	claimTail = len(version) + fingerprintDigits + 1 + HoldDigits
	// maxEnvelope is more than an envelope has besides its token.
	maxEnvelope = 20
	// maxMeta keeps the meta length within its digits, and within an int on
	// every platform.
	maxMeta = math.MaxInt32
)

// Value is a decoded claim or record.
type Value struct {
	Token       string
	Fingerprint idempotency.Fingerprint
	Hold        int64                 // of a claim, in milliseconds
	Response    *idempotency.Response // nil for a claim
}

// ClaimPrefix returns the bytes that a claim of token, and no other value,
// begins with.
func ClaimPrefix(token string) string { return envelope(stateClaim, token) }

// DonePrefix returns the bytes that a record completed by token, and no other
// value, begins with. It is as long as ClaimPrefix.
func DonePrefix(token string) string { return envelope(stateDone, token) }

func envelope(state byte, token string) string {
	return string(appendEnvelope(make([]byte, 0, maxEnvelope+len(token)), state, token))
}

func appendEnvelope(dst []byte, state byte, token string) []byte {
	dst = append(dst, state)
	dst = strconv.AppendInt(dst, int64(len(token)), 10)
	dst = append(dst, ':')
	return append(dst, token...)
}

// ClaimLen returns the length of a claim of token.
func ClaimLen(token string) int { return len(ClaimPrefix(token)) + claimTail }

// IsClaim reports whether s, of which only the beginning may be there, is to be
// a claim.
func IsClaim(s string) bool { return s != "" && s[0] == stateClaim }

// FormatHold returns ms, brought into the range of 0 to MaxMilliseconds, as the
// hold stands in a claim.
func FormatHold(ms int64) string { return string(appendHold(nil, ms)) }

func appendHold(dst []byte, ms int64) []byte {
	ms = min(max(ms, 0), MaxMilliseconds)
	var digits [HoldDigits]byte
	for i := len(digits) - 1; i >= 0; i-- {
		digits[i] = byte('0' + ms%10)
		ms /= 10
	}
	return append(dst, digits[:]...)
}

// EncodeClaim returns the value of a claim. The hold is in milliseconds, from 0
// to MaxMilliseconds.
func EncodeClaim(token string, fp idempotency.Fingerprint, hold int64) []byte {
	dst := appendHead(make([]byte, 0, maxEnvelope+len(token)+claimTail), stateClaim, token, fp)
	return appendHold(dst, hold)
}

// EncodeRecord returns the value of a completed record. It fails only when the
// headers, trailers and reference of resp come to more than 2 GiB.
func EncodeRecord(token string, fp idempotency.Fingerprint, resp *idempotency.Response) ([]byte, error) {
	head := maxEnvelope + len(token) + claimTail
	size := metaSize(resp)
	if size > maxMeta {
		return nil, fmt.Errorf("wire: headers and trailers of %d bytes are too large to be kept", size)
	}
	dst := make([]byte, 0, head+size+len(resp.Body))
	dst = appendHead(dst, stateDone, token, fp)
	lengthAt := len(dst)
	dst = append(dst, "00000000\n"...)
	metaAt := len(dst)
	dst = appendMeta(dst, resp)
	putHex(dst[lengthAt:lengthAt+metaLengthDigits], uint32(len(dst)-metaAt))
	return append(dst, resp.Body...), nil
}

// appendHead appends what claims and records have in common, up to and with the
// space behind the fingerprint.
func appendHead(dst []byte, state byte, token string, fp idempotency.Fingerprint) []byte {
	dst = appendEnvelope(dst, state, token)
	dst = append(dst, version...)
	dst = hex.AppendEncode(dst, fp[:])
	return append(dst, ' ')
}

func putHex(dst []byte, n uint32) {
	const digits = "0123456789abcdef"
	for i := len(dst) - 1; i >= 0; i-- {
		dst[i] = digits[n&15]
		n >>= 4
	}
}

// Decode reads a value that EncodeClaim or EncodeRecord made. Any other gives
// an error that wraps [idempotency.ErrCorrupt]. The token shares the memory of
// s; the Response does not.
func Decode(s string) (Value, error) {
	v, rest, err := decodeHead(s)
	if err != nil {
		return Value{}, err
	}
	if s[0] == stateClaim {
		if v.Hold, err = parseHold(rest); err != nil {
			return Value{}, err
		}
		return v, nil
	}
	if len(rest) <= metaLengthDigits || rest[metaLengthDigits] != '\n' {
		return Value{}, corrupt("the meta length is missing")
	}
	n, err := strconv.ParseUint(rest[:metaLengthDigits], 16, 32)
	rest = rest[metaLengthDigits+1:]
	if err != nil || n > uint64(len(rest)) {
		return Value{}, corrupt("the meta is cut off")
	}
	v.Response, err = decodeMeta(rest[:n], rest[n:])
	if err != nil {
		return Value{}, err
	}
	return v, nil
}

// decodeHead reads what claims and records have in common, and returns the rest.
func decodeHead(s string) (v Value, rest string, err error) {
	if s == "" {
		return v, "", corrupt("the value is empty")
	}
	if s[0] != stateClaim && s[0] != stateDone {
		return v, "", corrupt("neither a claim nor a record")
	}
	digits, rest, ok := strings.Cut(s[1:], ":")
	n, err := strconv.Atoi(digits)
	if !ok || err != nil || n < 0 || n > len(rest) || len(digits) > maxEnvelope {
		return v, "", corrupt("the token is cut off")
	}
	v.Token, rest = rest[:n], rest[n:]
	if !strings.HasPrefix(rest, version) {
		return v, "", corrupt("unknown version")
	}
	rest = rest[len(version):]
	if len(rest) <= fingerprintDigits || rest[fingerprintDigits] != ' ' {
		return v, "", corrupt("the fingerprint is cut off")
	}
	if !parseHex(v.Fingerprint[:], rest[:fingerprintDigits]) {
		return v, "", corrupt("the fingerprint is not hexadecimal")
	}
	return v, rest[fingerprintDigits+1:], nil
}

// parseHex is hex.Decode without a []byte of src.
func parseHex(dst []byte, src string) bool {
	for i := range dst {
		hi, ok1 := hexDigit(src[2*i])
		lo, ok2 := hexDigit(src[2*i+1])
		if !ok1 || !ok2 {
			return false
		}
		dst[i] = hi<<4 | lo
	}
	return true
}

func hexDigit(c byte) (byte, bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10, true
	}
	return 0, false
}

func parseHold(s string) (int64, error) {
	if len(s) != HoldDigits {
		return 0, corrupt("the hold is cut off, or something stands behind it")
	}
	n, err := strconv.ParseUint(s, 10, 63)
	if err != nil || int64(n) > MaxMilliseconds {
		return 0, corrupt("the hold is no number of milliseconds")
	}
	return int64(n), nil
}

func corrupt(what string) error {
	return fmt.Errorf("wire: %s: %w", what, idempotency.ErrCorrupt)
}
