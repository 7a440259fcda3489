package model_test

import "fmt"

// apply carries out one call in the store and returns its reply, the token that
// the reply names, and what the call has broken.
func (r *rules) apply(s *state, o op, t uint8) (rep reply, held uint8, broken string) {
	before := *s
	switch o {
	case opClaim, opTake:
		rep, held = r.applyClaim(s, o, t)
	case opPut:
		s.own(t, false)
		rep = okReply
	case opHold, opExtend:
		rep = r.applyExtend(s, o, t)
	case opErase:
		rep = okReply
		if s.kind == running && s.token == t {
			s.kind = absent
		}
	case opComplete:
		rep = r.applyComplete(s, t)
	case opRelease:
		rep = okReply
		if (s.kind == running || s.kind == lapsed) && (s.token == t || r.releaseAnyone) {
			s.kind = absent
		}
	}
	if s.kind == absent {
		s.token, s.left, s.hold = 0, 0, false
	}
	return rep, held, r.owners(&before, s, o, t, rep)
}

func (s *state) own(t uint8, hold bool) { s.kind, s.token, s.left, s.hold = running, t, leaseLen, hold }

func (r *rules) applyClaim(s *state, o op, t uint8) (reply, uint8) {
	hold := o == opTake && !r.reconcilesFree
	replaces := o == opTake && s.repl[t] == s.token+1 && (s.kind == lapsed || s.kind == running && r.takesRunning)
	switch {
	case s.kind == absent:
		if r.claimInTwo {
			return okReply, 0 // and puts it there later
		}
		s.own(t, hold)
		return okReply, 0
	case s.kind == completed:
		return doneReply, s.token
	case s.token == t:
		s.kind, s.left = running, leaseLen
		if r.forgetsHold {
			s.hold = hold
		} else {
			s.hold = s.hold || hold
		}
		return okReply, 0
	case replaces, s.kind == lapsed && r.takesAny:
		s.own(t, hold)
		return okReply, 0
	case s.kind == lapsed:
		return lapsedReply, s.token
	}
	return lostReply, s.token
}

func (r *rules) applyExtend(s *state, o op, t uint8) reply {
	hold := r.atMostOnce && !r.noHold
	switch {
	case s.kind == completed && s.token == t:
		return okReply
	case s.kind == completed:
		return lostReply
	case s.kind != absent && s.token == t, r.extendCreates:
		s.own(t, hold)
		return okReply
	}
	return lostReply
}

func (r *rules) applyComplete(s *state, t uint8) reply {
	switch {
	case s.kind == completed && s.token == t:
		return okReply
	case s.kind != absent && s.token != t && !r.completeAnyone:
		return lostReply
	case r.refusesLate && (s.kind == absent || s.kind == lapsed):
		return lostReply
	}
	s.kind, s.token, s.left, s.hold = completed, t, 0, false
	return okReply
}

// owners checks one step of the store: a record never changes, only its owner
// changes a claim, and a completion is refused only for another's sake.
func (r *rules) owners(before, after *state, o op, t uint8, rep reply) string {
	same := before.kind == after.kind && before.token == after.token
	switch before.kind {
	case completed:
		if !same {
			return "a record has changed"
		}
	case running:
		if before.token != t && (!same || before.left != after.left || before.hold != after.hold) {
			return fmt.Sprintf("%s of token %d has changed the claim of token %d", opNames[o], t, before.token)
		}
	case lapsed:
		if before.token != t && !same && (o != opTake || before.repl[t] != before.token+1) {
			return fmt.Sprintf("%s of token %d has changed the lapsed claim of token %d", opNames[o], t, before.token)
		}
	}
	if before.token == t && before.kind == running && before.hold && after.kind == running && !after.hold {
		return "a claim has lost its hold"
	}
	if o == opComplete && rep == lostReply && (before.kind == absent || before.token == t) {
		return "an answer was refused though nobody else has the key"
	}
	return ""
}
