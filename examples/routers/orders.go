// Package routers is one small order API on five routers, guarded by
// [idempotency.Middleware]: net/http's ServeMux, chi, gorilla/mux, echo and gin.
// Each has a file of its own, and in each the lines that matter are marked. What
// is in this file has nothing to do with HTTP.
//
// The order of the layers is the same everywhere, from the outside to the handler:
//
//   - recovery, so that a panic frees the key before it is answered. Inside the
//     guard its 500 would be an answer like any other, and be recorded.
//   - compression, so that each client gets the encoding that it asked for.
//     Inside, the first client's encoding would be replayed to all.
//   - authentication, so that every request is checked, also one that would be
//     replayed, and the guard knows whose key it is.
//   - rate limits, so that refusing costs no call of the store, and a 429 is never
//     an answer to be recorded.
//   - the guard, on the routes that change something and not on the router, so
//     that 404 and 405 stay the router's business.
//   - time limits that answer 503 for a handler: outside the guard, or not at all
//     (idempotency.WithMaxExecution). Inside, the key would be freed while the
//     handler still works.
//   - the handler, and whatever turns its errors into answers.
package routers

import (
	"context"
	"errors"
	"strconv"
	"sync"
)

// Order is what the API is about.
type Order struct {
	ID    string `json:"id"`
	User  string `json:"user"`
	Item  string `json:"item"`
	Paid  int    `json:"paid"`
	Trace string `json:"trace"` // a derived key, as one would send it to a payment provider
}

// The errors of Orders.
var (
	ErrNoItem  = errors.New("item is missing")
	ErrNoOrder = errors.New("no such order")
)

// Orders are all orders. They may be used by many goroutines.
type Orders struct {
	mu      sync.Mutex
	orders  map[string]*Order
	shipped map[string]chan struct{}
	calls   int
}

// NewOrders returns no orders.
func NewOrders() *Orders {
	return &Orders{orders: make(map[string]*Order), shipped: make(map[string]chan struct{})}
}

// Calls returns how often any of the methods below was called: what the guard is
// there to keep down.
func (o *Orders) Calls() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.calls
}

// Create makes an order. It fails with ErrNoItem.
func (o *Orders) Create(user, item, trace string) (Order, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.calls++
	if item == "" {
		return Order{}, ErrNoItem
	}
	order := &Order{ID: strconv.Itoa(len(o.orders) + 1), User: user, Item: item, Trace: trace}
	o.orders[order.ID] = order
	o.shipped[order.ID] = make(chan struct{})
	return *order, nil
}

// Pay adds a payment to an order: twice is twice. It fails with ErrNoOrder.
func (o *Orders) Pay(id string) (Order, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.calls++
	order := o.orders[id]
	if order == nil {
		return Order{}, ErrNoOrder
	}
	order.Paid++
	return *order, nil
}

// Track tells tell of the progress of an order, until it is shipped or ctx ends.
func (o *Orders) Track(ctx context.Context, id string, tell func(event string)) error {
	o.mu.Lock()
	o.calls++
	shipped := o.shipped[id]
	o.mu.Unlock()
	if shipped == nil {
		return ErrNoOrder
	}
	tell("packed")
	select {
	case <-shipped:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	tell("shipped")
	return nil
}

// Ship ends Track of an order. Again, or without the order, it does nothing.
func (o *Orders) Ship(id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	shipped := o.shipped[id]
	if shipped == nil {
		return
	}
	select {
	case <-shipped:
	default:
		close(shipped)
	}
}

// Refund has a bug: it panics.
func (o *Orders) Refund(id string) {
	o.mu.Lock()
	o.calls++
	o.mu.Unlock()
	panic("no refund for order " + id)
}

type userKey struct{}

// tokens stands for the application's authentication.
func tokens(authorization string) (user string, ok bool) {
	users := map[string]string{"Bearer ann-1": "ann", "Bearer bob-1": "bob"}
	user, ok = users[authorization]
	return user, ok
}

func withUser(ctx context.Context, user string) context.Context {
	return context.WithValue(ctx, userKey{}, user)
}

func userOf(ctx context.Context) string {
	user, _ := ctx.Value(userKey{}).(string)
	return user
}
