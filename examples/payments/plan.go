package main

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// fault is what goes wrong with a payment.
type fault int

const (
	nothing     fault = iota
	cutRequest        // the connection is cut in the middle of the request
	cutBefore         // the connection is cut before the charge
	cutAfter          // the connection is cut after the charge, before the answer
	cutAnswer         // the connection is cut in the middle of the answer, once or twice
	timesOut          // the answer takes longer than the customer's patience
	twins             // the request is sent three times at once
	changedBody       // once more, with another amount under the same key
	declined          // the card is declined, and that answer is cut
	panics            // the handler panics before the charge
	slow              // the handler takes longer than two leases
	sameKey           // another customer uses the same key
	dies              // the process dies, holding the claim
)

// deck says in which words, and how many payments of each 50, meet which fault.
var deck = [...]struct {
	of50  int
	words string
}{
	nothing:     {10, "all goes well"},
	cutRequest:  {3, "cut in the middle of the request"},
	cutBefore:   {5, "cut before the charge"},
	cutAfter:    {6, "cut after the charge"},
	cutAnswer:   {6, "cut in the middle of the answer"},
	timesOut:    {4, "customer times out"},
	twins:       {4, "sent three times at once"},
	changedBody: {2, "changed body under the same key"},
	declined:    {3, "card declined, answer cut"},
	panics:      {2, "handler panics"},
	slow:        {1, "handler outlives several leases"},
	sameKey:     {3, "another customer has the same key"},
	dies:        {1, "process dies holding the claim"},
}

// order is one payment that a customer wants: its plan, which depends on the
// seed alone, and what became of it.
type order struct {
	payment
	customer string
	key      string
	fault    fault
	arrival  time.Duration // after the crowd's begin
	cuts     int           // how many answers are cut
	cutAt    float64       // where in the answer

	mu       sync.Mutex
	story    []string      // what its customer saw
	answers  []finalAnswer // all that told the customer the outcome
	unknown  bool          // the customer was told that the outcome is unknown
	accepted bool          // the changed body was not refused
	before   int           // how many answers there were when the customer was asked to ask once more; 0: was not
}

// finalAnswer is an answer that says what became of the payment.
type finalAnswer struct {
	status int
	body   string
}

// rush is the time in which the payments arrive.
const rush = 1500 * time.Millisecond

// newOrders plans a crowd. The same arguments make the same plan.
func newOrders(seed uint64, payments, customers int) []*order {
	rng := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a plan, not a secret
	faults := deal(payments)
	rng.Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })

	orders := make([]*order, payments)
	for i := range orders {
		o := &order{
			payment:  payment{Order: fmt.Sprintf("order-%04d", i+1), Amount: 100 + rng.Int64N(50_000), Card: "visa"},
			customer: fmt.Sprintf("customer-%02d", 1+rng.IntN(customers)),
			fault:    faults[i],
			arrival:  time.Duration(rng.Int64N(int64(rush))),
			cuts:     1 + rng.IntN(2),
			cutAt:    rng.Float64(),
		}
		o.key = fmt.Sprintf("%s-%08x", o.Order, rng.Uint32())
		switch o.fault {
		case declined:
			o.Card = "declined-visa"
		case slow, dies:
			o.arrival /= 4 // these take longest
		}
		orders[i] = o
	}
	shareKeys(orders)
	slices.SortFunc(orders, func(a, b *order) int { return cmp.Compare(a.arrival, b.arrival) })
	return orders
}

// deal returns n faults, each of them once if n allows, then as the deck has it.
func deal(n int) []fault {
	faults := make([]fault, 0, n+50)
	for f := nothing + 1; int(f) < len(deck); f++ {
		faults = append(faults, f)
	}
	for len(faults) < n {
		for f, card := range deck {
			for range card.of50 {
				faults = append(faults, fault(f))
			}
		}
	}
	return faults[:n]
}

// shareKeys gives the orders of the fault sameKey the key of another customer's.
func shareKeys(orders []*order) {
	type scope struct{ customer, key string }
	taken := make(map[scope]bool)
	for i, o := range orders {
		if o.fault != sameKey {
			continue
		}
		for j := range orders {
			other := orders[(i+1+j)%len(orders)]
			mine := scope{o.customer, other.key}
			if other.customer != o.customer && other.fault != sameKey && !taken[mine] {
				taken[mine] = true
				o.key = other.key
				break
			}
		}
	}
}

// note adds to the order's story.
func (o *order) note(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.story = append(o.story, fmt.Sprintf(format, args...))
}
