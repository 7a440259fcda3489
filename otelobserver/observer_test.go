package otelobserver_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/memstore"
	"github.com/retrysafe/idempotency/otelobserver"
)

// bench is an observer whose metrics can be read.
type bench struct {
	t        *testing.T
	observer idempotency.Observer
	reader   *sdkmetric.ManualReader
}

func newBench(t *testing.T) *bench {
	t.Helper()
	reader := sdkmetric.NewManualReader()
	observer, err := otelobserver.New(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)).Meter("test"))
	require.NoError(t, err)
	return &bench{t, observer, reader}
}

func (b *bench) metric(name string) metricdata.Metrics {
	b.t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(b.t, b.reader.Collect(context.Background(), &all))
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name == name {
				return m
			}
		}
	}
	return metricdata.Metrics{}
}

// requests returns the counter, by its attributes.
func (b *bench) requests() map[string]int64 {
	b.t.Helper()
	m := b.metric("idempotency.requests")
	require.Equal(b.t, "{request}", m.Unit)
	sum, ok := m.Data.(metricdata.Sum[int64])
	require.True(b.t, ok)
	require.True(b.t, sum.IsMonotonic)
	counts := make(map[string]int64)
	for _, p := range sum.DataPoints {
		counts[p.Attributes.Encoded(attribute.DefaultEncoder())] = p.Value
	}
	return counts
}

// histogram returns count and sum of a histogram, by its attributes.
func (b *bench) histogram(name string) map[string]string {
	b.t.Helper()
	found := make(map[string]string)
	m := b.metric(name)
	if m.Data == nil {
		return found
	}
	require.Equal(b.t, "s", m.Unit)
	h, ok := m.Data.(metricdata.Histogram[float64])
	require.True(b.t, ok)
	for _, p := range h.DataPoints {
		require.IsIncreasing(b.t, p.Bounds)
		require.NotEqual(b.t, p.Count, p.BucketCounts[len(p.Bounds)], "all above the highest bound")
		found[p.Attributes.Encoded(attribute.DefaultEncoder())] = fmt.Sprintf("%d: %g", p.Count, p.Sum)
	}
	return found
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	key := idempotency.NewKey("SECRETUSER", "POST /SECRET", "SECRETKEY")
	for _, e := range []idempotency.Event{
		{Outcome: idempotency.OutcomeExecuted, Status: 201, Handler: 2 * time.Second, Store: 3 * time.Millisecond},
		{Outcome: idempotency.OutcomeExecuted, Status: 201, Handler: time.Second, Store: time.Millisecond},
		{Outcome: idempotency.OutcomeReplayed, Status: 201, Store: time.Microsecond, Wait: 500 * time.Millisecond},
		{Outcome: idempotency.OutcomeRefused, Code: idempotency.CodeInProgress, Status: 409, Store: time.Millisecond},
		{Outcome: idempotency.OutcomeRefused, Code: idempotency.CodeKeyMissing, Status: 400},
	} {
		e.Key = key
		b.observer(t.Context(), e)
	}
	require.Equal(t, map[string]int64{
		"idempotency.outcome=executed":                                         2,
		"idempotency.outcome=replayed":                                         1,
		"idempotency.code=request_in_progress,idempotency.outcome=refused":     1,
		"idempotency.code=idempotency_key_missing,idempotency.outcome=refused": 1,
	}, b.requests())
	require.Equal(t, map[string]string{"idempotency.outcome=executed": "2: 3"}, b.histogram("idempotency.handler.duration"))
	require.Equal(t, map[string]string{
		"idempotency.outcome=executed": "2: 0.004",
		"idempotency.outcome=replayed": "1: 1e-06",
		"idempotency.outcome=refused":  "1: 0.001",
	}, b.histogram("idempotency.store.duration"))
	require.Equal(t, map[string]string{"idempotency.outcome=replayed": "1: 0.5"}, b.histogram("idempotency.wait.duration"))
}

func TestErrorType(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"claim_lost":     fmt.Errorf("redisstore: %w", idempotency.ErrClaimLost),
		"store_full":     idempotency.ErrStoreFull,
		"record_corrupt": errors.Join(errors.New("SECRET"), idempotency.ErrCorrupt),
		"max_execution":  idempotency.ErrMaxExecution,
		"timeout":        fmt.Errorf("SECRET: %w", context.DeadlineExceeded),
		"canceled":       context.Canceled,
		"*net.OpError":   fmt.Errorf("SECRET: %w", &net.OpError{Op: "dial"}),
		"_OTHER":         fmt.Errorf("SECRET: %w", errors.New("SECRET")),
	} {
		b := newBench(t)
		b.observer(t.Context(), idempotency.Event{Outcome: idempotency.OutcomeUnstored, Err: err})
		require.Equal(t, map[string]int64{"error.type=" + want + ",idempotency.outcome=unstored": 1}, b.requests())
	}
}

func TestSpan(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	exporter := tracetest.NewInMemoryExporter()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter)).Tracer("test")
	e := idempotency.Event{
		Outcome: idempotency.OutcomeRefused, Code: idempotency.CodeStoreUnavailable, Status: 503,
		Key: idempotency.NewKey("SECRETUSER", "POST /SECRET", "SECRETKEY"), Err: errors.New("SECRET"), Store: 2 * time.Second,
	}
	ctx, span := tracer.Start(t.Context(), "POST")
	b.observer(ctx, e)
	span.End()
	b.observer(ctx, e) // of a recording that went on behind the request
	b.observer(t.Context(), e)

	spans := exporter.GetSpans()
	require.Len(t, spans, 1)
	outcome := attribute.String("idempotency.outcome", "refused")
	code := attribute.String("idempotency.code", "store_unavailable")
	require.ElementsMatch(t, []attribute.KeyValue{outcome, code}, spans[0].Attributes)
	require.Len(t, spans[0].Events, 1)
	require.Equal(t, "idempotency.settled", spans[0].Events[0].Name)
	require.ElementsMatch(t, []attribute.KeyValue{
		outcome, code, attribute.String("error.type", "_OTHER"), attribute.Int("http.response.status_code", 503),
		attribute.Float64("idempotency.handler.duration", 0),
		attribute.Float64("idempotency.store.duration", 2),
		attribute.Float64("idempotency.wait.duration", 0),
	}, spans[0].Events[0].Attributes)
	require.NotContains(t, fmt.Sprint(spans), "SECRET")
	require.Equal(t, int64(3), b.requests()["error.type=_OTHER,idempotency.code=store_unavailable,idempotency.outcome=refused"])
}

// Through a Middleware: what is counted is what the clients saw, and the span is
// the request's.
func TestGuardedRequests(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	exporter := tracetest.NewInMemoryExporter()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter)).Tracer("test")
	mw := idempotency.New(memstore.New(), idempotency.SharedKeys, idempotency.WithObserver(b.observer))
	guarded := mw.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }))
	for _, body := range []string{"a", "a", "b", "a"} {
		ctx, span := tracer.Start(t.Context(), "POST /SECRET")
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/SECRET", strings.NewReader(body))
		r.Header.Set("Idempotency-Key", "SECRETKEY")
		guarded.ServeHTTP(httptest.NewRecorder(), r)
		span.End()
	}
	require.Equal(t, map[string]int64{
		"idempotency.outcome=executed": 1,
		"idempotency.outcome=replayed": 2,
		"idempotency.code=idempotency_key_reused_with_different_params,idempotency.outcome=refused": 1,
	}, b.requests())
	require.Len(t, b.histogram("idempotency.store.duration"), 3)
	require.Len(t, b.histogram("idempotency.handler.duration"), 1)
	var outcomes []string
	for _, s := range exporter.GetSpans() {
		outcomes = append(outcomes, s.Attributes[0].Value.AsString())
		require.NotContains(t, fmt.Sprint(s.Attributes, s.Events), "SECRET")
	}
	require.Equal(t, []string{"executed", "replayed", "refused", "replayed"}, outcomes)
}

func TestNewFails(t *testing.T) {
	t.Parallel()
	_, err := otelobserver.New(nil)
	require.EqualError(t, err, "otelobserver: the meter is nil")
	for _, name := range []string{"idempotency.requests", "idempotency.store.duration"} {
		observer, err := otelobserver.New(refusing{name: name})
		require.Nil(t, observer)
		require.ErrorIs(t, err, io.ErrShortBuffer)
		require.ErrorContains(t, err, "otelobserver: "+name)
	}
}

// refusing is a meter that refuses one instrument.
type refusing struct {
	noop.Meter
	name string
}

func (m refusing) Int64Counter(name string, _ ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	if name == m.name {
		return nil, io.ErrShortBuffer
	}
	return noop.Int64Counter{}, nil
}

func (m refusing) Float64Histogram(name string, _ ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	if name == m.name {
		return nil, io.ErrShortBuffer
	}
	return noop.Float64Histogram{}, nil
}
