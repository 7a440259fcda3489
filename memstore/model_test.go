package memstore_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
)

// model is the contract at its plainest: what each key holds, and when that
// ends.
type model map[idempotency.Key]*modelEntry

type modelEntry struct {
	token      string
	response   *idempotency.Response
	lease, end time.Time
}

func (m model) live(key idempotency.Key) *modelEntry {
	if e := m[key]; e != nil && time.Now().Before(e.end) {
		return e
	}
	delete(m, key)
	return nil
}

func (m model) record(key idempotency.Key) *idempotency.Record {
	e := m.live(key)
	switch {
	case e == nil:
		return nil
	case e.response != nil:
		return &idempotency.Record{Token: e.token, Response: e.response, ExpiresIn: time.Until(e.end)}
	case time.Now().Before(e.lease):
		return &idempotency.Record{Token: e.token, ExpiresIn: time.Until(e.lease)}
	}
	return &idempotency.Record{Token: e.token, Lapsed: true, ExpiresIn: time.Until(e.end)}
}

func (m model) claim(c idempotency.Claim, lease time.Duration) *idempotency.Record {
	until := time.Now().Add(lease)
	fresh := &modelEntry{token: c.Token, lease: until, end: until.Add(c.Hold)}
	e, rec := m.live(c.Key), m.record(c.Key)
	switch {
	case e == nil:
		m[c.Key] = fresh
	case e.response == nil && e.token == c.Token:
		if fresh.lease.After(e.lease) {
			e.lease = fresh.lease
		}
		if fresh.end.After(e.end) {
			e.end = fresh.end
		}
	case rec.Lapsed && c.Replaces == e.token:
		m[c.Key] = fresh
	default:
		return rec
	}
	return nil
}

func (m model) extend(c idempotency.Claim, lease time.Duration) error {
	e := m.live(c.Key)
	if e == nil || e.token != c.Token {
		return idempotency.ErrClaimLost
	}
	if e.response == nil {
		e.lease = time.Now().Add(lease)
		e.end = e.lease.Add(c.Hold)
	}
	return nil
}

func (m model) complete(c idempotency.Claim, resp *idempotency.Response, ttl time.Duration) error {
	e := m.live(c.Key)
	if e != nil && e.token != c.Token {
		return idempotency.ErrClaimLost
	}
	if e == nil || e.response == nil {
		m[c.Key] = &modelEntry{token: c.Token, response: resp, end: time.Now().Add(ttl)}
	}
	return nil
}

func (m model) release(c idempotency.Claim) {
	if e := m.live(c.Key); e != nil && e.token == c.Token && e.response == nil {
		delete(m, c.Key)
	}
}

// TestAgainstModel makes the same random calls, with random durations, on a
// store and on the model, and wants the same answers, also when time has passed.
func TestAgainstModel(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { runModel(t, rand.New(rand.NewPCG(seed, 1))) })
		})
	}
}

func runModel(t *testing.T, rnd *rand.Rand) {
	s, m := setup(t), model{}
	// Few keys in the one half of the runs, for many meetings; many in the
	// other, for long queues.
	keys := []int{3, 2000}[rnd.IntN(2)]
	span := func() time.Duration { // from a millisecond to weeks, and not round
		return time.Duration(rnd.Int64N(int64(time.Millisecond) << (3 * rnd.IntN(11))))
	}
	for step := range 4000 {
		c := as(claimOf(rnd.IntN(keys)), string(rune('a'+rnd.IntN(3))))
		c.Fingerprint = idempotency.Fingerprint{}
		if rnd.IntN(2) == 0 {
			c.Hold = span()
		}
		if rnd.IntN(3) == 0 {
			c.Replaces = string(rune('a' + rnd.IntN(3)))
		}
		d := 1 + span()
		switch rnd.IntN(12) {
		case 0, 1, 2:
			rec, err := s.Claim(t.Context(), c, d)
			require.NoError(t, err)
			require.Equal(t, m.claim(c, d), rec, "step %d: claim", step)
		case 3, 4:
			require.Equal(t, m.extend(c, d), s.Extend(t.Context(), c, d), "step %d: extend", step)
		case 5, 6:
			resp := &idempotency.Response{Status: step}
			require.Equal(t, m.complete(c, resp, d), s.Complete(t.Context(), c, resp, d), "step %d: complete", step)
		case 7:
			m.release(c)
			s.release(c)
		case 8:
			if rnd.IntN(4) == 0 {
				delete(m, c.Key)
				s.forget(c.Key)
			}
		case 9:
			time.Sleep(span())
		default:
			require.Equal(t, m.record(c.Key), s.lookup(c.Key), "step %d: lookup", step)
		}
	}
	for range 40 {
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		for key := range m {
			require.Equal(t, m.record(key), s.lookup(key))
		}
		time.Sleep(span())
	}
	time.Sleep(100 * 365 * 24 * time.Hour)
	synctest.Wait()
	require.Zero(t, s.Len())
	require.Zero(t, s.Bytes())
}
