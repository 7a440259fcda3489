package storetest

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strings"
	"time"

	"github.com/retrysafe/idempotency"
)

func rule05() []testCase {
	cases := []testCase{
		{name: "one step while others claim", run: completeIsOneStep},
	}
	for _, s := range samples() {
		cases = append(cases, testCase{name: "exact " + s.name, run: func(p *probe) { keepsExactly(p, s.resp()) }})
	}
	return cases
}

// sample is a response that a store might not bring back as it was.
type sample struct {
	name string
	resp func() *idempotency.Response
}

func samples() []sample {
	body := func(name string, b func() []byte) sample {
		return sample{"body: " + name, func() *idempotency.Response {
			r := answer("body")
			r.Body = b()
			return r
		}}
	}
	text := func(s string) func() []byte { return func() []byte { return []byte(s) } }
	changed := func(name string, f func(r *idempotency.Response)) sample {
		return sample{name, func() *idempotency.Response {
			r := answer("changed")
			f(r)
			return r
		}}
	}
	all := []sample{
		body("nil", func() []byte { return nil }),
		body("empty", text("")),
		body("one zero byte", text("\x00")),
		body("all byte values", everyByte),
		body("1 MiB random", func() []byte { return randomBytes(1 << 20) }),
		body("invalid UTF-8", text("a\xff\xfeb\xe2\x82\xed\xa0\x80\xc0\x80")),
		body("JSON with order, spaces and a repeated name", text(`{"b":1,  "a":1,"a":2}`)),
		body("JSON null", text("null")),
		body("byte order mark", text("\xef\xbb\xbf{}")),
		body("line ends", text("\r\n a \n\n\r")),
	}
	for _, status := range []int{100, 200, 204, 299, 404, 500, 599, 999} {
		all = append(all, changed(fmt.Sprintf("status: %d", status), func(r *idempotency.Response) { r.Status = status }))
	}
	return append(all, fieldSamples(changed)...)
}

func fieldSamples(changed func(string, func(*idempotency.Response)) sample) []sample {
	return []sample{
		changed("header: none", func(r *idempotency.Response) { r.Header = nil }),
		changed("header: several values in order", func(r *idempotency.Response) {
			r.Header["Link"] = []string{"<b>", "<a>", "<b>", "a, b"}
		}),
		changed("header: empty value", func(r *idempotency.Response) { r.Header["X-Empty"] = []string{""} }),
		changed("header: name without values", func(r *idempotency.Response) {
			r.Header["Content-Type"] = nil
			r.Header["Server"] = []string{}
		}),
		changed("header: name that is not canonical", func(r *idempotency.Response) {
			r.Header["x-lower"] = []string{"a"}
			r.Header["X-LOWER"] = []string{"b"}
		}),
		changed("header: bytes that are no UTF-8", func(r *idempotency.Response) {
			var obs strings.Builder
			for b := 0x80; b <= 0xff; b++ {
				obs.WriteByte(byte(b))
			}
			r.Header["X-Obs"] = []string{obs.String(), "gr\xfc\xdfe", "tab\tand \"quotes\" \\"}
		}),
		changed("header: long value and many names", func(r *idempotency.Response) {
			for i := range 200 {
				r.Header[fmt.Sprintf("X-Many-%d", i)] = []string{strings.Repeat("v", i)}
			}
			r.Header["X-Long"] = []string{strings.Repeat("long ", 4096)}
		}),
		changed("trailer", func(r *idempotency.Response) {
			r.Trailer = http.Header{"X-Sum": {"1", "2"}, "X-None": nil}
		}),
		changed("BodyLost", func(r *idempotency.Response) { r.Body, r.BodyLost = nil, true }),
		changed("reference", func(r *idempotency.Response) { r.Reference = "ch_1 \"é\" 支払\n|%00" }),
		changed("reference of any bytes", func(r *idempotency.Response) { r.Reference = "\x00\xff" }),
		changed("time: zero", func(r *idempotency.Response) { r.Time = time.Time{} }),
		changed("time: another zone", func(r *idempotency.Response) {
			r.Time = r.Time.In(time.FixedZone("", 5*3600+45*60))
		}),
		{"everything zero but the status", func() *idempotency.Response {
			return &idempotency.Response{Status: http.StatusNoContent}
		}},
	}
}

func everyByte() []byte {
	b := make([]byte, 256)
	for i := range b {
		b[i] = byte(i)
	}
	return b
}

// randomBytes returns the same n bytes at every call.
func randomBytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(b) // never fails
	return b
}

func keepsExactly(p *probe, want *idempotency.Response) {
	c := p.claim()
	start := p.record(c, want.Clone(), long)
	for range 2 {
		p.wantDone(c, want, start, long)
	}
	p.checkDone(p.lose(c, long), c, want) // the owner gets it too
}

// maxReads bounds what a reader does while one Complete is under way, so that a
// store that sleeps in a synctest bubble gets on.
const maxReads = 1000

func completeIsOneStep(p *probe) {
	want := answer("one step")
	for range p.race(1) {
		c := p.claim()
		p.take(c, long)
		p.completeBeside(c, want, func() bool {
			other := rival(c)
			return p.halfDone("Claim", c, other, p.lose(other, long), want)
		})
		p.checkDone(p.lose(rival(c), long), c, want)
	}
}

// completeBeside completes c while another goroutine reads until it has seen the
// record.
func (p *probe) completeBeside(c idempotency.Claim, want *idempotency.Response, read func() bool) {
	reading := make(chan struct{})
	p.together(2, func(i int) {
		if i == 0 {
			<-reading
			p.ok("Complete", p.complete(c, want, long))
			return
		}
		var once bool
		defer func() {
			if !once {
				close(reading)
			}
		}()
		for range maxReads {
			done := read()
			if !once {
				once = true
				close(reading)
			}
			if done {
				return
			}
			runtime.Gosched()
		}
	})
}

// halfDone checks what a reader got: the claim, or the whole record. It reports
// whether it was the record.
func (p *probe) halfDone(
	call string, c, reader idempotency.Claim, rec *idempotency.Record, want *idempotency.Response,
) bool {
	if rec.Response == nil {
		if rec.Lapsed {
			p.failf("%s got a lapsed claim while the holder completed", call)
		}
		p.checkRunning(rec, c, reader)
		return false
	}
	p.checkDone(rec, c, want)
	return true
}
