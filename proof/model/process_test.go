package model_test

// arrive begins a request. The library reads the body first; a mutant claims
// first.
func (x *turn) arrive() string {
	if x.decidesEarly {
		x.await(claiming, opClaim)
		return ""
	}
	x.proc().pc = reading
	return ""
}

func (x *turn) read() string {
	switch {
	case x.decidesEarly:
		return x.won()
	case x.claimInTwo:
		x.await(looking, opClaim)
	default:
		x.await(claiming, opClaim)
	}
	return ""
}

func (x *turn) broke() string {
	broken := ""
	if x.proc().claimed && x.kind == running && x.token == x.t {
		broken = "a request whose body broke off has left a claim"
	}
	x.done()
	return broken
}

// answered is the arrival of the reply to the call that the process waits for.
func (x *turn) answered() string {
	q := x.proc()
	rep, held := q.reply, q.held
	q.reply, q.held = noReply, 0
	if x.leaseFromReply {
		q.age = 0
	}
	switch q.pc {
	case looking:
		if rep == okReply {
			x.await(claiming, opPut)
			return ""
		}
		return x.lost(rep, held)
	case claiming, taking:
		if rep != okReply {
			return x.lost(rep, held)
		}
		if x.stale() {
			return x.failed()
		}
		if x.decidesEarly && q.pc == claiming {
			q.pc, q.claimed = reading, true
			return ""
		}
		return x.won()
	case holding:
		if rep != okReply || x.stale() {
			return x.failed()
		}
		return x.start()
	}
	x.done() // completing, releasing
	return ""
}

func (x *turn) stale() bool { return x.proc().age >= leaseLen && !x.noStaleCheck }

// won has the claim.
func (x *turn) won() string {
	q := x.proc()
	switch {
	case q.pc == taking:
		q.pc = asking
		return x.alone(asking)
	case x.atMostOnce:
		x.await(holding, opHold)
		return ""
	}
	return x.start()
}

// lost finds somebody else at the key.
func (x *turn) lost(rep reply, holder uint8) string {
	broken := ""
	switch rep {
	case doneReply:
		if x.fingerprint(holder) != x.fingerprint(x.t) && x.noFingerprint {
			broken = "a request was answered with the answer to another one"
		}
	case lapsedReply:
		same := x.fingerprint(holder) == x.fingerprint(x.t)
		again := x.takesTwice && x.repl[x.t] != holder+1
		if x.reconciler && same && (x.repl[x.t] == 0 || again) {
			x.repl[x.t] = holder + 1
			x.await(taking, opTake)
			return ""
		}
	}
	x.done()
	return broken
}

// failed is a call that has brought no reply, or an unwelcome one.
func (x *turn) failed() string {
	q := x.proc()
	switch q.pc {
	case claiming, looking, holding:
		if x.runsAnyway {
			return x.start()
		}
		x.send(opRelease) // goes on behind
	case completing: // so does the completion
		if x.releasesUnrecorded {
			x.send(opRelease)
			x.live = 0
		}
	}
	x.done()
	return ""
}

// start runs the handler.
func (x *turn) start() string {
	q := x.proc()
	age := q.age
	*q = proc{pc: handling, try: q.try, age: age}
	if x.live != 0 {
		return "a second run, though nothing has freed the first one"
	}
	x.live = x.t + 1
	return x.alone(handling)
}

// alone checks what has to hold when a handler or a Reconciler begins.
func (x *turn) alone(pc) string {
	for p := range x.procs {
		switch x.ps[p].pc {
		case handling, handled, asking:
			if p != x.p {
				return "two runs at a time"
			}
		}
	}
	if x.kind == completed {
		return "a run though there is a record"
	}
	return ""
}

func (x *turn) effect() string {
	x.proc().pc = handled
	x.effects++
	if x.effects > 1 && (x.atMostOnce || !x.excused) {
		return "the effect was had twice"
	}
	return ""
}

func (x *turn) answer() string {
	x.proc().beat, x.proc().beatR = 0, noReply
	if x.completeInTwo {
		x.send(opErase)
	}
	x.await(completing, opComplete)
	return ""
}

// free is a handler that says that nothing was done.
func (x *turn) free() string {
	if x.live == x.t+1 {
		x.live = 0
	}
	x.proc().beat, x.proc().beatR = 0, noReply
	x.await(releasing, opRelease)
	return ""
}

func (x *turn) panic() string {
	if x.atMostOnce && !x.panicReleases {
		x.done() // left to become unknown
		return ""
	}
	x.excused = x.excused || !x.atMostOnce
	return x.free()
}

func (x *turn) notExecuted() string {
	if x.proc().pc == stoppedAsk && !x.runsLost {
		x.done()
		return ""
	}
	x.live = 0
	return x.start()
}

// beaten is the arrival of a heartbeat's reply.
func (x *turn) beaten() string {
	q := x.proc()
	rep, age := q.beatR, q.beat-1
	q.beat, q.beatR = 0, noReply
	if rep == okReply {
		if x.leaseFromReply {
			age = 0
		}
		q.age = age
		return ""
	}
	x.stop(q)
	return ""
}

// holds checks a whole state: who runs has the claim.
func (r *rules) holds(s *state) string {
	for p := range r.procs {
		q := &s.ps[p]
		switch q.pc {
		case asking, handling, handled:
			if s.kind != running || s.token != r.tokenOf(p, q.try) {
				return "a run without a claim"
			}
		}
	}
	return ""
}
