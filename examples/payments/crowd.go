package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/client"
)

// atOnce is how many payments are under way at a time.
const atOnce = 256

// crowd is the customers. Each wants its payments made exactly once, and sends
// each of them, under one key, until it knows the answer.
type crowd struct {
	*stage
	address string // of the service
	brisk   string // of an instance with a short lease

	patient *http.Client // repeats by itself: what a customer should use
	plain   *http.Client // sends once, and waits for as long as it takes
	settled atomic.Int64 // orders whose customers know the outcome
}

// newCrowd plans a crowd and starts the service for it: with the middleware on
// store, or without it where that is nil.
func newCrowd(ctx context.Context, cfg config, store idempotency.Store) (*crowd, error) {
	s := newStage(ctx, cfg, store, newOrders(cfg.seed, cfg.payments, cfg.customers))
	p, err := s.start(ctx, false)
	if err != nil {
		return nil, err
	}
	brisk, err := s.start(ctx, false, idempotency.WithLease(shortLease))
	if err != nil {
		return nil, errors.Join(err, s.close(ctx))
	}
	base := &http.Transport{MaxIdleConnsPerHost: atOnce}
	return &crowd{
		stage: s, address: p.address, brisk: brisk.address,
		plain: &http.Client{Transport: base},
		patient: &http.Client{Transport: &client.Transport{
			Base:           base,
			AttemptTimeout: patience,
			MaxAttempts:    -1, // until the answer is known
			MaxElapsed:     -1,
			RetryBudget:    -1,
			MinBackoff:     20 * time.Millisecond,
			MaxBackoff:     500 * time.Millisecond,
			OnAttempt:      noteAttempt,
		}},
	}, nil
}

// play lets the whole crowd play, and returns when all customers know their
// outcomes or ctx ends.
func (c *crowd) play(ctx context.Context) {
	begin := time.Now()
	var under sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for _, o := range c.sorted {
		c.pause(ctx, time.Until(begin.Add(o.arrival)))
		slots <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		under.Go(func() {
			defer func() { <-slots }()
			c.playOne(ctx, o)
		})
	}
	under.Wait()
	c.plain.CloseIdleConnections()
}

// playOne is one customer who wants one payment.
func (c *crowd) playOne(ctx context.Context, o *order) {
	ctx, cancel := context.WithTimeout(ctx, giveUp)
	defer cancel()
	switch o.fault {
	case cutRequest:
		o.note("sends half a request: %s", outcome(c.sendHalf(ctx, o)))
	case dies:
		o.note("sends it to a process that dies: %s", outcome(c.sendDoomed(ctx, o)))
	}
	senders := 1
	if o.fault == twins {
		senders = 3
	}
	var all sync.WaitGroup
	for range senders {
		all.Go(func() { c.pay(ctx, o) })
	}
	all.Wait()
	if o.fault == changedBody {
		c.sendChanged(ctx, o)
	}
	if ctx.Err() == nil {
		c.settled.Add(1)
	}
}

// addressFor is the instance that a customer sends an order to.
func (c *crowd) addressFor(o *order) string {
	if o.fault == slow || o.fault == panics {
		return c.brisk
	}
	return c.address
}

// pay sends the request until an answer says what became of the payment. The
// Transport repeats what it knows to be worth repeating; the loop is for what it
// hands on, such as an answer that says the request has arrived in pieces.
func (c *crowd) pay(ctx context.Context, o *order) {
	for range 20 {
		a, err := c.send(ctx, c.patient, c.addressFor(o), o, o.payment)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			o.note("failed: %v", err)
		case a.status == http.StatusCreated || a.status == http.StatusPaymentRequired:
			o.mu.Lock()
			o.answers = append(o.answers, a)
			o.mu.Unlock()
			return
		case codeOf(a) == idempotency.CodeOutcomeUnknown:
			o.mu.Lock()
			o.unknown = true
			o.mu.Unlock()
			return
		}
		c.pause(ctx, patience)
	}
	o.note("gave up")
}

// ask sends every settled order once more, as a customer would who has lost the
// receipt.
func (c *crowd) ask(ctx context.Context) {
	var all sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for _, o := range c.sorted {
		if len(o.answers) == 0 || ctx.Err() != nil {
			continue
		}
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			o.note("asks once more")
			o.before = len(o.answers)
			ctx, cancel := context.WithTimeout(context.WithValue(ctx, auditKey{}, true), giveUp)
			defer cancel()
			c.pay(ctx, o)
		})
	}
	all.Wait()
	c.plain.CloseIdleConnections()
}

type (
	auditKey struct{}
	orderKey struct{}
)

// send sends one request and reads the answer.
func (c *crowd) send(ctx context.Context, by *http.Client, address string, o *order, p payment) (finalAnswer, error) {
	body, err := json.Marshal(p)
	if err != nil {
		return finalAnswer{}, err
	}
	ctx = context.WithValue(client.WithKey(ctx, o.key), orderKey{}, o)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/payments", bytes.NewReader(body))
	if err != nil {
		return finalAnswer{}, err
	}
	req.Header.Set("Authorization", "Bearer "+o.customer)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Order", o.Order) // for the play's network, which does not read bodies
	if ctx.Value(auditKey{}) != nil {
		req.Header.Set("X-Audit", "1")
	}
	if by == c.plain {
		req.Header.Set("Idempotency-Key", o.key)
	}
	resp, err := by.Do(req)
	if err != nil {
		return finalAnswer{}, err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	return finalAnswer{resp.StatusCode, string(got)}, err
}

// sendChanged is a customer's mistake: another amount under the key of an order
// that is paid already.
func (c *crowd) sendChanged(ctx context.Context, o *order) {
	p := o.payment
	p.Amount += 1000
	o.note("sends another amount under the same key")
	a, err := c.send(ctx, c.patient, c.addressFor(o), o, p)
	if err == nil && codeOf(a) != idempotency.CodeKeyReused {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.accepted = true
	}
}

// sendDoomed sends the request to a process that will not survive it.
func (c *crowd) sendDoomed(ctx context.Context, o *order) error {
	p, err := c.start(ctx, true, idempotency.WithLease(shortLease))
	if err != nil {
		return err
	}
	for err == nil { // it may be too busy to take it at once
		if _, err = c.send(ctx, c.plain, p.address, o, o.payment); err == nil {
			c.pause(ctx, patience)
		}
	}
	return err
}

// sendHalf sends the header and half of the body, and hangs up.
func (c *crowd) sendHalf(ctx context.Context, o *order) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", c.address)
	if err != nil {
		return err
	}
	defer conn.Close()
	body, err := json.Marshal(o.payment)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(conn, "POST /payments HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n"+
		"Idempotency-Key: %s\r\nX-Order: %s\r\nContent-Length: %d\r\n\r\n%s",
		c.address, o.customer, o.key, o.Order, len(body), body[:len(body)/2])
	return err
}

// noteAttempt writes an attempt of the client.Transport into the order's story.
func noteAttempt(a client.Attempt) {
	o := a.Request.Context().Value(orderKey{}).(*order)
	switch {
	case a.Err != nil:
		o.note("%s", outcome(a.Err))
	case a.Replayed:
		o.note("%d replayed", a.Status)
	case a.Code != "":
		o.note("%d %s", a.Status, a.Code)
	default:
		o.note("%d", a.Status)
	}
}

// outcome describes the error of an attempt without an answer.
func outcome(err error) string {
	var netError net.Error
	switch {
	case err == nil:
		return "no answer"
	case errors.As(err, &netError) && netError.Timeout():
		return "timed out"
	}
	return "cut"
}

// codeOf returns the code of an answer that the middleware gave itself.
func codeOf(a finalAnswer) idempotency.Code {
	var problem struct {
		Error idempotency.Code `json:"error"`
	}
	_ = json.Unmarshal([]byte(a.body), &problem) // what is none of its problems has no code
	return problem.Error
}
