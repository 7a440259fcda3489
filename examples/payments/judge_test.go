package main

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestJudge(t *testing.T) {
	t.Parallel()
	paid := finalAnswer{http.StatusCreated, `{"status":"paid","charge":"ch_1","customer":"ann","order":"o1","amount":100}`}
	again := finalAnswer{http.StatusCreated, `{"status":"paid","charge":"ch_2","customer":"ann","order":"o1","amount":100}`}
	refused := finalAnswer{http.StatusPaymentRequired, `{"status":"declined","customer":"ann","order":"o1","amount":100}`}
	others := finalAnswer{http.StatusCreated, `{"status":"paid","charge":"ch_1","customer":"bob","order":"o2","amount":100}`}
	right := charge{Customer: "ann", payment: payment{Order: "o1", Amount: 100}}
	more := charge{Customer: "ann", payment: payment{Order: "o1", Amount: 101}}

	tests := []struct {
		name      string
		order     order
		charges   []charge
		brokenOff bool
		want      result
		what      string // the failure
	}{
		{name: "paid", order: order{answers: []finalAnswer{paid}}, charges: []charge{right}, want: result{Settled: 1, Wanted: 1}},
		{name: "same answer twice", order: order{answers: []finalAnswer{paid, paid}, before: 1}, charges: []charge{right}, want: result{Settled: 1, Wanted: 1, Asked: 1, Repeated: 1}},
		{name: "declined", order: order{fault: declined, answers: []finalAnswer{refused}}, want: result{Settled: 1, Declined: 1}},
		{name: "doubled", order: order{answers: []finalAnswer{paid}}, charges: []charge{right, right, right}, want: result{Settled: 1, Wanted: 1, Doubled: 2}, what: "charged 3 times instead of once"},
		{name: "another amount", order: order{answers: []finalAnswer{paid}}, charges: []charge{more}, want: result{Settled: 1, Wanted: 1}, what: "the wrong amount or customer was charged"},
		{name: "lost", order: order{answers: []finalAnswer{paid}}, want: result{Settled: 1, Wanted: 1, Lost: 1}, what: "never charged"},
		{name: "declined and charged", order: order{fault: declined, answers: []finalAnswer{refused}}, charges: []charge{right}, want: result{Settled: 1, Declined: 1, Doubled: 1}, what: "charged 1 times instead of never"},
		{name: "declined without a reason", order: order{answers: []finalAnswer{refused}}, want: result{Settled: 1, Wanted: 1, Lost: 1}, what: "never charged, the answer is not for this payment"},
		{name: "answers differ", order: order{answers: []finalAnswer{paid, again}, before: 1}, charges: []charge{right}, want: result{Settled: 1, Wanted: 1, Differing: 1, Asked: 1}, what: "two answers differ"},
		{name: "another customer's answer", order: order{answers: []finalAnswer{others}}, charges: []charge{right}, want: result{Settled: 1, Wanted: 1}, what: "the answer is not for this payment"},
		{name: "changed body taken", order: order{accepted: true, answers: []finalAnswer{paid}}, charges: []charge{right}, want: result{Settled: 1, Wanted: 1}, what: "another body under the same key was not refused"},
		{name: "no answer the second time", order: order{answers: []finalAnswer{paid}, before: 1}, charges: []charge{right}, want: result{Settled: 1, Wanted: 1, Asked: 1}, what: "it got no answer when it asked once more"},
		{name: "unknown, charged", order: order{unknown: true}, charges: []charge{right}, want: result{Settled: 1, Wanted: 1, Unknown: 1, UnknownMade: 1}},
		{name: "unknown, not charged", order: order{unknown: true}, want: result{Settled: 1, Unknown: 1}},
		{name: "unknown, doubled", order: order{unknown: true}, charges: []charge{right, right}, want: result{Settled: 1, Wanted: 1, Doubled: 1, Unknown: 1, UnknownMade: 1}, what: "charged 2 times instead of once"},
		{name: "never answered", charges: []charge{right}, want: result{Wanted: 1}, what: "the customer never learned the outcome"},
		{name: "broken off before the charge", brokenOff: true},
		{name: "broken off after the charge", brokenOff: true, charges: []charge{right}, want: result{Wanted: 1}},
		{name: "broken off and doubled", brokenOff: true, charges: []charge{right, right}, want: result{Wanted: 1, Doubled: 1}, what: "charged 2 times instead of once"},
		{name: "broken off in the question", brokenOff: true, order: order{answers: []finalAnswer{paid}, before: 1}, charges: []charge{right}, want: result{Settled: 1, Wanted: 1, Asked: 1}},
	}
	for i := range tests {
		tt := &tests[i]
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.order.payment = payment{Order: "o1", Amount: 100}
			tt.order.customer, tt.order.key = "ann", "k"
			var got result
			got.judge(&tt.order, tt.charges, tt.brokenOff)
			what := ""
			for _, f := range got.Failures {
				require.Equal(t, "k", f.Key)
				require.Contains(t, f.Story, "ann saw: nothing")
				what += f.What
			}
			require.Equal(t, tt.what, what)
			got.Failures = nil
			require.Equal(t, tt.want, got)
		})
	}
}
