package storetest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"

	"github.com/retrysafe/idempotency"
)

func rule12() []testCase {
	return []testCase{
		{name: "the response given to Complete is changed afterwards", run: changeGiven},
		{name: "the response got from Claim is changed", run: changeGot},
		{name: "the record got from Claim is changed", run: changeRecord},
		{name: "the response got by the owner is changed", run: changeGotByOwner},
		{name: "everything at once on a few keys", run: hammer},
	}
}

// full returns a response with something in every field.
func full() *idempotency.Response {
	r := answer("the original body")
	r.Header["Link"] = []string{"<a>", "<b>"}
	r.Trailer = http.Header{"X-Sum": {"1", "2"}}
	r.Reference = "ch_1"
	return r
}

// spoil changes everything that r refers to.
func spoil(r *idempotency.Response) {
	for i := range r.Body {
		r.Body[i] = '!'
	}
	_ = append(r.Body, "appended"...)
	for _, h := range []http.Header{r.Header, r.Trailer} {
		for _, values := range h {
			for i := range values {
				values[i] = "spoilt"
			}
			_ = append(values, "appended")
		}
		if h != nil {
			h["X-Spoilt"] = []string{"spoilt"}
			delete(h, "Link")
			delete(h, "X-Sum")
		}
	}
	r.Status, r.Reference, r.BodyLost = 599, "spoilt", true
}

func changeGiven(p *probe) {
	c, given := p.claim(), full()
	given.Body = append(make([]byte, 0, 64), given.Body...) // room behind the body
	start := p.record(c, given, long)
	spoil(given)
	p.wantDone(c, full(), start, long)
}

func changeGot(p *probe) {
	c := p.claim()
	start := p.record(c, full(), long)
	before := p.lose(rival(c), long)
	spoil(p.lose(rival(c), long).Response)
	p.checkDone(before, c, full()) // neither the store's nor another caller's
	p.wantDone(c, full(), start, long)
}

func changeRecord(p *probe) {
	c := p.claim()
	start := p.record(c, full(), long)
	rec := p.lose(rival(c), long)
	*rec = idempotency.Record{Token: "spoilt", Lapsed: true, ExpiresIn: 1}
	p.wantDone(c, full(), start, long)

	c = p.claim()
	start = p.now()
	p.take(c, long)
	rec = p.lose(rival(c), long)
	*rec = idempotency.Record{Token: "spoilt", Lapsed: true, ExpiresIn: 1, Response: full()}
	p.wantRunning(c, start, long)
}

func changeGotByOwner(p *probe) {
	c := p.claim()
	start := p.record(c, full(), long)
	spoil(p.lose(c, long).Response)
	p.checkDone(p.lose(c, long), c, full())
	p.wantDone(c, full(), start, long)
}

// hammer is for the race detector, and finds torn records without it.
func hammer(p *probe) {
	base := p.key()
	p.together(crowd/2, func(int) {
		for i := range p.race(4) {
			// A few keys, and new ones as those are completed.
			key := base
			key.Endpoint = fmt.Sprintf("/%d/%d", i/32, rand.IntN(4))
			p.strike(claimFor(key), i%8 == 7)
		}
	})
}

// strike makes one attempt at the key of c and ends it.
func (p *probe) strike(c idempotency.Claim, complete bool) {
	rec := p.ask(c, long)
	switch {
	case rec == nil && complete:
		resp := striped(c.Token)
		p.ok("Complete", p.complete(c, resp, long))
		spoil(resp)
	case rec == nil:
		p.ok("Extend", p.extend(c, long))
		p.release(c)
	case rec.Response != nil:
		if diff := differ(rec.Response, striped(rec.Token)); diff != "" {
			p.failf("a record under concurrent use is torn: %s", diff)
		}
		spoil(rec.Response)
	}
}

// striped returns a response that says throughout whose it is.
func striped(token string) *idempotency.Response {
	r := answer(token)
	r.Body = bytes.Repeat([]byte(token), 40)
	r.Header["X-Length"] = []string{strconv.Itoa(len(r.Body)), fmt.Sprintf("%x", token)}
	return r
}
