package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
)

// ledger is the bank's book: every charge it was told to make. It knows nothing
// of keys and retries, and charges whoever is told to be charged, so what stands
// in it in the end is the truth that the middleware is judged by.
type ledger struct {
	mu       sync.Mutex
	charges  []charge
	declined int
}

// Charge takes the money, unless the card is one of those that are declined.
// That is quick, and does not end with ctx: no bank calls a charge back because
// somebody has hung up.
func (l *ledger) Charge(_ context.Context, reference, customer string, p payment) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if strings.HasPrefix(p.Card, "declined") {
		l.declined++
		return fmt.Sprintf("no_%04d", l.declined), errDeclined
	}
	id := fmt.Sprintf("ch_%04d", len(l.charges)+1)
	l.charges = append(l.charges, charge{id, customer, reference, p})
	return id, nil
}

// Find returns the charge that was made under the reference.
func (l *ledger) Find(_ context.Context, reference string) (charge, error) {
	for _, c := range l.list() {
		if c.Reference == reference {
			return c, nil
		}
	}
	return charge{}, errNoCharge
}

// list returns all charges.
func (l *ledger) list() []charge {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]charge{}, l.charges...)
}

// byOrder returns all charges, under the order they were made for.
func (l *ledger) byOrder() map[string][]charge {
	m := make(map[string][]charge)
	for _, c := range l.list() {
		m[c.Order] = append(m[c.Order], c)
	}
	return m
}
