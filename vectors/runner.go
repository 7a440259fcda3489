package vectors

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Runner measures a server. It may be used by many goroutines.
type Runner struct {
	URL      string        // of the server, without a path
	Client   *http.Client  // nil: one that neither follows redirects nor keeps connections
	Patience time.Duration // how long an answer may take, and how long a run is waited for; 0: 20 seconds
}

// answer is what the runner keeps of an answer.
type answer struct {
	status int
	header http.Header
	body   []byte
	err    error
}

// course is one run of a vector.
type course struct {
	*Runner
	place   string // the vector's own part of the paths, new in every run
	answers map[int]answer
	sent    map[string]chan answer
}

// Run runs v up to the first step that does not hold and returns what that step
// found, with its number, or nil. Every run has paths and users of its own, so
// vectors can be run against one server again and again, and at the same time.
func (r *Runner) Run(ctx context.Context, v Vector) error {
	c := &course{
		Runner:  r,
		place:   v.Name + "-" + rand.Text()[:10],
		answers: make(map[int]answer),
		sent:    make(map[string]chan answer),
	}
	ctx, cancel := context.WithTimeout(ctx, 3*r.patience())
	defer cancel() // ends what is still in the background, too
	for i, s := range v.Steps {
		if err := c.step(ctx, i+1, s); err != nil {
			c.openAll(context.WithoutCancel(ctx), v)
			return fmt.Errorf("step %d: %w", i+1, err)
		}
	}
	return nil
}

// openAll lets go of the handlers that a vector would have opened later.
func (c *course) openAll(ctx context.Context, v Vector) {
	ctx, cancel := context.WithTimeout(ctx, c.patience())
	defer cancel()
	for _, s := range v.Steps {
		if s.Open != "" {
			_, _ = c.control(ctx, http.MethodPost, "open", s.Open) // the failure is told already
		}
	}
}

// Ping returns an error if the server cannot be reached or does not offer the
// test protocol, so that a measurement of nothing is not taken for a bad one.
func (r *Runner) Ping(ctx context.Context) error {
	c := &course{Runner: r, place: "ping"}
	ctx, cancel := context.WithTimeout(ctx, r.patience())
	defer cancel()
	_, err := c.control(ctx, http.MethodGet, "runs", "/")
	return err
}

func (r *Runner) patience() time.Duration {
	if r.Patience > 0 {
		return r.Patience
	}
	return 20 * time.Second
}

func (r *Runner) client() *http.Client {
	if r.Client != nil {
		return r.Client
	}
	return &http.Client{
		// Go's transport repeats a keyed request by itself when a kept connection
		// breaks. The vectors count requests, so no connection is kept.
		Transport:     &http.Transport{DisableKeepAlives: true, DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func (c *course) step(ctx context.Context, n int, s Step) error {
	switch {
	case s.Open != "":
		if _, err := c.control(ctx, http.MethodPost, "open", s.Open); err != nil {
			return err
		}
	case s.Background != "":
		answered := make(chan answer, 1)
		c.sent[s.Background] = answered
		go func() { answered <- c.send(ctx, s.Send) }()
	case s.Join != "":
		c.answers[n] = <-c.sent[s.Join]
	default:
		c.answers[n] = c.send(ctx, s.Send)
	}
	if s.Expect != nil {
		if err := c.check(s.Expect, c.answers[n]); err != nil {
			return err
		}
	}
	var failed []error
	for path, want := range s.Runs {
		failed = append(failed, c.checkRuns(ctx, path, want))
	}
	return errors.Join(failed...)
}

// path returns where a path of the vector is on the server.
func (c *course) path(profile, path string) string {
	if profile == "" {
		profile = "default"
	}
	return "/vectors/" + profile + "/" + c.place + path
}

func (c *course) send(ctx context.Context, q *Request) answer {
	ctx, cancel := context.WithTimeout(ctx, c.patience())
	defer cancel()
	method := q.Method
	if method == "" {
		method = http.MethodPost
	}
	var body io.Reader
	if q.Body != "" {
		body = strings.NewReader(q.Body)
	}
	r, err := http.NewRequestWithContext(ctx, method, c.URL+c.path(q.Profile, q.Path), body)
	if err != nil {
		return answer{err: err}
	}
	for name, lines := range q.Headers {
		r.Header[http.CanonicalHeaderKey(name)] = lines
	}
	user := "ann"
	if q.User != nil {
		user = *q.User
	}
	if user != "" {
		r.Header.Set(HeaderUser, c.place+"-"+user)
	}
	if q.Answer != nil {
		told, err := json.Marshal(q.Answer)
		if err != nil {
			return answer{err: err}
		}
		r.Header.Set(HeaderAnswer, string(told))
	}
	return c.do(r)
}

func (c *course) do(r *http.Request) answer {
	resp, err := c.client().Do(r)
	if err != nil {
		return answer{err: err}
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, body, err}
}

// control calls an endpoint of the test protocol.
func (c *course) control(ctx context.Context, method, name, path string) ([]byte, error) {
	profile, path := profileOf(path)
	where := c.URL + "/vectors/control/" + name + "?path=" + url.QueryEscape(c.path(profile, path))
	r, err := http.NewRequestWithContext(ctx, method, where, nil)
	if err != nil {
		return nil, err
	}
	switch a := c.do(r); {
	case a.err != nil:
		return nil, fmt.Errorf("the control endpoint %s: %w", name, a.err)
	case a.status != http.StatusOK:
		return nil, fmt.Errorf("the control endpoint %s answered %d", name, a.status)
	default:
		return a.body, nil
	}
}

// profileOf splits "required:/a" into its profile and its path.
func profileOf(path string) (profile, rest string) {
	if profile, rest, ok := strings.Cut(path, ":"); ok {
		return profile, rest
	}
	return "", path
}

// checkRuns waits until the handler of path has run so often: a request that was
// sent in the background takes a moment to reach it.
func (c *course) checkRuns(ctx context.Context, path string, want int) error {
	until := time.Now().Add(c.patience())
	for {
		body, err := c.control(ctx, http.MethodGet, "runs", path)
		if err != nil {
			return err
		}
		var got struct{ Runs *int }
		if err := json.Unmarshal(body, &got); err != nil || got.Runs == nil {
			return fmt.Errorf("the control endpoint runs answered %q", body)
		}
		switch {
		case *got.Runs == want:
			return nil
		case *got.Runs > want || !time.Now().Before(until):
			return fmt.Errorf("the handler of %s ran %d times, not %d", path, *got.Runs, want)
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
