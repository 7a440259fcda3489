package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"
)

// asked is one request.
type asked struct {
	id     string
	key    string
	body   string
	broken bool   // its body breaks off
	token  string // of the claim it has won
	run    *ran

	recordedBody string
}

type askedKey struct{}

func (q *asked) String() string { return "request " + q.id }

// slowBody is a body that takes its time and may break off.
type slowBody struct {
	io.Reader
	takes  time.Duration
	broken bool
}

func (b *slowBody) Read(p []byte) (int, error) {
	time.Sleep(b.takes)
	b.takes = 0
	n, err := b.Reader.Read(p)
	if errors.Is(err, io.EOF) && b.broken {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// client sends one request, once.
func (w *world) client(i int) {
	dice := w.dice("client", i)
	q := &asked{id: fmt.Sprint(i), key: [...]string{"A", "A", "A", "B"}[dice.IntN(4)], body: "b1", broken: dice.IntN(12) == 0}
	if dice.IntN(8) == 0 {
		q.body = "b2"
	}
	w.mu.Lock()
	q.broken = q.broken && w.happens("the body of %s breaks off", q)
	w.mu.Unlock()
	body := &slowBody{Reader: strings.NewReader(q.body), broken: q.broken}
	body.takes = w.perhaps(dice, 3, "the body of %s takes its time", q)
	time.Sleep(moment(dice))
	ctx, hangUp := context.WithCancel(context.Background())
	defer hangUp()
	if patience := w.perhaps(dice, 6, "the client of %s hangs up", q); patience >= 0 {
		defer time.AfterFunc(patience, hangUp).Stop()
	}
	w.mu.Lock()
	p := w.processes[dice.IntN(len(w.processes))]
	w.mu.Unlock()
	w.send(ctx, p, q, body)
}

// perhaps returns a moment for what happens one time in n, and -1 where it does
// not happen.
func (w *world) perhaps(dice *rand.Rand, n int, what string, q *asked) time.Duration {
	if dice.IntN(n) != 0 {
		return -1
	}
	d := moment(dice)
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.happens(what, q) {
		return -1
	}
	return d
}

func (w *world) send(ctx context.Context, p *process, q *asked, body io.Reader) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(context.WithValue(ctx, askedKey{}, q), http.MethodPost, "/things", body)
	r.Header.Set("Idempotency-Key", q.key)
	rec := httptest.NewRecorder()
	w.mu.Lock()
	w.requests = append(w.requests, q)
	w.note("%s (key %s, body %s) comes to %s", q, q.key, q.body, p.name)
	w.mu.Unlock()
	panicked := func() (panicked bool) {
		defer func() {
			if e := recover(); e != nil && e != http.ErrAbortHandler {
				panic(e)
			} else if e != nil {
				panicked = true
			}
		}()
		p.handler.ServeHTTP(rec, r)
		return false
	}()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.note("%s is answered with %d %.40q", q, rec.Code, rec.Body)
	if !p.dead && !panicked {
		w.checkAnswer(q, rec)
	}
	return rec
}
