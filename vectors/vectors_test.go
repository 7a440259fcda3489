package vectors_test

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/memstore"
	"github.com/retrysafe/idempotency/vectors"
)

// serve starts a server and returns its address.
func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // of handlers that are told to panic
	server.Start()
	t.Cleanup(server.Close)
	return server.URL
}

func all(t *testing.T) []vectors.Vector {
	t.Helper()
	vs, err := vectors.All()
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(vs), 90)
	return vs
}

// This library's middleware holds every vector.
func TestOwn(t *testing.T) {
	t.Parallel()
	target := vectors.NewTarget()
	mw := idempotency.New(memstore.New(), target.User)
	runner := vectors.Runner{URL: serve(t, target.Handler(mw.Handler, mw.With(idempotency.WithRequiredKey()).Handler))}
	require.NoError(t, runner.Ping(t.Context()))
	for _, v := range all(t) {
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			require.NoError(t, runner.Run(t.Context(), v), v.Why)
		})
	}
}

// A server without the protocol is not measured.
func TestPing(t *testing.T) {
	t.Parallel()
	for name, h := range map[string]http.Handler{
		"not found":   http.NotFoundHandler(),
		"unreachable": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := "http://127.0.0.1:1"
			if h != nil {
				url = serve(t, h)
			}
			require.ErrorContains(t, (&vectors.Runner{URL: url}).Ping(t.Context()), "control endpoint runs")
		})
	}
}

// A file that is not well made is refused.
func TestParse(t *testing.T) {
	t.Parallel()
	const send, answered = `{"send":{"path":"/a"},"background":"x"}`, `{"send":{"path":"/a"},"expect":{}}`
	vector := func(steps string) string {
		return `[{"name":"a","level":"core","why":"w","steps":[` + steps + `]}]`
	}
	tests := []struct{ name, file, want string }{
		{"not JSON", `[`, "EOF"},
		{"unknown member", vector(`{"send":{"path":"/a"},"expect":{"statsu":[1]}}`), "statsu"},
		{"bad name", `[{"name":"A b","level":"core","why":"w","steps":[` + answered + `]}]`, "name"},
		{"bad level", `[{"name":"a","level":"x","why":"w","steps":[` + answered + `]}]`, "level"},
		{"no reason", `[{"name":"a","level":"core","steps":[` + answered + `]}]`, "reason"},
		{"no steps", vector(``), "steps"},
		{"does nothing", vector(`{}`), "one of them"},
		{"does two things", vector(`{"send":{"path":"/a"},"open":"/a","expect":{}}`), "one of them"},
		{"background of nothing", vector(`{"open":"/a","background":"x"}`), "background"},
		{"joins nothing", vector(`{"join":"x","expect":{}}`), "background"},
		{"expects nothing", vector(`{"send":{"path":"/a"}}`), "expects"},
		{"expects of nothing", vector(`{"open":"/a","expect":{}}`), "expects"},
		{"same as itself", vector(`{"send":{"path":"/a"},"expect":{"same_as":1}}`), "same_as"},
		{"same as nothing", vector(send + `,{"join":"x","expect":{"same_as":1}}`), "same_as"},
		{"bad pattern", vector(`{"send":{"path":"/a"},"expect":{"patterns":{"A":"("}}}`), "missing closing"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := vectors.Parse([]byte(tt.file))
			require.ErrorContains(t, err, tt.want)
		})
	}
	vs, err := vectors.Parse([]byte(vector(send + `,{"join":"x","expect":{}},` + answered)))
	require.NoError(t, err)
	require.Len(t, vs, 1)
}
