package soak_test

import (
	"fmt"
	"slices"
)

// report is what came of a soak.
type report struct {
	Limit    int      // the most connections that the pools may keep at rest
	Needed   []string // what has to have happened, by the names of the tally
	Samples  []sample
	Problems []string // what the soak itself has found, such as a stuck key
}

// What may be more without anything leaking.
const (
	// At rest nothing is under way, and what the two rests differ by is room in
	// maps that have grown to the most keys at a time: some 100 KiB, whatever the
	// number of requests. The little that is allowed for those finds a leak of 200
	// bytes a request from 1,400 requests on, and one of 5 bytes in ten minutes.
	restHeap           = 256 << 10
	restHeapPerRequest = 4
	// A pooled connection may have come to know more scripts and statements, and a
	// new one has buffers.
	heapPerConn    = 16 << 10
	heapPerNewConn = 192 << 10
	// Under load only the crowd bounds how many requests there are at a time: each
	// key may have four twins with a handful of goroutines each, and one in ten a
	// body or an answer of 256 KiB in several copies. When the store hangs, or the
	// machine, all of them may be waiting.
	loadHeap       = 32 << 20
	loadGoroutines = 10 * crowd
	loadConns      = 2 * poolSize
	loadKeys       = 100
)

// judge returns what is wrong with a report: nothing where all is flat.
//
// Nothing here depends on how quick the machine is. At rest figures are compared
// with what they were; under load the lowest figure of the last quarter with the
// highest of the second, so that only a trend tells, never a peak.
func judge(r report) []string {
	j := &judgement{wrong: slices.Clone(r.Problems)}
	before, started, after := r.all(origin), r.all(start), r.all(end)
	rests := r.all(rest)
	if len(before) != 1 || len(started) != 1 || len(rests) != 2 || len(after) != 1 {
		return append(j.wrong, "the soak broke off")
	}
	j.atRest(1, started[0], rests[0], r.Limit)
	quiet := started[0] // what opening needed is over by the first rest
	quiet.Goroutines = min(quiet.Goroutines, rests[0].Goroutines)
	j.atRest(2, quiet, rests[1], r.Limit)
	j.heapAtRest(rests[0], rests[1])
	j.underLoad(r)
	j.atEnd(before[0], after[0])
	for _, what := range r.Needed {
		if rests[1].Tally[what] == 0 {
			j.add("nothing was tried: no %s", what)
		}
	}
	return j.wrong
}

type judgement struct{ wrong []string }

func (j *judgement) add(format string, args ...any) {
	j.wrong = append(j.wrong, fmt.Sprintf(format, args...))
}

func (j *judgement) atMost(what string, got, most int64, than string) {
	if got > most {
		j.add("%s: %d, and at most %d %s", what, got, most, than)
	}
}

// atRest: nothing is left of the traffic but pooled connections.
func (j *judgement) atRest(n int, started, s sample, limit int) {
	than := fmt.Sprintf("at rest %d", n)
	j.atMost("goroutines", int64(s.Goroutines), int64(started.Goroutines), than)
	j.atMost("connections", int64(s.Conns), int64(limit), than)
	j.atMost("pooled connections", int64(s.Pooled), int64(limit), than)
	j.atMost("files", int64(s.Files), int64(started.Files+max(0, max(s.Conns, s.Pooled)-started.Conns)), than)
	j.atMost("busy connections", int64(s.Busy), 0, than)
	j.atMost("keys", int64(s.Keys), 0, than)
}

func (j *judgement) heapAtRest(first, last sample) {
	n := last.Tally[requests] - first.Tally[requests]
	conns := int64(last.Conns)*heapPerConn + int64(max(0, last.Conns-first.Conns))*heapPerNewConn
	most := first.Heap + restHeap + n*restHeapPerRequest + conns
	j.atMost("heap", last.Heap, most, fmt.Sprintf("at rest after %d requests", n))
}

func (j *judgement) underLoad(r report) {
	samples := r.all(load)
	n := len(samples)
	if n < enough {
		j.add("only %d samples under load", n)
		return
	}
	second, last := samples[n/4:n/2], samples[n-n/4:]
	flat := func(what string, slack int64, value func(s sample) int64) {
		highest := value(slices.MaxFunc(second, func(a, b sample) int { return int(value(a) - value(b)) }))
		lowest := value(slices.MinFunc(last, func(a, b sample) int { return int(value(a) - value(b)) }))
		j.atMost(what, lowest, highest+slack, "under load")
	}
	flat("goroutines", loadGoroutines, func(s sample) int64 { return int64(s.Goroutines) })
	flat("connections", loadConns, func(s sample) int64 { return int64(s.Conns) })
	flat("pooled connections", loadConns, func(s sample) int64 { return int64(s.Pooled) })
	flat("heap beside records", loadHeap, func(s sample) int64 { return s.Heap - s.Held })
	// Traffic that has become quicker, on a machine that has less to do, fills the
	// store with the keys of one life at the most.
	flat("keys", loadKeys+mostBegun(samples), func(s sample) int64 { return int64(s.Keys) })
}

// mostBegun is the largest number of keys that were begun within one life.
func mostBegun(samples []sample) (most int64) {
	for i, s := range samples {
		for _, t := range samples[i:] {
			if t.At-s.At <= life {
				most = max(most, t.Tally[operations]-s.Tally[operations])
			}
		}
	}
	return most
}

// atEnd: nothing is left at all.
func (j *judgement) atEnd(before, s sample) {
	j.atMost("goroutines", int64(s.Goroutines), int64(before.Goroutines), "in the end")
	j.atMost("files", int64(s.Files), int64(before.Files), "in the end")
	j.atMost("connections", int64(s.Conns), 0, "in the end")
}

func (r report) all(p phase) (some []sample) {
	for _, s := range r.Samples {
		if s.Phase == p {
			some = append(some, s)
		}
	}
	return some
}
