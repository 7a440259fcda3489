package client

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/retrysafe/idempotency"
)

// Verdict is what [Transport.Judge] finds out about an answer.
type Verdict int

// The verdicts. With Undecided, the zero value, this package's own table
// decides.
const (
	Undecided Verdict = iota
	Retry
	Final
)

// StripeShouldRetry is a [Transport.Judge] that obeys the header
// Stripe-Should-Retry.
func StripeShouldRetry(resp *http.Response) Verdict {
	switch resp.Header.Get("Stripe-Should-Retry") {
	case "true":
		return Retry
	case "false":
		return Final
	}
	return Undecided
}

// worthRepeating reports whether another attempt may bring a better result.
func (o *operation) worthRepeating(a *attempt) bool {
	if a.err != nil {
		return !a.local && !neverSent(a.err) && !isVerification(a.err)
	}
	if a.replayed || a.unguarded || a.problem.final() {
		// A replayed answer would only be said again. An unguarded one comes from a
		// handler that would run again.
		return false
	}
	if o.t.Judge != nil && a.resp.StatusCode >= 400 {
		switch o.t.Judge(a.resp) {
		case Retry:
			return true
		case Final:
			return false
		}
	}
	switch a.resp.StatusCode {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests,
		http.StatusInternalServerError, http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	case http.StatusConflict:
		// A 409 is the application's own, unless the problem document says that the
		// middleware wrote it.
		return a.busy() || a.problem.Code == idempotency.CodeOutcomeUnknown && a.resp.Header.Get("Retry-After") != ""
	}
	return false
}

// busy reports whether another attempt at the same operation is running.
func (a *attempt) busy() bool {
	return a.err == nil && a.resp.StatusCode == http.StatusConflict &&
		a.problem.Code == idempotency.CodeInProgress && !a.problem.final()
}

// neverSent reports whether err is net/http's refusal of a request that it
// cannot send. It has no types for these.
func neverSent(err error) bool {
	text := err.Error()
	for _, refusal := range []string{
		"unsupported protocol scheme",
		"http: no Host in request URL",
		"http: nil Request.URL",
		"net/http: invalid method",
		"net/http: invalid header",
		"net/http: invalid trailer",
	} {
		if strings.Contains(text, refusal) {
			return true
		}
	}
	return false
}

// isVerification reports whether err says that the server is not who it should
// be. Trying again would be a second chance for whoever it is.
func isVerification(err error) bool {
	var (
		verification *tls.CertificateVerificationError
		authority    x509.UnknownAuthorityError
		hostname     x509.HostnameError
		invalid      x509.CertificateInvalidError
	)
	return errors.As(err, &verification) || errors.As(err, &authority) ||
		errors.As(err, &hostname) || errors.As(err, &invalid)
}

// delays are the waits between attempts: exponential with full jitter. The
// backoff package draws from around its interval, plus and minus a factor of it;
// half the ceiling with the factor 1 is from zero to the ceiling.
func (t *Transport) delays() *backoff.ExponentialBackOff {
	lowest, highest := t.MinBackoff, t.MaxBackoff
	if lowest <= 0 {
		lowest = defaultMinBackoff
	}
	if highest <= 0 {
		highest = defaultMaxBackoff
	}
	return &backoff.ExponentialBackOff{
		InitialInterval:     max(min(lowest, highest)/2, 1), // zero would stay zero
		MaxInterval:         highest / 2,
		Multiplier:          2,
		RandomizationFactor: 1,
	}
}

// wait is the time until the next attempt. A server's Retry-After is never cut
// short, save by the cap, and spread a little, so that those who were refused
// together do not come back together.
func (o *operation) wait(a *attempt) time.Duration {
	asked, ok := retryAfter(a.resp)
	if !ok {
		return o.delays.NextBackOff()
	}
	asked = min(asked, time.Duration(bound(o.t.MaxRetryAfter, defaultMaxRetryAfter)))
	return asked + rand.N(2*o.delays.InitialInterval+1)
}

// retryAfter reads the header, in seconds or as a date. A date is compared with
// the server's own clock if the answer shows it.
func retryAfter(resp *http.Response) (time.Duration, bool) {
	if resp == nil {
		return 0, false
	}
	value := strings.TrimSpace(resp.Header.Get("Retry-After"))
	if seconds, err := strconv.ParseUint(value, 10, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		const longest = uint64(1<<63-1) / uint64(time.Second)
		return time.Duration(min(seconds, longest)) * time.Second, true
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0, false
	}
	now, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		now = time.Now()
	}
	return max(0, at.Sub(now)), true
}
