package model_test

import "fmt"

// visit is called with every step that can be taken from a state.
type visit func(next state, story func() string, broken string)

// steps finds every step that can be taken from s.
func (r *rules) steps(s *state, v visit) {
	r.tick(s, v)
	for p := range r.procs {
		r.process(s, p, v)
	}
	tokens := r.procs * r.tries
	for t := range tokens {
		for o := range ops {
			if s.sent[t]&(1<<o) != 0 {
				r.deliver(s, o, uint8(t), v)
			}
		}
	}
}

// tick lets the time pass. Contexts end on time: a handler ends with its context.
func (r *rules) tick(s *state, v visit) {
	n := *s
	if n.kind == running {
		if n.left--; n.left == 0 {
			r.lapse(&n)
		}
	}
	for p := range r.procs {
		q := &n.ps[p]
		switch q.pc {
		case claiming, looking, taking, holding, asking, handling, handled:
			q.age = min(q.age+1, leaseLen)
		case reading:
			if r.decidesEarly {
				q.age = min(q.age+1, leaseLen)
			}
		}
		if q.beat > 0 {
			q.beat = min(q.beat+1, leaseLen+1)
		}
		if q.age == leaseLen && !r.noHeartbeat {
			r.stop(q)
		}
	}
	if n != *s {
		v(n, func() string { return "a tick passes" }, "")
	}
}

func (r *rules) lapse(n *state) {
	if n.hold {
		n.kind = lapsed
		return
	}
	if n.live == n.token+1 && !r.atMostOnce {
		n.live, n.excused = 0, true
	}
	n.kind, n.token = absent, 0
}

// stop ends the context of what a process runs.
func (r *rules) stop(q *proc) {
	switch q.pc {
	case asking:
		q.pc = stoppedAsk
	case handling:
		q.pc = stopped
	case handled:
		q.pc = stoppedEff
	default:
		return
	}
	q.age, q.beat, q.beatR = 0, 0, noReply
}

// deliver has the store carry out a call, once.
func (r *rules) deliver(s *state, o op, t uint8, v visit) {
	n := *s
	rep, held, broken := r.apply(&n, o, t)
	story := func() string { return fmt.Sprintf("the store carries out %s of token %d", opNames[o], t) }
	if n != *s || broken != "" {
		v(n, story, broken)
	}
	for p := range r.procs {
		q := &n.ps[p]
		if r.tokenOf(p, q.try) != t {
			continue
		}
		switch {
		case r.awaits(q, o) && q.reply == noReply:
			q.reply, q.held = rep, held
		case o == opExtend && q.beat > 0 && q.beatR == noReply:
			q.beatR = rep
		default:
			continue
		}
		v(n, func() string { return story() + ", and its reply is on the way" }, broken)
	}
}

func (r *rules) awaits(q *proc, o op) bool {
	switch q.pc {
	case claiming:
		return o == opClaim && !r.claimInTwo || o == opPut
	case looking:
		return o == opClaim
	case taking:
		return o == opTake
	case holding:
		return o == opHold
	case completing:
		return o == opComplete
	case releasing:
		return o == opRelease
	}
	return false
}

// turn is a step of one process, in the making.
type turn struct {
	*rules
	state
	p int
	t uint8
}

func (x *turn) proc() *proc { return &x.ps[x.p] }
func (x *turn) send(o op)   { x.sent[x.t] |= 1 << o }
func (x *turn) done()       { x.ps[x.p] = proc{try: x.ps[x.p].try + 1} }

func (x *turn) await(c pc, o op) {
	q := x.proc()
	q.pc, q.age, q.reply, q.held = c, 0, noReply, 0
	x.send(o)
}

// process takes every step of process p.
func (r *rules) process(s *state, p int, v visit) {
	step := func(what string, f func(x *turn) string) {
		x := &turn{rules: r, state: *s, p: p, t: r.tokenOf(p, s.ps[p].try)}
		broken := f(x)
		v(x.state, func() string { return fmt.Sprintf("process %d (%s): %s", p, pcNames[s.ps[p].pc], what) }, broken)
	}
	q := s.ps[p]
	switch q.pc {
	case idle:
		if int(q.try) < r.tries {
			step("a request comes", (*turn).arrive)
		}
		return
	case reading:
		step("the body is whole", (*turn).read)
		step("the body breaks off", (*turn).broke)
		return
	}
	step("crashes", func(x *turn) string { x.done(); return "" })
	r.work(s, q, step)
	if q.reply != noReply {
		step("gets the reply", (*turn).answered)
	}
	if q.beatR != noReply {
		step("gets the heartbeat's reply", (*turn).beaten)
	}
	switch q.pc {
	case claiming, looking, taking, holding, completing, releasing:
		step("gives the call up", (*turn).failed)
	}
}

// work is what handlers and the Reconciler can do.
func (r *rules) work(s *state, q proc, step func(string, func(*turn) string)) {
	switch q.pc {
	case asking, handling, handled:
		if !r.noHeartbeat && q.beat == 0 && q.age < leaseLen {
			step("beats", func(x *turn) string { x.send(opExtend); x.proc().beat = 1; return "" })
		}
		if q.beat > 0 {
			step("gives the heartbeat up", func(x *turn) string { x.proc().beat, x.proc().beatR = 0, noReply; return "" })
		}
	}
	switch q.pc {
	case handling:
		step("has its effect", (*turn).effect)
		step("answers 503", (*turn).free)
		step("answers 422", (*turn).answer)
		step("panics", (*turn).panic)
	case handled:
		step("answers 201", (*turn).answer)
		step("panics", (*turn).panic)
	case stopped:
		step("answers 503", (*turn).free)
		step("answers 422", (*turn).answer)
	case stoppedEff:
		step("answers 201", (*turn).answer)
		step("panics", (*turn).panic)
	case asking, stoppedAsk:
		if s.effects > 0 {
			step("finds the answer", (*turn).answer)
		} else {
			step("finds that nothing was done", (*turn).notExecuted)
		}
		step("finds nothing out", func(x *turn) string { x.done(); return "" })
	}
}
