package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/retrysafe/idempotency"
)

// This file is the service: what to copy. Nothing in it knows of the crowd.

// payment is the body of POST /payments.
type payment struct {
	Order  string `json:"order"`
	Amount int64  `json:"amount"` // in cents
	Card   string `json:"card"`
}

// receipt is the answer.
type receipt struct {
	Status   string `json:"status"` // "paid" or "declined"
	Charge   string `json:"charge"` // the bank's id
	Customer string `json:"customer"`
	payment
}

// bank is whoever takes the money. Both methods know a charge by the reference
// that it was made under.
type bank interface {
	Charge(ctx context.Context, reference, customer string, p payment) (id string, err error) // errDeclined: nothing was taken
	Find(ctx context.Context, reference string) (charge, error)                               // errNoCharge
}

// charge is money taken.
type charge struct {
	ID        string `json:"id"`
	Customer  string `json:"customer"`
	Reference string `json:"-"`
	payment
}

var (
	errDeclined = errors.New("the card was declined")
	errNoCharge = errors.New("there is no such charge")
)

// newGuard makes the middleware. Its records are kept under the user who has
// authenticated, so one customer's keys are never another's.
func newGuard(store idempotency.Store, opts ...idempotency.Option) *idempotency.Middleware {
	return idempotency.New(store, currentUser, append([]idempotency.Option{
		idempotency.WithRequiredKey(), // a payment without a key is refused
	}, opts...)...)
}

// newAPI makes the service. guard is the middleware's Handler method;
// authentication is outside of it, so that an answer is replayed only to those
// who may see it.
func newAPI(b bank, guard func(http.Handler) http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /payments", authenticated(guard(pay(b))))
	return mux
}

// pay is an ordinary handler. It answers, and does not think of retries.
func pay(b bank) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var p payment
		if err := json.NewDecoder(r.Body).Decode(&p); err != nil || p.Order == "" || p.Amount <= 0 {
			http.Error(w, `send {"order": "…", "amount": cents, "card": "…"}`, http.StatusBadRequest)
			return
		}
		customer, _ := currentUser(r)
		// The execution is nil without a guard, and can be used all the same.
		execution := idempotency.FromContext(r.Context())
		id, err := b.Charge(r.Context(), execution.Derive("charge"), customer, p)
		switch {
		case errors.Is(err, errDeclined):
			answer(w, http.StatusPaymentRequired, receipt{"declined", id, customer, p})
		case err != nil:
			http.Error(w, "the bank failed", http.StatusInternalServerError)
		default:
			execution.SetReference(id) // kept with the record, for audits
			w.Header().Set("Location", "/charges/"+id)
			answer(w, http.StatusCreated, receipt{"paid", id, customer, p})
		}
	})
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // fails when the client has gone: nobody to tell
}

// reconcile settles payments whose process died: if the bank has a charge under
// the reference that the run gave it, that is the answer, and if not, the handler
// runs. It is for idempotency.WithReconciler. A bank that may still be at work on
// the charge must say so with an error of its own; the outcome then stays unknown
// until somebody asks again.
func reconcile(b bank) idempotency.Reconciler {
	return func(ctx context.Context, e *idempotency.Execution) (*idempotency.Response, error) {
		c, err := b.Find(ctx, e.Derive("charge"))
		if errors.Is(err, errNoCharge) {
			return nil, idempotency.ErrNotExecuted
		}
		if err != nil {
			return nil, err
		}
		body, err := json.Marshal(receipt{"paid", c.ID, c.Customer, c.payment})
		return &idempotency.Response{
			Status:    http.StatusCreated,
			Header:    http.Header{"Content-Type": {"application/json"}, "Location": {"/charges/" + c.ID}},
			Body:      append(body, '\n'),
			Reference: c.ID,
			Time:      time.Now(),
		}, err
	}
}

type userKey struct{}

// authenticated lets those through who say who they are. In this demo the bearer
// token is the user's name and everybody is believed: a real service looks the
// token up, and that is all that would be different.
func authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !ok || name == "" {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "who are you? Send Authorization: Bearer <name>", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, name)))
	})
}

// currentUser is the idempotency.UserFunc: the user that authenticated put there.
func currentUser(r *http.Request) (string, error) {
	name, _ := r.Context().Value(userKey{}).(string)
	return name, nil // "" is refused by the middleware with 401
}
