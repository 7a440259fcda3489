package model_test

import (
	"strings"
	"testing"
)

// mutants are protocols that are wrong in one point. The explorer has to find
// each of them out, or it proves nothing.
var mutants = []struct {
	name  string
	rules rules // of two processes with one request each, where it does not say otherwise
	wants string
}{
	{"no token in Release", rules{releaseAnyone: true}, "has changed the claim"},
	{"Complete without comparing the token", rules{completeAnyone: true}, "has changed"},
	{"Extend creates or steals", rules{extendCreates: true}, "has changed the claim"},
	{"a claim in two steps", rules{claimInTwo: true}, ""},
	{"a completion in two steps", rules{completeInTwo: true}, ""},
	{"one token for all requests of a process", rules{tries: 2, oneToken: true}, ""},
	{"a late completion is refused", rules{refusesLate: true}, "refused though nobody else"},
	{"a lease without heartbeat, and nothing ends with it", rules{noHeartbeat: true}, "a run without a claim"},
	{"the lease counts from the reply", rules{leaseFromReply: true}, "a run without a claim"},
	{"a claim whose lease is over is used", rules{noStaleCheck: true}, "a run without a claim"},
	{"the decision is taken before the body is read", rules{decidesEarly: true}, "a request whose body broke off has left a claim"},
	{"a failed claim runs the handler", rules{runsAnyway: true}, "a run without a claim"},
	{"a failed completion frees the key", rules{releasesUnrecorded: true}, "the effect was had twice"},
	{"fingerprints are not compared", rules{mixed: true, noFingerprint: true}, "the answer to another one"},
	{"at most once without a hold", rules{atMostOnce: true, noHold: true}, "a second run"},
	{"at most once, and a panic frees the key", rules{atMostOnce: true, panicReleases: true}, "the effect was had twice"},
	{"at most once, and the own claim again takes the hold away", rules{atMostOnce: true, forgetsHold: true}, "lost its hold"},
	{"anybody takes a lapsed claim over", rules{atMostOnce: true, takesAny: true}, "has changed the lapsed claim"},
	{"a running claim is taken over", rules{atMostOnce: true, reconciler: true, takesRunning: true}, "has changed the claim"},
	{"the Reconciler's claim has no hold", rules{procs: 3, atMostOnce: true, reconciler: true, reconcilesFree: true}, ""},
	{"two take-overs with one token", rules{tries: 2, atMostOnce: true, reconciler: true, takesTwice: true}, "a second run"},
	{"the handler runs after a Reconciler whose claim is lost", rules{atMostOnce: true, reconciler: true, runsLost: true}, "a run without a claim"},
}

func TestMutants(t *testing.T) {
	t.Parallel()
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			if m.rules.procs > 2 && raced || m.rules.takesTwice && !*deep {
				return // caught without the race detector, and with -deep: they take long
			}
			m.rules.procs, m.rules.tries = max(m.rules.procs, 2), max(m.rules.tries, 1)
			res := m.rules.explore()
			t.Log(res)
			if res.broken == "" || !strings.Contains(res.broken, m.wants) {
				t.Errorf("not caught; want %q", m.wants)
			}
		})
	}
}
