package history_test

import (
	"flag"
	"fmt"
	mathrand "math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"
)

var (
	firstSeed = flag.Uint64("first", 1, "the seed of the first random scenario")
	histories = flag.Int("histories", 150, "how many random scenarios to play over each store")
	only      = flag.String("only", "", "play only the scenario of this name")
)

// single returns every scenario with one fault: each kind, at each call of the
// request that runs, for each way its handler can end, with others around it.
func single(atMostOnce, tx bool) (all []scenario) {
	calls := 3 // Claim, Complete or Release, and its repetition
	if atMostOnce {
		calls++ // Extend
	}
	for kind := failBefore; kind < faultKinds; kind++ {
		if tx && kind == late {
			continue // a transaction's statements do not overtake one another
		}
		for at := 1; at <= calls; at++ {
			for _, ending := range []int{http.StatusCreated, http.StatusServiceUnavailable, 0} {
				all = append(all, scenario{
					name:       fmt.Sprintf("call %d %s, ending %d, at most once %t", at, kind, ending, atMostOnce),
					atMostOnce: atMostOnce,
					plans: []plan{
						{id: 0, body: "b1", ending: ending, takes: 2 * time.Millisecond, faults: map[int]fault{at: kind}},
						{id: 1, body: "b1", ending: http.StatusCreated, after: time.Millisecond, process: 1},
						{id: 2, body: "b2", ending: http.StatusCreated, after: 3 * time.Millisecond},
						{id: 3, body: "b1", ending: http.StatusCreated, after: 8 * time.Millisecond, process: 1},
					},
				})
			}
		}
	}
	return all
}

// double returns every scenario in which two requests have one fault each.
func double(atMostOnce bool) (all []scenario) {
	for first := range single(atMostOnce, false) {
		for second := failBefore; second < faultKinds; second++ {
			for at := 1; at <= 2; at++ {
				s := single(atMostOnce, false)[first]
				s.name += fmt.Sprintf(", and call %d of request 1 %s", at, second)
				s.plans[1].faults = map[int]fault{at: second}
				all = append(all, s)
			}
		}
	}
	return all
}

// random returns the scenario of a seed: up to six requests, none to two of whose
// calls go wrong.
func random(seed uint64, atMostOnce, tx bool) scenario {
	dice := mathrand.New(mathrand.NewPCG(seed, 0))
	s := scenario{name: fmt.Sprintf("seed %d, at most once %t", seed, atMostOnce), seed: seed, atMostOnce: atMostOnce}
	for id := range 2 + dice.IntN(5) {
		q := plan{
			id: id, body: "b1", process: dice.IntN(2), faults: make(map[int]fault),
			after:  time.Duration(dice.IntN(6)) * time.Millisecond,
			takes:  time.Duration(dice.IntN(3)) * time.Millisecond,
			ending: [...]int{http.StatusCreated, http.StatusCreated, http.StatusUnprocessableEntity, http.StatusServiceUnavailable, 0}[dice.IntN(5)],
		}
		if dice.IntN(5) == 0 {
			q.body = "b2"
		}
		for range dice.IntN(3) {
			kind := fault(1 + dice.IntN(int(faultKinds)-1))
			if tx && kind == late {
				kind = failBefore
			}
			q.faults[1+dice.IntN(4)] = kind
		}
		s.plans = append(s.plans, q)
	}
	return s
}

// modeOf decides whether the scenario of a seed is played at most once.
func modeOf(seed uint64, tx bool) (atMostOnce bool) { return seed%2 == 0 && !tx }

// TestHistories plays every scenario over every store that can be had.
func TestHistories(t *testing.T) {
	for _, st := range stores {
		if strings.Contains(st.name, "repeating") {
			continue // only through a proxy is there any difference
		}
		t.Run(st.name, func(t *testing.T) {
			t.Parallel()
			p := st.open(t)
			tx := p.ledger != nil
			all := single(false, tx)
			if !tx {
				all = append(all, single(true, tx)...)
			}
			singles := len(all)
			if p.server == "" && !raced {
				all = append(all, double(false)...)
				all = append(all, double(true)...)
			}
			for i := range uint64(*histories) {
				seed := *firstSeed + i
				all = append(all, random(seed, modeOf(seed, tx), tx))
			}
			players := players{T: t, place: p}
			each(6, all, func(s scenario) { players.play(s) })
			players.report()
			t.Logf("%d histories with one fault, %d with several", singles, len(all)-singles)
		})
	}
}
