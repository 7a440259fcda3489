package idempotency

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// Code names the reason of a refusal, for machines: the member "error" of a
// problem document, and [Event.Code]. Codes never change.
type Code string

// The codes, with the status each is answered with.
const (
	CodeKeyMissing       Code = "idempotency_key_missing"                      // 400: the endpoint requires a key
	CodeKeyInvalid       Code = "idempotency_key_invalid"                      // 400: malformed, repeated, or refused by a check
	CodeKeyReused        Code = "idempotency_key_reused_with_different_params" // 409, see WithMismatchStatus
	CodeInProgress       Code = "request_in_progress"                          // 409: the first request still runs
	CodeUserUnknown      Code = "user_unknown"                                 // 401: the UserFunc named nobody
	CodeBodyTooLarge     Code = "request_body_too_large"                       // 413, see WithMaxRequestBytes
	CodeBodyUnreadable   Code = "request_body_unreadable"                      // 400: the body broke off, or no fingerprint could be made of it
	CodeNotReplayable    Code = "response_not_replayable"                      // 409: done, but the answer was too large to keep
	CodeOutcomeUnknown   Code = "outcome_unknown"                              // 409: an earlier run died, see WithAtMostOnce
	CodeNotCommitted     Code = "not_committed"                                // 503: the transaction's fate is unknown (TxStore)
	CodePanicked         Code = "handler_panicked"                             // 500: a recorded panic, see RecordAll
	CodeStoreUnavailable Code = "store_unavailable"                            // 503: the store failed or is full
	CodeRecordCorrupt    Code = "record_corrupt"                               // 500: the record cannot be read
)

// facts of a code: its status, and a title and a detail that tell a client's
// developer what to do.
func (c Code) facts() (status int, title, detail string) {
	switch c {
	case CodeKeyMissing:
		return 400, "Idempotency key missing", "This endpoint requires an idempotency key."
	case CodeKeyInvalid:
		return 400, "Idempotency key invalid", "The idempotency key does not meet this API's rules for keys."
	case CodeKeyReused:
		return 409, "Idempotency key reused", "This idempotency key was used with a different request. Use a new key for a new operation."
	case CodeInProgress:
		return 409, "Request in progress", "A request with this idempotency key is being processed. Send the same request again later."
	case CodeUserUnknown:
		return 401, "User unknown", "The request does not say whose idempotency key this is."
	case CodeBodyTooLarge:
		return 413, "Request body too large", "The request body is larger than a request with an idempotency key may be."
	case CodeBodyUnreadable:
		return 400, "Request body unreadable", "The request body could not be read in full. Nothing was executed."
	case CodeNotReplayable:
		return 409, "Response not replayable", "The request was executed, but its response was too large to be kept."
	case CodeOutcomeUnknown:
		return 409, "Outcome unknown", "An earlier request with this idempotency key broke off, and it is not known what it did."
	case CodeNotCommitted:
		return 503, "Not committed", "It is not known whether the request took effect. Send the same request with the same key again."
	case CodePanicked:
		return 500, "Internal error", "The request was executed and failed. Sending it again will not change that."
	case CodeStoreUnavailable:
		return 503, "Temporarily unavailable", "The request was not executed. Send the same request with the same key again."
	case CodeRecordCorrupt:
		return 500, "Record corrupt", "The record of this idempotency key cannot be read."
	}
	return 500, "Internal error", ""
}

// Error is a refusal: what the middleware answers instead of the handler's
// answer, and what an [ErrorHandler] is given. A [UserFunc], a key check and a
// [FingerprintFunc] may return one to choose the answer; what they leave zero is
// filled in from the code.
type Error struct {
	Code           Code
	Status         int           // the HTTP status
	Detail         string        // for clients; never a raw key, user or cause
	RetryAfter     time.Duration // when to try again, whole seconds; 0: not said
	OriginalStatus int           // of an answer that cannot be replayed; 0: not said
	Docs           string        // from WithDocs
	Header         http.Header   // to add to the answer, e.g. WWW-Authenticate
	Err            error         // the cause; never leaves the process

	final bool // not retryable, whatever the code says
}

// Error returns the code, with the cause if there is one. It is for logs.
func (e *Error) Error() string {
	s := "idempotency: " + string(e.Code)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Retryable reports whether the same request with the same key can succeed
// later. An unknown outcome can only where a [Reconciler] settles it.
func (e *Error) Retryable() bool {
	switch e.Code {
	case CodeInProgress, CodeStoreUnavailable, CodeNotCommitted, CodeBodyUnreadable:
		return !e.final
	case CodeOutcomeUnknown:
		return e.RetryAfter > 0
	}
	return false
}

// filled returns e with what it leaves zero taken from code, or from its own.
func (e *Error) filled(code Code) *Error {
	c := *e
	if c.Code == "" {
		c.Code = code
	}
	status, _, detail := c.Code.facts()
	if c.Status == 0 {
		c.Status = status
	}
	if c.Detail == "" {
		c.Detail = detail
	}
	return &c
}

// ErrorHandler answers a refused request. It may write what it likes, but should
// keep err.Status, err.Header and Retry-After, which clients act upon. It is also
// what renders a panic that is recorded ([RecordAll]).
type ErrorHandler func(w http.ResponseWriter, r *http.Request, err *Error)

// WriteProblem is the default ErrorHandler. It writes err as a problem document
// of RFC 9457, application/problem+json, with the members type, title, status
// and detail, and error (the [Code]), retryable, and where they apply retry_after
// (seconds) and original_status; with the headers Cache-Control: no-store,
// Retry-After where it applies, and those of err.Header.
func WriteProblem(w http.ResponseWriter, _ *http.Request, err *Error) {
	err = err.filled(err.Code)
	p := problem{
		Type:           "about:blank",
		Title:          http.StatusText(err.Status), // what RFC 9457, section 4.2.1 asks of about:blank
		Status:         err.Status,
		Detail:         err.Detail,
		Error:          err.Code,
		Retryable:      err.Retryable(),
		RetryAfter:     seconds(err.RetryAfter),
		OriginalStatus: err.OriginalStatus,
	}
	h := w.Header()
	if err.Docs != "" {
		p.Type = err.Docs + "#" + string(err.Code)
		_, p.Title, _ = err.Code.facts()
		h.Add("Link", "<"+p.Type+`>; rel="describedby"`)
	}
	for name, values := range err.Header {
		h[http.CanonicalHeaderKey(name)] = append([]string(nil), values...)
	}
	// What an outer layer may have said about another body. Content-Encoding stays:
	// it is said by layers that encode whatever is written, this body, too.
	for _, name := range []string{"Content-Length", "Etag", "Last-Modified"} {
		h.Del(name)
	}
	h.Set("Content-Type", "application/problem+json")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	if p.RetryAfter > 0 {
		h.Set("Retry-After", strconv.FormatInt(p.RetryAfter, 10))
	}
	body, _ := json.Marshal(p) // of strings and numbers: cannot fail
	w.WriteHeader(err.Status)
	_, _ = w.Write(append(body, '\n')) // the client has gone: nobody to tell
}

type problem struct {
	Type           string `json:"type"`
	Title          string `json:"title"`
	Status         int    `json:"status"`
	Detail         string `json:"detail,omitempty"`
	Error          Code   `json:"error"`
	Retryable      bool   `json:"retryable"`
	RetryAfter     int64  `json:"retry_after,omitempty"`
	OriginalStatus int    `json:"original_status,omitempty"`
}

// seconds rounds d up to whole seconds.
func seconds(d time.Duration) int64 {
	return int64((d + time.Second - 1) / time.Second)
}
