package history_test

import (
	"crypto/rand"
	"fmt"
	"strings"
	"sync"
	"testing"
)

// players play scenarios over one place, each with a key of its own, until one
// is wrong.
type players struct {
	*testing.T
	place

	mu    sync.Mutex
	plays int
	wrong *failure // the smallest
}

// failure is a scenario whose history is wrong.
type failure struct {
	scenario
	story string
}

// each does something with all, n at a time.
func each[T any](n int, all []T, do func(T)) {
	work := make(chan T)
	var workers sync.WaitGroup
	for range n {
		workers.Go(func() {
			for x := range work {
				do(x)
			}
		})
	}
	for _, x := range all {
		work <- x
	}
	close(work)
	workers.Wait()
}

// play plays one scenario, unless there is a failure already or another one is
// asked for, and returns its requests.
func (p *players) play(s scenario) (played []*request) {
	if p.failed() || *only != "" && *only != s.name {
		return nil
	}
	story, played := s.play(p.place, rand.Text())
	p.mu.Lock()
	defer p.mu.Unlock()
	p.plays++
	if story != "" && (p.wrong == nil || s.size() < p.wrong.size()) {
		p.wrong = &failure{s, story}
	}
	return played
}

// story plays s and returns its story if it is wrong.
func (p place) story(s scenario) string {
	story, _ := s.play(p, rand.Text())
	return story
}

func (p *players) failed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.wrong != nil
}

// report fails the test if there is a failure, with the shortest story of it and
// how to have it again.
func (p *players) report() {
	p.Helper()
	if p.plays == 0 {
		p.Errorf("no scenario is called %q", *only)
	}
	if p.wrong == nil {
		return
	}
	least, story := shrink(p.wrong.scenario, p.story)
	if story == "" {
		story = p.wrong.story
	}
	p.Errorf("%s: %d requests and %d faults, cut down to %d and %d: %s\nagain: %s",
		p.wrong.name, len(p.wrong.plans), p.wrong.faults(), len(least.plans), least.faults(), story, p.again())
}

// again is the command that plays the failed scenario again, a few times, since a
// schedule of goroutines is not a seed's.
func (p *players) again() string {
	path := strings.Split(p.Name(), "/")
	command := fmt.Sprintf("go test ./history -count 20 -run '^%s$' -only '%s'", strings.Join(path, "$/^"), p.wrong.name)
	if p.wrong.seed != 0 {
		command += fmt.Sprintf(" -first %d -histories 1", p.wrong.seed)
	}
	return command
}
