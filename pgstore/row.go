package pgstore

import (
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/retrysafe/idempotency"
)

const (
	inProgress = "in_progress"
	completed  = "completed"
)

// row is a row as the statement read gives it.
type row struct {
	token, hash, status string
	code                nullNumber
	header, trailer     nullText
	body                []byte
	bodyLost            bool
	reference           string
	hostTime            nullText
	expires, free       time.Duration // from now on, by the server's clock
}

// isAbsent reports whether the key counts as free; r may be nil.
func (r *row) isAbsent() bool { return r == nil || r.free <= 0 }

// isLapsed reports whether the claim has outlived its lease.
func (r *row) isLapsed() bool { return r.status == inProgress && r.expires <= 0 }

// record turns a row that is not absent into a Record. What cannot be read is
// ErrCorrupt.
func (r *row) record() (*idempotency.Record, error) {
	rec, err := r.parse()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", idempotency.ErrCorrupt, err)
	}
	return rec, nil
}

func (r *row) parse() (*idempotency.Record, error) {
	token, err := unescape(r.token)
	if err != nil {
		return nil, fmt.Errorf("token: %w", err)
	}
	rec := &idempotency.Record{Token: token, ExpiresIn: r.expires}
	if len(r.hash) != hex.EncodedLen(len(rec.Fingerprint)) {
		return nil, errHash
	}
	var hash [2 * len(rec.Fingerprint)]byte
	copy(hash[:], r.hash)
	if _, err := hex.Decode(rec.Fingerprint[:], hash[:]); err != nil {
		return nil, errHash
	}
	switch r.status {
	case inProgress:
		if r.isLapsed() {
			rec.Lapsed, rec.ExpiresIn = true, r.free
		}
	case completed:
		rec.Response, err = r.response()
	default:
		err = errors.New("an unknown status")
	}
	// The two ends were read at one instant, but a hand may have written them.
	rec.ExpiresIn = max(rec.ExpiresIn, time.Microsecond)
	return rec, err
}

var errHash = errors.New("request_hash is no SHA-256 in hexadecimal")

func (r *row) response() (*idempotency.Response, error) {
	if !r.code.valid {
		return nil, errors.New("completed without a status code")
	}
	resp := &idempotency.Response{Status: int(r.code.number), Body: r.body, BodyLost: r.bodyLost}
	var err error
	if resp.Header, err = decodeHeader(r.header); err != nil {
		return nil, err
	}
	if resp.Trailer, err = decodeHeader(r.trailer); err != nil {
		return nil, err
	}
	if resp.Reference, err = unescape(r.reference); err != nil {
		return nil, fmt.Errorf("reference: %w", err)
	}
	if r.hostTime.valid {
		if resp.Time, err = time.Parse(time.RFC3339Nano, r.hostTime.text); err != nil {
			return nil, errors.New("host_time is not in the form of RFC 3339")
		}
	}
	return resp, nil
}

// answerArgs is how many arguments appendAnswer appends.
const answerArgs = 8

// appendAnswer appends the arguments $5 to $12 of the statements that record
// resp.
func appendAnswer(args []any, resp *idempotency.Response, ttl time.Duration) []any {
	return append(args,
		micros(ttl), int32(resp.Status), encodeHeader(resp.Header), encodeHeader(resp.Trailer), //nolint:gosec // a status has three digits
		resp.Body, resp.BodyLost, escape(resp.Reference), resp.Time.UTC().Format(time.RFC3339Nano))
}
