package memstore_test

import (
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
)

// TestAnswersAreExact: what comes back is what was given, down to the difference
// between nothing and nil, and none of it is shared.
func TestAnswersAreExact(t *testing.T) {
	t.Parallel()
	full := func() *idempotency.Response {
		return &idempotency.Response{
			Status: http.StatusCreated,
			Header: http.Header{
				"One": {"1"}, "Many": {"1", "", "2"}, "Empty": {""}, "None": {}, "Nil": nil,
				"not-canonical": {"\x00\xff"}, "": {"no name"}, "Long": {strings.Repeat("long", 5000)},
			},
			Trailer:   http.Header{"One": {"trailer"}, "Nil": nil},
			Body:      []byte("\x00\xffbody\n"),
			BodyLost:  true,
			Reference: "ref",
			Time:      time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC),
		}
	}
	fields := reflect.ValueOf(*full())
	for i := range fields.NumField() {
		require.False(t, fields.Field(i).IsZero(), "%s is not tried", fields.Type().Field(i).Name)
	}
	tests := []struct {
		name string
		resp func() *idempotency.Response
	}{
		{"everything", full},
		{"nothing", func() *idempotency.Response { return &idempotency.Response{} }},
		{"empty", func() *idempotency.Response {
			return &idempotency.Response{Header: http.Header{}, Trailer: http.Header{}, Body: []byte{}}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := setup(t)
			given := tt.resp()
			s.complete(a, given)
			overwrite(given)
			for range 2 {
				got := s.lookup(a.Key).Response
				require.Equal(t, tt.resp(), got)
				overwrite(got)
			}
		})
	}
}

// TestListsGrowApart: a value added to one header of a replay does not become
// that of another.
func TestListsGrowApart(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.complete(a, &idempotency.Response{Header: http.Header{"A": {"1"}, "B": {"2"}, "C": {"3"}}})
	h := s.lookup(a.Key).Response.Header
	for _, name := range []string{"A", "B", "C"} {
		h.Add(name, "added")
	}
	require.Equal(t, http.Header{"A": {"1", "added"}, "B": {"2", "added"}, "C": {"3", "added"}}, h)
}

// overwrite changes all the memory that can be reached from resp.
func overwrite(resp *idempotency.Response) {
	for _, h := range []http.Header{resp.Header, resp.Trailer} {
		for name, values := range h {
			for i := range values {
				values[i] = "overwritten"
			}
			h[name] = append(values, "appended")
		}
		if h != nil {
			h["Added"] = []string{"added"}
		}
	}
	for i := range resp.Body {
		resp.Body[i] = 'X'
	}
}
