package storetest

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/retrysafe/idempotency"
)

// take claims, and must get the key.
func (p *probe) take(c idempotency.Claim, lease time.Duration) {
	if rec := p.ask(c, lease); rec != nil {
		p.failf("Claim of token %s on a key that is free to it returned the record of %s, want nil",
			short(c.Token), describe(rec))
	}
}

// record claims and completes, and returns the time before Complete.
func (p *probe) record(c idempotency.Claim, resp *idempotency.Response, ttl time.Duration) time.Time {
	p.take(c, long)
	start := p.now()
	p.ok("Complete", p.complete(c, resp, ttl))
	return start
}

// lose claims for a stranger, and must get a record.
func (p *probe) lose(c idempotency.Claim, lease time.Duration) *idempotency.Record {
	rec := p.ask(c, lease)
	if rec == nil {
		p.failf("Claim of the other token %s got nil: the key was not held, want the record of its holder", short(c.Token))
	}
	return rec
}

// wantRunning asks with another token, and must learn that c holds the key with
// a lease of that length, begun at start or later.
func (p *probe) wantRunning(c idempotency.Claim, start time.Time, lease time.Duration) {
	other := rival(c)
	rec := p.lose(other, p.tick)
	p.checkRunning(rec, c, other)
	if p.tx == nil {
		p.checkLeft(rec, "lease", start, lease)
	}
}

// checkRunning checks a record that other got while c runs.
func (p *probe) checkRunning(rec *idempotency.Record, c, other idempotency.Claim) {
	if rec.Response != nil || rec.Lapsed {
		p.failf("the record is %s, want it in progress by token %s", describe(rec), short(c.Token))
	}
	if p.tx != nil {
		c = idempotency.Claim{Fingerprint: other.Fingerprint} // the holder cannot be seen
	}
	p.checkOwner(rec, c)
}

// wantLapsed asks with another token, and must learn that c has lapsed into its
// Hold.
func (p *probe) wantLapsed(c idempotency.Claim, start time.Time, hold time.Duration) {
	rec := p.lose(rival(c), p.tick)
	if !rec.Lapsed || rec.Response != nil {
		p.failf("the record is %s, want it lapsed", describe(rec))
	}
	p.checkOwner(rec, c)
	p.checkLeft(rec, "Hold", start, hold)
}

// wantDone asks with another token, and must get the response that c recorded.
func (p *probe) wantDone(c idempotency.Claim, resp *idempotency.Response, start time.Time, ttl time.Duration) {
	rec := p.lose(rival(c), p.tick)
	p.checkDone(rec, c, resp)
	p.checkLeft(rec, "TTL", start, ttl)
}

// checkDone checks a record that must hold the response of c.
func (p *probe) checkDone(rec *idempotency.Record, c idempotency.Claim, resp *idempotency.Response) {
	if rec.Response == nil || rec.Lapsed {
		p.failf("the record is %s, want the response %q", describe(rec), brief(resp.Body))
	}
	p.checkOwner(rec, c)
	if diff := differ(rec.Response, resp); diff != "" {
		p.failf("the response is not the one that was stored: %s", diff)
	}
}

// wantFree must get the key with another token, and gives it back.
func (p *probe) wantFree(key idempotency.Key) {
	c := claimFor(key)
	if rec := p.ask(c, long); rec != nil {
		p.failf("Claim returned the record of %s, want nil: the key should be absent", describe(rec))
	}
	p.release(c)
}

func (p *probe) checkOwner(rec *idempotency.Record, c idempotency.Claim) {
	if rec.Token != c.Token {
		p.failf("the record has the token %q, want %q", short(rec.Token), short(c.Token))
	}
	if rec.Fingerprint != c.Fingerprint {
		p.failf("the record has the fingerprint %.8s, want %.8s", rec.Fingerprint, c.Fingerprint)
	}
	if rec.ExpiresIn <= 0 {
		p.failf("the record has ExpiresIn %v, want it above zero", rec.ExpiresIn)
	}
}

// checkLeft checks what is left of a time d that began at start or later.
func (p *probe) checkLeft(rec *idempotency.Record, what string, start time.Time, d time.Duration) {
	const resolution = time.Millisecond
	if rec.ExpiresIn > d+resolution {
		p.failf("ExpiresIn is %v, which is more than the whole %s of %v", rec.ExpiresIn, what, d)
	}
	if least := d - p.now().Sub(start) - p.tick; rec.ExpiresIn < least {
		p.failf("ExpiresIn is %v, want at least %v of the %s of %v", rec.ExpiresIn, least, what, d)
	}
}

// differ says in what got differs from want, and "" if in nothing.
func differ(got, want *idempotency.Response) string {
	switch {
	case got.Status != want.Status:
		return fmt.Sprintf("status %d, want %d", got.Status, want.Status)
	case !bytes.Equal(got.Body, want.Body):
		return fmt.Sprintf("body %q (%d bytes), want %q (%d bytes)",
			brief(got.Body), len(got.Body), brief(want.Body), len(want.Body))
	case got.BodyLost != want.BodyLost:
		return fmt.Sprintf("BodyLost %t, want %t", got.BodyLost, want.BodyLost)
	case got.Reference != want.Reference:
		return fmt.Sprintf("reference %q, want %q", got.Reference, want.Reference)
	case got.Time.IsZero() != want.Time.IsZero(),
		got.Time.Sub(want.Time).Abs() >= time.Microsecond:
		return fmt.Sprintf("time %v, want %v", got.Time, want.Time)
	}
	if diff := differHeader(got.Header, want.Header); diff != "" {
		return "header: " + diff
	}
	if diff := differHeader(got.Trailer, want.Trailer); diff != "" {
		return "trailer: " + diff
	}
	return ""
}

func differHeader(got, want http.Header) string {
	for name, values := range want {
		g, ok := got[name]
		if !ok {
			return fmt.Sprintf("%q is gone, want it with the values %q", name, values)
		}
		if !slices.Equal(g, values) {
			return fmt.Sprintf("%q has the values %q, want %q", name, g, values)
		}
	}
	for name, values := range got {
		if _, ok := want[name]; !ok {
			return fmt.Sprintf("%q appeared, with the values %q", name, values)
		}
	}
	return ""
}

// describe says what a record is, on one line.
func describe(rec *idempotency.Record) string {
	var state string
	switch {
	case rec == nil:
		return "nothing"
	case rec.Response != nil && rec.Lapsed:
		state = fmt.Sprintf("both lapsed and completed with %q", brief(rec.Response.Body))
	case rec.Response != nil:
		state = fmt.Sprintf("completed with %q", brief(rec.Response.Body))
	case rec.Lapsed:
		state = "lapsed"
	default:
		state = "in progress"
	}
	return fmt.Sprintf("token %q, %s, ExpiresIn %v", short(rec.Token), state, rec.ExpiresIn)
}

func short(token string) string {
	if len(token) > 8 {
		return token[:8] + "…"
	}
	return token
}

func brief(body []byte) string {
	if len(body) > 40 {
		return string(body[:40]) + "…"
	}
	return strings.Clone(string(body))
}
