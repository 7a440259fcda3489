package history_test

import (
	"fmt"
	mathrand "math/rand/v2"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/proof/internal/wire"
)

// role is a request through a proxy among others: what it comes to.
type role struct {
	name  string
	plans []plan
	wired int // which of them it is
}

// modes are those, at most once or not, that make a difference to the request.
func (r role) modes(tx bool) []bool {
	if tx || raced || r.wired > 0 { // one that does not run says nothing about its claim
		return []bool{false}
	}
	return []bool{false, true}
}

// roles are every way that a request can go, with somebody else coming the moment
// the fault strikes, and, as its client would, once it has been answered.
func roles() (all []role) {
	for _, ending := range []int{http.StatusCreated, http.StatusServiceUnavailable, 0} {
		all = append(all, role{fmt.Sprintf("runs and ends with %d", ending), []plan{
			{id: 0, body: "b1", ending: ending, takes: 2 * time.Millisecond},
			{id: 1, body: "b1", ending: http.StatusCreated, waits: struck, process: 1},
			{id: 2, body: "b2", ending: http.StatusCreated, waits: struck, after: 3 * time.Millisecond},
			{id: 3, body: "b1", ending: http.StatusCreated, waits: answered, process: 1},
		}, 0})
	}
	for _, ending := range []int{http.StatusCreated, http.StatusServiceUnavailable} {
		all = append(all, role{fmt.Sprintf("meets a run that ends with %d", ending), []plan{
			{id: 0, body: "b1", ending: ending, lasts: true},
			{id: 1, body: "b1", ending: http.StatusCreated, waits: running},
			{id: 2, body: "b1", ending: http.StatusCreated, waits: struck, process: 1},
		}, 1})
	}
	return append(all, role{"comes after a run", []plan{
		{id: 0, body: "b1", ending: http.StatusCreated},
		{id: 1, body: "b1", ending: http.StatusCreated, waits: answered},
		{id: 2, body: "b1", ending: http.StatusCreated, waits: struck, process: 1},
	}, 1})
}

// scenario returns the role with a fault of the wire at a message, or with none.
func (r role) scenario(atMostOnce bool, kind wire.Fault, at int) scenario {
	s := scenario{
		name:       fmt.Sprintf("%s, message %d %s, at most once %t", r.name, at, kind, atMostOnce),
		atMostOnce: atMostOnce, plans: r.plans,
	}.clone()
	s.plans[r.wired].wire = make(map[int]wire.Fault)
	if kind != wire.Fine {
		s.plans[r.wired].wire[at] = kind
	}
	return s
}

// mostMessages is no fewer than a request ever takes.
const mostMessages = 40

// walk is one kind of fault at every message of a role in turn.
type walk struct {
	role
	atMostOnce bool
	kind       wire.Fault
	messages   *int // how many a request without a fault has
}

// count finds out how many messages there are without a fault. It reports whether
// none was given up, as happens on a busy machine.
func (k walk) count(p *players) bool {
	*k.messages = 0
	for range 3 {
		played := p.play(k.scenario(k.atMostOnce, wire.Fine, 0))
		if played == nil {
			return true
		}
		q := played[k.wired]
		if q.event.Code == idempotency.CodeStoreUnavailable || q.event.Code == idempotency.CodeNotCommitted {
			return false
		}
		if n := q.proxy.Messages(); *k.messages == 0 || n < *k.messages {
			*k.messages = n
		}
	}
	return true
}

// play plays the walk, until a fault does not strike, because the message before
// was the last one.
func (k walk) play(p *players) {
	for at := 1; at <= mostMessages; at++ {
		if !k.strikes(p, at) && at > *k.messages {
			return
		}
	}
}

// strikes plays the walk's fault at one message, and reports whether it came to
// that. Where it must, and a busy machine was in the way, it is played again.
func (k walk) strikes(p *players, at int) bool {
	for range 5 {
		played := p.play(k.scenario(k.atMostOnce, k.kind, at))
		if played == nil || hasStruck(played[k.wired]) {
			return true
		}
		if at > *k.messages {
			break
		}
	}
	return false
}

func hasStruck(q *request) bool {
	select {
	case <-q.proxy.Struck():
		return true
	default:
		return false
	}
}

// TestWire plays every kind of fault at every message between the stores' clients
// and their servers, and then pairs of faults at random.
func TestWire(t *testing.T) {
	for _, st := range stores[1:] {
		t.Run(st.name, func(t *testing.T) {
			t.Parallel()
			p := &players{T: t, place: st.open(t)}
			many := 24
			if p.pool != nil {
				many = 6 // the server has only so many connections to give
			}
			counts, walks := walks(p.ledger != nil)
			p.count(many, counts)
			each(many, walks, func(k walk) { k.play(p) })
			singles := p.plays
			var pairs []scenario
			n := uint64(*histories)
			if raced {
				n /= 3
			}
			for i := range n {
				pairs = append(pairs, randomPair(*firstSeed+i, p.ledger != nil))
			}
			each(many, pairs, func(s scenario) { p.play(s) })
			p.report()
			t.Logf("%d histories with at most one fault, %d with a pair, a store timeout of %s",
				singles, p.plays-singles, p.patience)
			for _, k := range counts {
				t.Logf("%s, at most once %t: %d messages", k.name, k.atMostOnce, *k.messages)
			}
		})
	}
}

// walks returns every kind of fault in every role, and each role once.
func walks(tx bool) (counts, walks []walk) {
	for _, r := range roles() {
		for _, atMostOnce := range r.modes(tx) {
			k := walk{r, atMostOnce, wire.Fine, new(int)}
			counts = append(counts, k)
			for k.kind = wire.Cut; k.kind < wire.Kinds; k.kind++ {
				walks = append(walks, k)
			}
		}
	}
	return counts, walks
}

// count counts the messages of each role, and makes the store timeout longer where
// it is too short for this machine.
func (p *players) count(many int, counts []walk) {
	for {
		var tooShort atomic.Bool
		each(many, counts, func(k walk) {
			if !k.count(p) {
				tooShort.Store(true)
			}
		})
		if !tooShort.Load() || p.patience >= 8*wireTimeout {
			return
		}
		p.patience *= 2
	}
}

// randomPair returns the scenario of a seed: two faults of the wire, in one request
// or in two.
func randomPair(seed uint64, tx bool) scenario {
	dice := mathrand.New(mathrand.NewPCG(seed, 1))
	atMostOnce := modeOf(seed, tx)
	s := scenario{name: fmt.Sprintf("pair %d, at most once %t", seed, atMostOnce), seed: seed, atMostOnce: atMostOnce}
	for id := range 2 + dice.IntN(4) {
		q := plan{
			id: id, body: "b1", process: dice.IntN(2),
			waits:  moment(dice.IntN(int(struck) + 1)),
			after:  time.Duration(dice.IntN(6)) * time.Millisecond,
			takes:  time.Duration(dice.IntN(10)) * time.Millisecond,
			ending: [...]int{http.StatusCreated, http.StatusCreated, http.StatusUnprocessableEntity, http.StatusServiceUnavailable, 0}[dice.IntN(5)],
		}
		if dice.IntN(5) == 0 {
			q.body = "b2"
		}
		s.plans = append(s.plans, q)
	}
	strike := func(q *plan) {
		if q.wire == nil {
			q.wire = make(map[int]wire.Fault)
		}
		for wanted := len(q.wire) + 1; len(q.wire) < wanted; {
			q.wire[1+dice.IntN(12)] = wire.Cut + wire.Fault(dice.IntN(int(wire.Kinds-wire.Cut)))
		}
	}
	strike(&s.plans[0])
	strike(&s.plans[dice.IntN(2)])
	return s
}
