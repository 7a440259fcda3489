package client

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// UnknownOutcomeError says that a request was sent, or may have been, and that
// no answer came that could be returned: the operation may have been carried
// out or not. [errors.As] finds it in the error of an [http.Client].
//
// The way to find out is to send the same request again with the same key, for
// as long as the server keeps keys: with a context of [UnknownOutcomeError.Resume],
// or, in another process, with one of [WithKey].
type UnknownOutcomeError struct {
	// Key is the operation's key. It is empty for a request that carried none,
	// since it followed a redirect to another origin; there is nothing to resume
	// it with.
	Key       string
	FirstSent time.Time // when the first attempt with the key began
	Attempts  int       // how many were made
	Err       error     // of the last one
}

// Error does not hold the key: errors end up in logs.
func (e *UnknownOutcomeError) Error() string {
	attempts := "1 attempt"
	if e.Attempts != 1 {
		attempts = fmt.Sprintf("%d attempts", e.Attempts)
	}
	return fmt.Sprintf("client: outcome unknown after %s: %v", attempts, e.Err)
}

// Unwrap returns the error of the last attempt.
func (e *UnknownOutcomeError) Unwrap() error { return e.Err }

// Timeout reports whether the last error is a time-out, as [net.Error] has it.
func (e *UnknownOutcomeError) Timeout() bool {
	var t interface{ Timeout() bool }
	return errors.As(e.Err, &t) && t.Timeout()
}

// Resume returns a context for sending the same request again. It carries the
// key, as a context of [WithKey] does, and its age, so that
// [Transport.KeyLifetime] goes on counting: once it is over, RoundTrip sends
// nothing and returns [ErrKeyExpired].
func (e *UnknownOutcomeError) Resume(ctx context.Context) context.Context {
	return context.WithValue(ctx, contextKey{}, givenKey{value: e.Key, since: e.FirstSent, set: true})
}

// timeout is the error of an attempt that took too long.
type timeout string

func (t timeout) Error() string { return "client: " + string(t) }
func (timeout) Timeout() bool   { return true }
func (timeout) Temporary() bool { return true }

var (
	errAttemptTimeout error = timeout("the attempt timed out")
	errClientTimeout  error = timeout("the http.Client's Timeout is over")
)
