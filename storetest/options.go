package storetest

import (
	"time"

	"github.com/retrysafe/idempotency"
)

// Option changes how [Run] and [Check] go about it.
type Option func(*config)

type config struct {
	sleep    func(time.Duration)
	ownSleep bool
	bubbles  bool
	tick     time.Duration
	rounds   int
	newFull  func() idempotency.Store
	wanted   func(rule int, name string) bool // nil: every case
}

const (
	defaultTick   = 50 * time.Millisecond
	defaultRounds = 2000
)

func newConfig(opts []Option) *config {
	cfg := &config{sleep: time.Sleep, tick: defaultTick, rounds: defaultRounds}
	for _, opt := range opts {
		opt(cfg)
	}
	return cfg
}

// WithSleep sets how time passes for the store: sleep must return when the
// store's clock has gone on by at least the duration it is given. The default is
// [time.Sleep]. A store whose server has a clock that can be set needs no
// waiting, for example one on miniredis:
//
//	storetest.Run(t, newStore, storetest.WithSleep(server.FastForward))
//
// The cases then run in sequence, since they share that clock. It panics if
// sleep is nil.
func WithSleep(sleep func(time.Duration)) Option {
	if sleep == nil {
		panic("storetest: WithSleep needs a function; leave the option out for time.Sleep")
	}
	return func(cfg *config) { cfg.sleep, cfg.ownSleep = sleep, true }
}

// WithSynctest makes [Run] run every case in a bubble of [testing/synctest] of
// its own, where waiting takes no time and is exact. newStore is called inside
// the bubble. It is for stores that live in the process: a bubble's clock stands
// still while a goroutine waits for the network.
//
// [Check] refuses this option, since it may itself be called inside a bubble.
func WithSynctest() Option {
	return func(cfg *config) { cfg.bubbles = true }
}

// WithTick sets the length of a short lease, by default 50 ms. The cases wait
// for about one and a half of it at a time. It must be well above the store's
// response time and above the resolution of its clock. A case that finds that
// the machine stalled for longer than a lease is begun anew with a tick twice as
// long, so the default does for a server nearby. It panics if d is not above
// zero.
func WithTick(d time.Duration) Option {
	if d <= 0 {
		panic("storetest: WithTick needs a duration above zero")
	}
	return func(cfg *config) { cfg.tick = d }
}

// WithRounds sets how many rounds a case goes that lets goroutines race for a
// key, by default 2000. Such a case ends after half a second in any case, so a
// slow store goes fewer. It panics if n is not above zero.
func WithRounds(n int) Option {
	if n <= 0 {
		panic("storetest: WithRounds needs a number above zero")
	}
	return func(cfg *config) { cfg.rounds = n }
}

// WithFull adds the cases of rule 13 for a store that is bounded: newStore
// returns one with room for a small number of entries, at least four and at
// most four thousand, that is empty. It panics if newStore is nil.
//
//	storetest.WithFull(func() idempotency.Store {
//		return memstore.New(memstore.WithMaxEntries(8))
//	})
func WithFull(newStore func() idempotency.Store) Option {
	if newStore == nil {
		panic("storetest: WithFull needs a function that makes a small store")
	}
	return func(cfg *config) { cfg.newFull = newStore }
}
