package model_test

// The bounds of the model: room for the largest configuration.
const (
	maxProcs  = 3
	maxTokens = 6
	leaseLen  = 2 // ticks of a lease
)

// kind is what the store holds for the one key.
type kind uint8

const (
	absent kind = iota
	running
	lapsed
	completed
)

// op is a call of the store. Once sent it stays on the network for good: the
// store may carry it out at any later moment, any number of times, in any order
// with others, or never.
type op uint8

const (
	opClaim    op = iota
	opTake        // Claim with Replaces
	opHold        // Extend that first gives the claim its hold
	opExtend      // Extend, a heartbeat
	opComplete    // Complete
	opRelease     // Release
	opPut         // of a mutant: the second half of a claim in two steps
	opErase       // of a mutant: the first half of a completion in two steps
	ops
)

var opNames = [ops]string{"Claim", "Claim+Replaces", "Extend+Hold", "Extend", "Complete", "Release", "Put", "Erase"}

// pc is how far a process has come with its request.
type pc uint8

const (
	idle pc = iota
	reading
	claiming
	looking // a mutant's Claim, first half
	taking
	holding
	asking     // the Reconciler
	handling   // the handler has done nothing yet
	handled    // it has had its effect
	stopped    // its context ended before it had an effect
	stoppedEff // and after
	stoppedAsk // the Reconciler's context ended
	completing
	releasing
)

var pcNames = [...]string{
	"idle", "reading", "claiming", "looking", "taking over", "holding", "asking", "handling", "handled",
	"stopped", "stopped after the effect", "stopped asking", "completing", "releasing",
}

// reply is what a call has given, on its way to the caller.
type reply uint8

const (
	noReply reply = iota
	okReply
	lostReply // ErrClaimLost, or held by a running claim
	doneReply // held by a record
	lapsedReply
)

type proc struct {
	pc      pc
	try     uint8
	age     uint8 // ticks since the call that gave the lease was begun
	reply   reply // of the awaited call, on its way
	held    uint8 // the token that reply names
	beat    uint8 // 0: no heartbeat is in flight; else 1 + its age
	beatR   reply
	claimed bool // a mutant has claimed before it read the body
}

// state is everything: the store, the processes, the network, and what the
// properties have to remember.
type state struct {
	kind  kind
	token uint8
	left  uint8 // ticks of the lease
	hold  bool

	ps   [maxProcs]proc
	sent [maxTokens]uint8 // a set of ops
	repl [maxTokens]uint8 // what a take-over replaces: 1 + token

	live    uint8 // 1 + the token of the last run that nothing has freed since
	effects uint8
	excused bool // a lease has lapsed under a run, or a panic has freed one
}

// rules are the protocol: the zero value is the library's, every field a mutant.
type rules struct {
	procs, tries int
	atMostOnce   bool
	reconciler   bool
	mixed        bool // the last process sends another body under the same key

	releaseAnyone, completeAnyone, extendCreates, takesRunning, takesAny bool
	claimInTwo, completeInTwo, forgetsHold, refusesLate                  bool
	noHeartbeat, leaseFromReply, noStaleCheck, decidesEarly, runsAnyway  bool
	releasesUnrecorded, noHold, panicReleases, reconcilesFree            bool
	runsLost, oneToken, noFingerprint, takesTwice                        bool
}

func (r *rules) tokenOf(p int, try uint8) uint8 {
	if r.oneToken {
		return uint8(p)
	}
	return try*uint8(r.procs) + uint8(p)
}

// fingerprint of the request that a token stands for.
func (r *rules) fingerprint(token uint8) bool { return r.mixed && int(token)%r.procs == r.procs-1 }
