package main

import (
	"fmt"
	"net/http"
	"strings"
)

// result is what became of a crowd.
type result struct {
	Payments, Settled int
	Declined          int // of the settled ones: nothing is to be charged for them
	Attempts, Runs    int64
	Replays           int64
	InProgress        int64
	Mismatches        int64
	Refused           int64 // for other reasons
	Reconciled        int64

	Wanted, Made    int // charges
	Doubled, Lost   int // charges
	Unknown         int // payments whose outcome is unknown, as the service has told their customers
	UnknownMade     int // of those, the ones that are charged
	Differing       int // payments whose answers differ
	Asked, Repeated int // payments asked about once more, and those that got the same answer
	Failures        []failure
}

// failure is a promise that was not kept.
type failure struct {
	Key, What, Story string
}

// judge compares what the customers were told with what the bank has done.
//
// A charge is doubled if the bank has taken money for an order before, whatever
// the amount, or at all for one whose card was declined. A charge is lost if the
// customer was told that it is paid and the bank has taken nothing. An order
// whose customer was told that the outcome is unknown has lost nothing, charged
// or not: the customer knows to ask. An order that the play broke off is judged
// by what is known of it.
func judge(s *stage, brokenOff bool) *result {
	r := &result{
		Payments: len(s.orders), Made: len(s.ledger.list()),
		Attempts: s.counts.attempts.Load(), Runs: s.counts.runs.Load(),
		Replays: s.counts.replays.Load(), InProgress: s.counts.inProgress.Load(),
		Mismatches: s.counts.mismatches.Load(), Refused: s.counts.refused.Load(),
		Reconciled: s.counts.reconciled.Load(),
	}
	charges := s.ledger.byOrder()
	for _, o := range s.sorted {
		r.judge(o, charges[o.Order], brokenOff)
	}
	return r
}

func (r *result) judge(o *order, charges []charge, brokenOff bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var faults []string
	add := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }

	settled := len(o.answers) > 0
	wanted := 1
	switch {
	case o.fault == declined:
		wanted = 0
	case !settled: // unknown, broken off, or not begun: right is what the bank has done, once
		wanted = min(len(charges), 1)
	}
	r.Wanted += wanted
	if settled || o.unknown {
		r.Settled++
	}
	if o.fault == declined {
		r.Declined++
	}
	switch n := len(charges); {
	case n > wanted:
		r.Doubled += n - wanted
		add("charged %d times instead of %s", n, []string{"never", "once"}[wanted])
	case n < wanted:
		r.Lost++
		add("never charged")
	case n == 1 && (charges[0].Amount != o.Amount || charges[0].Customer != o.customer):
		add("the wrong amount or customer was charged")
	}
	switch {
	case !settled && o.unknown:
		r.Unknown++
		r.UnknownMade += min(len(charges), 1)
	case !settled && !brokenOff:
		add("the customer never learned the outcome")
	}
	if o.accepted {
		add("another body under the same key was not refused")
	}
	faults = append(faults, r.judgeAnswers(o)...)
	if o.before > 0 {
		r.Asked++
		switch {
		case len(o.answers) > o.before && o.answers[o.before] == o.answers[0]:
			r.Repeated++
		case len(o.answers) == o.before && !brokenOff:
			add("it got no answer when it asked once more")
		}
	}
	if len(faults) > 0 {
		r.Failures = append(r.Failures, failure{o.key, strings.Join(faults, ", "), o.tell(charges)})
	}
}

// tell is the story of an order.
func (o *order) tell(charges []charge) string {
	book := make([]string, 0, len(charges))
	for _, c := range charges {
		book = append(book, fmt.Sprintf("%s of %d cents", c.ID, c.Amount))
	}
	return fmt.Sprintf("planned: %s; %s saw: %s; the bank's book: %s", deck[o.fault].words,
		o.customer, orNothing(o.story), orNothing(book))
}

func orNothing(list []string) string {
	if len(list) == 0 {
		return "nothing"
	}
	return strings.Join(list, ", ")
}

func (r *result) judgeAnswers(o *order) (faults []string) {
	status := http.StatusCreated
	if o.fault == declined {
		status = http.StatusPaymentRequired
	}
	differ := false
	for _, a := range o.answers {
		differ = differ || a != o.answers[0]
	}
	if differ {
		r.Differing++
		faults = append(faults, "two answers differ")
	}
	for _, a := range o.answers {
		if a.status != status || !strings.Contains(a.body, `"`+o.Order+`"`) || !strings.Contains(a.body, `"`+o.customer+`"`) {
			faults = append(faults, "the answer is not for this payment")
			break
		}
	}
	return faults
}
