package history_test

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"sync"
	"testing"
)

const (
	// tries is how often a smaller scenario is played, all at a time, before it
	// counts as right: goroutines are not scheduled alike each time.
	tries = 8

	// maxPlays bounds the search.
	maxPlays = 1200
)

// shrink looks for a smaller scenario that is still wrong, and a still smaller
// one, until there is none, and returns it with its story. play plays a scenario
// and returns its story, or "" if it comes out right. The story is "" where s
// itself never came out wrong again.
func shrink(s scenario, play func(scenario) string) (least scenario, story string) {
	left := maxPlays
	fails := func(s scenario) string {
		var stories [tries]string
		var all sync.WaitGroup
		for i := range min(tries, left) {
			all.Go(func() { stories[i] = play(s.clone()) })
		}
		all.Wait()
		left -= min(tries, left)
		return cmp.Or(stories[:]...)
	}
	story = fails(s)
	for smaller := true; smaller; {
		smaller = false
		for _, c := range s.smaller() {
			if told := fails(c); told != "" {
				s, story, smaller = c, told, true
				break
			}
		}
	}
	return s, story
}

// size is what shrinking makes less of.
func (s scenario) size() int { return len(s.plans) + s.faults() }

// smaller returns the scenarios that have a little less to tell, those that have
// much less first.
func (s scenario) smaller() (all []scenario) {
	for i := range s.plans {
		c := s.clone()
		c.plans = slices.Delete(c.plans, i, i+1)
		all = append(all, c)
	}
	change := func(i int, less func(q *plan)) {
		c := s.clone()
		less(&c.plans[i])
		all = append(all, c)
	}
	for i, q := range s.plans {
		for _, at := range slices.Sorted(maps.Keys(q.faults)) {
			change(i, func(q *plan) { delete(q.faults, at) })
		}
		for _, at := range slices.Sorted(maps.Keys(q.wire)) {
			change(i, func(q *plan) { delete(q.wire, at) })
		}
		if q.wire != nil && len(q.wire) == 0 {
			change(i, func(q *plan) { q.wire = nil })
		}
	}
	if s.atMostOnce {
		c := s.clone()
		c.atMostOnce = false
		all = append(all, c)
	}
	for i, q := range s.plans {
		if q.waits != start {
			change(i, func(q *plan) { q.waits = start })
		}
		if q.after != 0 {
			change(i, func(q *plan) { q.after = 0 })
		}
		if q.takes != 0 {
			change(i, func(q *plan) { q.takes = 0 })
		}
		if q.lasts {
			change(i, func(q *plan) { q.lasts = false })
		}
		if q.ending != http.StatusCreated {
			change(i, func(q *plan) { q.ending = http.StatusCreated })
		}
		if q.body != "b1" {
			change(i, func(q *plan) { q.body = "b1" })
		}
		if q.process != 0 {
			change(i, func(q *plan) { q.process = 0 })
		}
	}
	return all
}

// TestShrink: whatever is of no account for a failure goes.
func TestShrink(t *testing.T) {
	frees := func(q plan) bool { return q.ending == http.StatusServiceUnavailable && len(q.faults) > 0 }
	wrong := func(s scenario) string {
		if slices.ContainsFunc(s.plans, frees) && slices.ContainsFunc(s.plans, func(q plan) bool { return q.body == "b2" && !frees(q) }) {
			return "wrong"
		}
		return ""
	}
	found := 0
	for seed := range uint64(200) {
		s := random(1+seed, true, false)
		if wrong(s) == "" {
			continue
		}
		found++
		before, size := s.clone().plans, s.size()
		least, story := shrink(s, wrong)
		if story != "wrong" || len(least.plans) != 2 || least.faults() != 1 || least.atMostOnce {
			t.Errorf("%s shrinks to %v", s.name, least.plans)
		}
		for _, q := range least.plans {
			if q.after != 0 || q.takes != 0 || q.process != 0 {
				t.Errorf("%s: %s could be simpler", s.name, q)
			}
		}
		if size != s.size() || len(before) != len(s.plans) {
			t.Errorf("%s was changed", s.name)
		}
	}
	if found < 10 {
		t.Errorf("only %d seeds have what it takes", found)
	}
}
