package docs_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/otelobserver"
)

// queries returns the PromQL of the metrics page, with a duration in the place of
// Grafana's.
func queries(t *testing.T) []string {
	found := readPage(t, "docs/metrics.md").of("promql")
	require.Len(t, found, 4)
	for i := range found {
		found[i] = strings.ReplaceAll(found[i], "$__rate_interval", "5m")
	}
	return found
}

// alerts returns the rules of the operations page.
func alerts(t *testing.T) string {
	found := readPage(t, "docs/operations.md").of("yaml")
	require.Len(t, found, 1)
	return found[0]
}

// Each metric and label of the queries is one that the observer makes, and each
// value an outcome or a code.
func TestQueriesNameWhatIsMeasured(t *testing.T) {
	t.Parallel()
	metrics, labels := measured(t)
	values := constants(t)
	text := strings.Join(append(queries(t), alerts(t)), "\n")

	names := regexp.MustCompile(`\bidempotency_\w+_(?:total|seconds\w*)`).FindAllString(text, -1)
	require.Greater(t, len(names), 15)
	for _, name := range names {
		require.Contains(t, metrics, name)
	}
	matchers := regexp.MustCompile(`(\w+)=~?"([^"]*)"`).FindAllStringSubmatch(text, -1)
	require.Greater(t, len(matchers), 15)
	for _, m := range matchers {
		require.Contains(t, labels, m[1])
		for value := range strings.SplitSeq(m[2], "|") {
			require.Contains(t, values[m[1]], value, "%s", m[1])
		}
	}
	for _, m := range regexp.MustCompile(`(?:by|ignoring) \(?([a-z_, ]+)\)`).FindAllStringSubmatch(text, -1) {
		for label := range strings.SplitSeq(m[1], ", ") {
			require.True(t, label == "le" || labels[label], label)
		}
	}
	// The page's table has what is measured, by both its names.
	table := readPage(t, "docs/metrics.md").text
	for name := range metrics {
		if !strings.Contains(name, "_seconds_") {
			require.Contains(t, table, "`"+name+"`")
		}
	}
}

// measured returns the metrics and labels of the observer, by the names that
// OpenTelemetry's exporter for Prometheus gives them.
func measured(t *testing.T) (metrics, labels map[string]bool) {
	reader := sdkmetric.NewManualReader()
	observer, err := otelobserver.New(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)).Meter("test"))
	require.NoError(t, err)
	observer(t.Context(), idempotency.Event{
		Outcome: idempotency.OutcomeRefused, Code: idempotency.CodeStoreUnavailable, Err: os.ErrClosed,
		Wait: 1, Handler: 1, Store: 1,
	})
	var all metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &all))
	metrics, labels = make(map[string]bool), make(map[string]bool)
	underscored := func(name string) string { return strings.ReplaceAll(name, ".", "_") }
	for _, m := range all.ScopeMetrics[0].Metrics {
		switch data := m.Data.(type) {
		case metricdata.Sum[int64]:
			require.True(t, data.IsMonotonic)
			metrics[underscored(m.Name)+"_total"] = true
			for _, l := range data.DataPoints[0].Attributes.ToSlice() {
				labels[underscored(string(l.Key))] = true
			}
		case metricdata.Histogram[float64]:
			require.Equal(t, "s", m.Unit)
			for _, end := range []string{"", "_bucket", "_count", "_sum"} {
				metrics[underscored(m.Name)+"_seconds"+end] = true
			}
		}
	}
	require.Len(t, metrics, 13)
	return metrics, labels
}

// constants returns the values of the outcomes and codes, from their source.
func constants(t *testing.T) map[string][]string {
	values := make(map[string][]string)
	for _, name := range []string{"observe.go", "problem.go"} {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, name), nil, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.ValueSpec); ok && len(spec.Values) == 1 {
				kind, _ := spec.Type.(*ast.Ident)
				literal, _ := spec.Values[0].(*ast.BasicLit)
				if kind != nil && literal != nil {
					value, err := strconv.Unquote(literal.Value)
					require.NoError(t, err)
					label := "idempotency_" + strings.ToLower(kind.Name)
					values[label] = append(values[label], value)
				}
			}
			return true
		})
	}
	require.Len(t, values["idempotency_outcome"], 7)
	require.Len(t, values["idempotency_code"], 13)
	return values
}

// A service of which much is known: what the page's queries say of it.
const busyService = `
      - series: idempotency_requests_total{idempotency_outcome="executed"}
        values: 0+60x60
      - series: idempotency_requests_total{idempotency_outcome="replayed"}
        values: 0+20x60
      - series: idempotency_requests_total{idempotency_outcome="refused",idempotency_code="request_in_progress"}
        values: 0+10x60
      - series: idempotency_requests_total{idempotency_outcome="refused",idempotency_code="store_unavailable",error_type="timeout"}
        values: 0+10x60
      - series: idempotency_store_duration_seconds_bucket{idempotency_outcome="executed",le="0.001"}
        values: 0+60x60
      - series: idempotency_store_duration_seconds_bucket{idempotency_outcome="executed",le="+Inf"}
        values: 0+60x60`

// TestQueriesAnswer has Prometheus evaluate the page's queries on that service.
func TestQueriesAnswer(t *testing.T) {
	t.Parallel()
	want := []string{
		`[{labels: "{}", value: 25000}]`,
		`[{labels: '{idempotency_code="request_in_progress"}', value: 10000}]`,
		`[{labels: '{idempotency_code="store_unavailable", idempotency_outcome="refused", error_type="timeout"}', value: 16667}]`,
		`[{labels: "{}", value: 99}]`,
	}
	test := "    input_series:" + busyService + "\n    promql_expr_test:\n"
	for i, query := range queries(t) {
		query = "round(100000 * (" + query + "))" // fractions are not exact
		test += fmt.Sprintf("      - eval_time: 30m\n        expr: %q\n        exp_samples: %s\n", query, want[i])
	}
	promtool(t, alerts(t), test)
}

// TestAlertsWake has each rule of the page fire on what it is for, the first
// event of its kind, and be silent in a healthy service.
func TestAlertsWake(t *testing.T) {
	t.Parallel()
	healthy := `
      - series: idempotency_requests_total{idempotency_outcome="executed"}
        values: 0+100x60
      - series: idempotency_requests_total{idempotency_outcome="replayed"}
        values: 0+5x60`
	events := map[string][2]string{ // severity, and a series
		"AnswerNotRecorded": {"page", `{idempotency_outcome="unstored"} _x20 1x40`},
		"RanUnguarded":      {"page", `{idempotency_outcome="unguarded",error_type="timeout"} _x20 1x40`},
		"RecordCorrupt":     {"page", `{idempotency_outcome="refused",idempotency_code="record_corrupt"} _x20 1x40`},
		"StoreUnavailable":  {"page", `{idempotency_outcome="refused",idempotency_code="store_unavailable"} 0+10x60`},
		"OutcomeUnknown":    {"ticket", `{idempotency_outcome="refused",idempotency_code="outcome_unknown"} _x20 1x40`},
		"NotCommitted":      {"ticket", `{idempotency_outcome="refused",idempotency_code="not_committed"} 0+1x60`},
		"KeyReused": {"ticket",
			`{idempotency_outcome="refused",idempotency_code="idempotency_key_reused_with_different_params"} 0+10x60`},
		"RetriesAboveTheUsual": {"ticket", `{idempotency_outcome="replayed",error_type="x"} 0+50x60`},
	}
	require.Equal(t, strings.Count(alerts(t), "- alert: "), len(events))
	for name, e := range events {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			labels, values, _ := strings.Cut(e[1], " ")
			test := "    input_series:" + healthy +
				"\n      - series: idempotency_requests_total" + labels + "\n        values: " + values + "\n    alert_rule_test:\n"
			for other := range events {
				test += "      - eval_time: " + map[bool]string{true: "59m", false: "30m"}[name == "RetriesAboveTheUsual"] +
					"\n        alertname: Idempotency" + other + "\n"
				if other == name {
					test += "        exp_alerts: [{exp_labels: {severity: " + e[0] + "}}]\n"
				}
			}
			promtool(t, alerts(t), test)
		})
	}
}

// promtool runs a unit test of rules.
func promtool(t *testing.T, rules, test string) {
	t.Helper()
	tool := program(t, "promtool")
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "rules.yml"), []byte(rules), 0o600))
	path := filepath.Join(dir, "test.yml")
	require.NoError(t, os.WriteFile(path, []byte("rule_files: [rules.yml]\nevaluation_interval: 1m\ntests:\n  - interval: 1m\n"+test), 0o600))
	execute(t, tool, "test", "rules", path)
}
