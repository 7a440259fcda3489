package storetest

import (
	"sync/atomic"

	"github.com/retrysafe/idempotency"
)

func rule01() []testCase {
	return []testCase{
		{name: "concurrent claims of a new key", run: raceNewKey},
		{name: "concurrent claims of a released key", run: raceReleasedKey},
		{name: "concurrent claims of a completed key", run: raceCompletedKey},
		{name: "concurrent claims of a key whose lease has lapsed", on: leaseStore, timed: true, run: raceLapsedKey},
		{name: "concurrent claims of a key whose record has expired", timed: true, run: raceExpiredKey},
		{name: "never two holders while many claim and release", run: churn},
	}
}

// crowd is how many goroutines race for one key.
const crowd = 16

// raceFor lets n goroutines claim one key and returns the one claim that won.
func (p *probe) raceFor(key idempotency.Key, n int) idempotency.Claim {
	claims := make([]idempotency.Claim, n)
	recs := make([]*idempotency.Record, n)
	for i := range claims {
		claims[i] = claimFor(key)
	}
	p.together(n, func(i int) { recs[i] = p.ask(claims[i], long) })
	winner := -1
	for i, rec := range recs {
		switch {
		case rec != nil:
		case winner >= 0:
			p.failf("of %d concurrent Claims more than one got nil: tokens %s and %s",
				n, short(claims[winner].Token), short(claims[i].Token))
		default:
			winner = i
		}
	}
	if winner < 0 {
		p.failf("of %d concurrent Claims none got nil; one got the record of %s", n, describe(recs[0]))
	}
	for i, rec := range recs {
		if i != winner {
			p.checkRunning(rec, claims[winner], claims[i])
		}
	}
	return claims[winner]
}

func raceNewKey(p *probe) {
	p.release(p.raceFor(p.key(), 4*crowd))
	for range p.race(2) {
		p.release(p.raceFor(p.key(), crowd))
	}
}

func raceReleasedKey(p *probe) {
	key := p.key()
	for range p.race(2) {
		p.release(p.raceFor(key, crowd))
	}
}

func raceCompletedKey(p *probe) {
	for range p.race(10) {
		c, want := p.claim(), answer("done")
		p.record(c, want, long)
		p.together(crowd, func(int) { p.checkDone(p.lose(rival(c), long), c, want) })
	}
}

func raceLapsedKey(p *probe) {
	var keys []idempotency.Key
	for range p.race(40) {
		c := p.claim()
		p.take(c, p.tick)
		keys = append(keys, c.Key)
	}
	p.outlive()
	for _, key := range keys {
		p.raceFor(key, 2*crowd)
	}
}

func raceExpiredKey(p *probe) {
	var keys []idempotency.Key
	for range p.race(40) {
		c := p.claim()
		p.record(c, answer("old"), p.tick)
		keys = append(keys, c.Key)
	}
	p.outlive()
	for _, key := range keys {
		p.release(p.raceFor(key, 2*crowd))
	}
}

func churn(p *probe) {
	var holders, claimed atomic.Int32
	key := p.key()
	p.together(crowd/2, func(int) {
		for range p.race(4) {
			c := claimFor(key)
			if p.ask(c, long) != nil {
				continue
			}
			claimed.Add(1)
			if n := holders.Add(1); n != 1 {
				p.failf("%d tokens hold the key at the same time", n)
			}
			holders.Add(-1)
			p.release(c)
		}
	})
	if claimed.Load() == 0 {
		p.failf("no Claim got nil, although every holder released the key")
	}
	p.wantFree(key)
}
