package idempotency

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"net/http"
)

// Fingerprint tells whether two requests with one key are the same request. It
// is a SHA-256.
type Fingerprint [sha256.Size]byte

// String returns f in hexadecimal.
func (f Fingerprint) String() string { return hex.EncodeToString(f[:]) }

// FingerprintFunc computes the fingerprint of a request. body is the whole
// request body and must not be changed or kept; r.Body is not to be read.
//
// An error refuses the request before anything is claimed: an [*Error] is
// answered as it is, any other gives 400. So does a panic.
type FingerprintFunc func(r *http.Request, body []byte) (Fingerprint, error)

// FingerprintBody is the default FingerprintFunc: the bytes of the body and the
// query string as sent. Header fields do not count, so a retry may spell its
// Content-Type differently. Without a query string the fingerprint is exactly
// the SHA-256 of the body.
func FingerprintBody(r *http.Request, body []byte) (Fingerprint, error) {
	query := ""
	if r != nil && r.URL != nil {
		query = r.URL.RawQuery
	}
	if query == "" {
		return sha256.Sum256(body), nil
	}
	return bind(query, body), nil
}

// bind is the fingerprint of body together with text. It is the complement of a
// SHA-256 over both, lengths told apart: nobody can find a body whose plain
// SHA-256 is that, so a body made to look like text and body cannot pass for
// the two.
func bind(text string, body []byte) (f Fingerprint) {
	h := sha256.New()
	var length [8]byte
	binary.BigEndian.PutUint64(length[:], uint64(len(text)))
	h.Write(length[:])
	h.Write([]byte(text))
	h.Write(body)
	h.Sum(f[:0])
	for i := range f {
		f[i] ^= 0xff
	}
	return f
}
