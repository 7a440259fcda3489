package soak_test

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/memstore"
	"github.com/retrysafe/idempotency/pgstore"
)

// leaks are what a soak has to find out, over a store and with some keys, and how
// the judge puts it.
var leaks = []struct {
	leak, store string
	keys        int
	verdict     string
}{
	{"a goroutine for each claim", "memstore", 100, "goroutines: "},
	{"an observer that keeps events and contexts", "memstore", 300, "heap: "},
	{"a socket for each release", "memstore", 100, "files: "},
	{"records that do not expire", "memstore", 100, "keys: "},
	{"a long lease and a release of nothing", "memstore", 100, "is stuck in progress"},
	{"a transaction that is not rolled back", "pgstore.NewTx", 50, "busy connections: "},
}

// TestLeaks: a soak with a part that leaks finds it out, or TestSoak proves
// nothing.
func TestLeaks(t *testing.T) {
	t.Parallel()
	some := leaks
	if raced {
		some = leaks[:1]
	}
	for _, l := range some {
		t.Run(l.leak, func(t *testing.T) {
			t.Parallel()
			r := run(t, order{Store: l.store, For: time.Second, Keys: l.keys, Rate: 60, Patience: 3 * time.Second, Leak: l.leak})
			found := false
			for _, wrong := range judge(r) {
				t.Log(wrong)
				found = found || strings.Contains(wrong, l.verdict)
			}
			if !found {
				t.Errorf("not found out\n%s", table(r.Samples))
			}
		})
	}
}

// spoilt returns the store with the leak that the order asks for.
func (s *soak) spoilt(store idempotency.Store) idempotency.Store {
	switch s.order.Leak {
	case "an observer that keeps events and contexts":
		var mu sync.Mutex
		var kept []any
		s.leakyObserver = func(ctx context.Context, e idempotency.Event) {
			mu.Lock()
			defer mu.Unlock()
			kept = append(kept, e, ctx)
		}
	case "a goroutine for each claim":
		return &leaky{Store: store.(*memstore.Store), claim: func() { go func() { select {} }() }}
	case "a socket for each release":
		kept := make(chan net.PacketConn, 1<<16) // lest they be closed when they are garbage
		return &leaky{Store: store.(*memstore.Store), release: func() {
			if conn, err := net.ListenPacket("udp", "127.0.0.1:0"); err == nil {
				kept <- conn
			}
		}}
	case "records that do not expire":
		return &leaky{Store: store.(*memstore.Store), ttl: time.Hour}
	case "a long lease and a release of nothing":
		return &leaky{Store: store.(*memstore.Store), lease: time.Hour}
	case "a transaction that is not rolled back":
		return leakyTx{store.(*pgstore.TxStore)}
	}
	return store
}

// leaky is a store in memory that leaks in one point.
type leaky struct {
	*memstore.Store
	claim, release func()        // called besides
	ttl            time.Duration // of every record
	lease          time.Duration // of every claim, which is then not released
}

func (l *leaky) Claim(ctx context.Context, c idempotency.Claim, lease time.Duration) (*idempotency.Record, error) {
	if l.claim != nil {
		l.claim()
	}
	return l.Store.Claim(ctx, c, max(lease, l.lease))
}

func (l *leaky) Complete(ctx context.Context, c idempotency.Claim, resp *idempotency.Response, ttl time.Duration) error {
	return l.Store.Complete(ctx, c, resp, max(ttl, l.ttl))
}

func (l *leaky) Release(ctx context.Context, c idempotency.Claim) error {
	if l.release != nil {
		l.release()
	}
	if l.lease > 0 {
		return nil
	}
	return l.Store.Release(ctx, c)
}

// leakyTx keeps the transactions that it should roll back.
type leakyTx struct{ *pgstore.TxStore }

func (leakyTx) Release(context.Context, idempotency.Claim) error { return nil }
