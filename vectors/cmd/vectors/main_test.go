package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency/vectors"
)

// The command prints what held and says by its exit status whether all did.
func TestRun(t *testing.T) {
	t.Parallel()
	target := vectors.NewTarget()
	none := func(h http.Handler) http.Handler { return h }
	unguarded := httptest.NewServer(target.Handler(none, none))
	defer unguarded.Close()
	empty := httptest.NewServer(http.NotFoundHandler())
	defer empty.Close()
	tests := []struct {
		name      string
		args      []string
		code      int
		out, errs string
	}{
		{"this library", []string{"-run", "^replay$"}, 0, "1 of 1 hold", ""},
		{"a level", []string{"-level", "core", "-run", "^(replay|replay-marked|mismatch)$"}, 0, "2 of 2 hold", ""},
		{"unguarded", []string{"-url", unguarded.URL + "/", "-run", "^(replay|key-absent)$"}, 1, "1 of 2 hold", ""},
		{"no protocol", []string{"-url", empty.URL}, 2, "", "does not offer the test protocol"},
		{"no such vector", []string{"-run", "^nothing$"}, 2, "", "no vector"},
		{"no such level", []string{"-level", "high"}, 2, "", "no vector"},
		{"no pattern", []string{"-run", "("}, 2, "", "missing closing"},
		{"no such flag", []string{"-x"}, 2, "", "-x"},
		{"too much", []string{"x"}, 2, "", "x"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out, errs strings.Builder
			require.Equal(t, tt.code, run(t.Context(), tt.args, &out, &errs), "%s%s", &out, &errs)
			require.Contains(t, out.String(), tt.out)
			require.Contains(t, errs.String(), tt.errs)
		})
	}
}

// What failed is said with its reason.
func TestRunSaysWhy(t *testing.T) {
	t.Parallel()
	target := vectors.NewTarget()
	none := func(h http.Handler) http.Handler { return h }
	server := httptest.NewServer(target.Handler(none, none))
	defer server.Close()
	var out, errs strings.Builder
	require.Equal(t, 1, run(t.Context(), []string{"-url", server.URL, "-run", "^replay$"}, &out, &errs))
	require.Regexp(t, `replay +core +FAILS`, out.String())
	require.Contains(t, out.String(), "step 2: Vector-Run is")
}
