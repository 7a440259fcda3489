package soak_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/retrysafe/idempotency"
)

// operation is one key and what a client does with it.
type operation struct {
	*entry
	*soak
	route route
	body  string
}

// newOperation draws an operation.
func (s *soak) newOperation() *operation {
	names := s.endings
	e := newEntry(rand.Text(), names[mathrand.IntN(len(names))])
	size := 100
	if mathrand.IntN(20) == 0 {
		size = maxBody
	}
	routes := s.targets
	return &operation{
		entry: e, soak: s, route: routes[mathrand.IntN(len(routes))],
		body: fmt.Sprintf(`{"id":"%s","pad":"%s"}`, e.id, strings.Repeat("x", size)),
	}
}

// reply is what a client gets.
type reply struct {
	status int
	code   idempotency.Code
	err    error
}

// unsettled reports whether the same request may yet be answered otherwise.
func (a reply) unsettled() bool {
	switch a.code {
	case idempotency.CodeInProgress, idempotency.CodeStoreUnavailable, idempotency.CodeNotCommitted,
		idempotency.CodeOutcomeUnknown, idempotency.CodeBodyUnreadable:
		return true
	}
	return a.err != nil
}

// behaviours are what clients do.
var behaviours = []func(o *operation, ctx context.Context){
	func(o *operation, ctx context.Context) { // asks again
		o.ask(ctx, o.body)
		o.ask(ctx, o.body)
	},
	func(o *operation, ctx context.Context) { // has twins
		var twins sync.WaitGroup
		for range 4 {
			twins.Go(func() { o.ask(ctx, o.body) })
		}
		twins.Wait()
	},
	func(o *operation, ctx context.Context) { // uses its key twice
		var twins sync.WaitGroup
		twins.Go(func() { o.ask(ctx, `{"another":"request"}`) })
		o.ask(ctx, o.body)
		twins.Wait()
		o.ask(ctx, `{"a third":"request"}`)
	},
	func(o *operation, ctx context.Context) { // hangs up
		for range 3 {
			short, cancel := context.WithTimeout(ctx, mathrand.N(15*time.Millisecond))
			o.ask(short, o.body)
			cancel()
			o.add(hangUps)
		}
	},
	func(o *operation, ctx context.Context) { // breaks off in the middle of its body
		o.breakOff()
		o.ask(ctx, o.body)
	},
	func(o *operation, ctx context.Context) { // retries until it is answered, or tired of it
		wait := 10 * time.Millisecond
		for range 6 {
			if !o.ask(ctx, o.body).unsettled() {
				break
			}
			pause(ctx, mathrand.N(wait))
			wait *= 2
		}
	},
	func(o *operation, ctx context.Context) { // has a body that is too large, and forgets its key
		o.ask(ctx, strings.Repeat("x", 2*maxBody))
		forgetful := *o
		forgetful.keyless(ctx)
	},
}

func (o *operation) url() string {
	return o.processes[mathrand.IntN(len(o.processes))].server.URL + o.route.path
}

// ask sends one request to either process.
func (o *operation) ask(ctx context.Context, body string) reply {
	ctx, cancel := context.WithTimeout(ctx, o.order.Patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, o.url(), strings.NewReader(body))
	if err != nil {
		return reply{err: err}
	}
	for name, value := range map[string]string{"Idempotency-Key": o.id, "X-Operation": o.id, "X-User": user} {
		r.Header.Set(name, value)
	}
	resp, err := o.web.Do(r)
	if err != nil {
		return reply{err: err}
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	a := reply{status: resp.StatusCode, err: err}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "application/problem+json") {
		var problem struct {
			Error idempotency.Code `json:"error"`
		}
		a.err = json.Unmarshal(got, &problem)
		a.code = problem.Error
	} else if err == nil && !bytes.HasPrefix(got, []byte(o.id)) {
		o.problem("key %s got an answer that is not its own: %d %.60q", o.id, a.status, got)
	}
	return a
}

// keyless sends every route a request that is not guarded, or refused.
func (o *operation) keyless(ctx context.Context) {
	for i, route := range o.targets {
		method := http.MethodPost
		if i%4 == 3 {
			method = http.MethodGet
		}
		o.route = route
		r, err := http.NewRequestWithContext(ctx, method, o.url(), strings.NewReader("{}"))
		if err != nil {
			continue
		}
		if resp, err := o.web.Do(r); err == nil {
			_ = resp.Body.Close()
		}
	}
}

// breakOff sends half a request and hangs up.
func (o *operation) breakOff() {
	host, path, _ := strings.Cut(strings.TrimPrefix(o.url(), "http://"), "/")
	conn, err := net.Dial("tcp", host)
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = fmt.Fprintf(conn, "POST /%s HTTP/1.1\r\nHost: %s\r\nIdempotency-Key: %s\r\nX-Operation: %s\r\nX-User: %s\r\nContent-Length: %d\r\n\r\n%s",
		path, host, o.id, o.id, user, len(o.body), o.body[:len(o.body)/2])
}

// usable returns the routes and endings that the store can have.
func (s *soak) usable(tx bool) {
	s.targets = slices.DeleteFunc(s.routes(), func(r route) bool { return tx && r.leased })
	for name := range endings {
		s.endings = append(s.endings, name)
	}
}

// operate does one operation from its first request to the proof that its key is
// not stuck.
func (s *soak) operate(ctx context.Context) {
	o := s.newOperation()
	s.add(operations)
	s.book.add(o.entry)
	defer s.book.remove(o.entry)
	behaviours[mathrand.IntN(len(behaviours))](o, ctx)
	o.probe(ctx)
}

// probe asks for the key when nothing has gone on with it for one lease, until it
// has an answer that stays. By then nobody can be running: every lease was given
// by a call that began before that. A key that is in progress all the same is
// stuck. No clock but the store's and this one decides, and being late only helps
// the store.
func (o *operation) probe(ctx context.Context) {
	begun, found := time.Now(), 0
	// Ever more slowly: a store that does not keep up gets less to do.
	for quiet := lease + storeTimeout; ; quiet = min(quiet*3/2, 5*lease) {
		if !o.awaitQuiet(quiet, o.order.Patience) {
			o.problem("key %s (%s, %s): a request or a call of the store does not end", o.id, o.route.path, o.ending)
			return
		}
		before := o.arrivals()
		a := o.ask(ctx, o.body)
		switch {
		case !a.unsettled():
			return
		case a.code != idempotency.CodeInProgress, o.arrivals() != before+1:
			// The store was out of reach, the outcome is unknown still, or a request
			// of before has come only now.
			found = 0
		default:
			if found++; found == o.backend.looks {
				o.problem("key %s (%s, %s) is stuck in progress", o.id, o.route.path, o.ending)
				return
			}
			o.add(overtime)
		}
		if o.weather.rough.Load() {
			begun = time.Now() // bad luck may last; it ends with the traffic
		}
		if time.Since(begun) > o.order.Patience {
			o.problem("key %s (%s, %s) gets no answer, the %d requests of before included: %d %s %v %v",
				o.id, o.route.path, o.ending, before, a.status, a.code, a.err, o.lastCause())
			return
		}
	}
}
