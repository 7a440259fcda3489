package pgstore

import (
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/retrysafe/idempotency"
)

const (
	inProgress = "in_progress"
	completed  = "completed"
)

// row is a row as the statement read gives it.
type row struct {
	token, hash, status string
	code                *int32
	header, trailer     *string
	body                []byte
	bodyLost            bool
	reference           string
	hostTime            *string
	expires, free       time.Duration // from now on, by the server's clock
}

// scan reads the one row there may be; nil when there is none.
func scan(rows pgx.Rows, err error) (*row, error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	if !rows.Next() {
		return nil, rows.Err()
	}
	var r row
	var expiresAt, freeAt, now time.Time
	if err := rows.Scan(&r.token, &r.hash, &r.status, &r.code, &r.header, &r.trailer,
		&r.body, &r.bodyLost, &r.reference, &r.hostTime, &expiresAt, &freeAt, &now); err != nil {
		return nil, err
	}
	r.expires, r.free = expiresAt.Sub(now), freeAt.Sub(now)
	rows.Close()
	return &r, rows.Err()
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
	hash, err := hex.DecodeString(r.hash)
	if err != nil || len(hash) != len(rec.Fingerprint) {
		return nil, errors.New("request_hash is no SHA-256 in hexadecimal")
	}
	copy(rec.Fingerprint[:], hash)
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

func (r *row) response() (*idempotency.Response, error) {
	if r.code == nil {
		return nil, errors.New("completed without a status code")
	}
	resp := &idempotency.Response{Status: int(*r.code), Body: r.body, BodyLost: r.bodyLost}
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
	if r.hostTime != nil {
		if resp.Time, err = time.Parse(time.RFC3339Nano, *r.hostTime); err != nil {
			return nil, errors.New("host_time is not in the form of RFC 3339")
		}
	}
	return resp, nil
}

// answerArgs are the arguments $5 to $12 of the statements that record resp.
func answerArgs(resp *idempotency.Response, ttl time.Duration) []any {
	return []any{
		micros(ttl), int32(resp.Status), encodeHeader(resp.Header), encodeHeader(resp.Trailer), //nolint:gosec // a status has three digits
		resp.Body, resp.BodyLost, escape(resp.Reference), resp.Time.UTC().Format(time.RFC3339Nano),
	}
}
