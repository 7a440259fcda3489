package client

import (
	"sync"
	"time"
)

// budget is the token bucket of a Transport's retries. It counts what has been
// taken out, so that the zero value is a full bucket.
type budget struct {
	mu    sync.Mutex
	taken float64   // of the bucket's size
	at    time.Time // when taken was last brought up to date
}

const (
	budgetPerSecond    = 0.1 // of the bucket's size comes back every second
	budgetPerOperation = 0.2 // retries come back with each operation that begins
)

// deposit notes that an operation begins.
func (b *budget) deposit() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.taken = max(0, b.taken-budgetPerOperation)
}

// withdraw takes one retry out of a bucket of the given size, if it holds one.
func (b *budget) withdraw(size int) bool {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.at.IsZero() {
		b.taken = max(0, b.taken-now.Sub(b.at).Seconds()*budgetPerSecond*float64(size))
	}
	b.at = now
	if b.taken+1 > float64(size) {
		return false
	}
	b.taken++
	return true
}
