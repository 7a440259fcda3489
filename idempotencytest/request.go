package idempotencytest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// template is a request, to be sent any number of times.
type template struct {
	method, target, host string
	header               http.Header
	body                 []byte
}

func newTemplate(r *http.Request) (*template, error) {
	t := &template{method: r.Method, target: r.URL.RequestURI(), host: r.Host, header: r.Header.Clone()}
	if t.header == nil {
		t.header = make(http.Header)
	}
	if t.method == "" {
		t.method = http.MethodGet
	}
	if r.Body == nil {
		return t, nil
	}
	defer func() { _ = r.Body.Close() }()
	var err error
	t.body, err = io.ReadAll(r.Body)
	return t, err
}

// equal reports whether the Middleware may take one for a retry of the other.
func (t *template) equal(o *template) bool {
	return t.method == o.method && t.target == o.target && bytes.Equal(t.body, o.body)
}

func (t *template) String() string {
	if t == nil {
		return "a request whose body cannot be read"
	}
	return fmt.Sprintf("%s %s %q", t.method, t.target, t.body)
}

// with returns the same request with another body.
func (t *template) with(body []byte) *template {
	c := *t
	c.body = body
	c.header = t.header.Clone()
	c.header.Del("Content-Length")
	return &c
}

// request makes the request of an attempt.
func (a *attempt) request(ctx context.Context) (*http.Request, error) {
	t, s := a.template, a.op.suite
	r, err := http.NewRequestWithContext(ctx, t.method, s.processes[a.process].server.URL+t.target, bytes.NewReader(t.body))
	if err != nil {
		return nil, err
	}
	r.Header = t.header.Clone()
	r.Header.Set(attemptHeader, strconv.Itoa(a.id))
	r.Header.Set(s.keyHeader, a.op.key)
	r.Host = t.host
	return r, nil
}

// answer is what a client got.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// equal compares what is the same in a first answer and in a replay, whatever layers
// add on the way.
func (a *answer) equal(o *answer) bool {
	for _, name := range []string{"Content-Type", "Location"} {
		if !slices.Equal(a.header[name], o.header[name]) {
			return false
		}
	}
	return a.status == o.status && bytes.Equal(a.body, o.body)
}

func (a *answer) String() string {
	const most = 200
	if len(a.body) > most {
		return fmt.Sprintf("%d %q...", a.status, a.body[:most])
	}
	return fmt.Sprintf("%d %q", a.status, bytes.TrimSpace(a.body))
}

// exchange sends the request of a and waits for the answer and for the server to be
// done with it. The answer is nil if there was none.
func (a *attempt) exchange() *answer {
	ctx, cancel := context.WithTimeout(a.ctx, a.op.suite.patience)
	defer cancel()
	r, err := a.request(ctx)
	var got *answer
	if err == nil {
		got, err = a.roundTrip(r)
	}
	timeout := time.NewTimer(a.op.suite.patience)
	defer timeout.Stop()
	select {
	case <-a.served:
	case <-timeout.C:
		a.op.hang(a)
	}
	if err != nil {
		return nil
	}
	return got
}

func (a *attempt) roundTrip(r *http.Request) (*answer, error) {
	resp, err := a.op.suite.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return &answer{resp.StatusCode, resp.Header, body}, err
}

// breakOff sends the request of a without its last byte and hangs up. Whether the
// server ever saw it is not known.
func (a *attempt) breakOff() error {
	s := a.op.suite
	r, err := a.request(a.ctx)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	if err := r.Write(&text); err != nil {
		return err
	}
	conn, err := (&net.Dialer{Timeout: s.patience}).DialContext(a.ctx, "tcp", r.URL.Host)
	if err != nil {
		return err
	}
	_, err = conn.Write(text.Bytes()[:text.Len()-1])
	return errors.Join(err, conn.Close())
}
