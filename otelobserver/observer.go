// Package otelobserver turns the events of an idempotency.Middleware into
// OpenTelemetry metrics and into attributes and an event on the request's span.
//
//	observer, err := otelobserver.New(otel.Meter("payments"))
//	...
//	mw := idempotency.New(store, currentUser, idempotency.WithObserver(observer))
//
// # Metrics
//
//   - idempotency.requests, a counter in {request}: guarded requests, by
//     idempotency.outcome, idempotency.code and error.type.
//   - idempotency.handler.duration, a histogram in s: the time spent in the
//     handler, of requests whose handler ran, by idempotency.outcome.
//   - idempotency.store.duration, a histogram in s: the time spent in the calls of
//     the store, all those of a request together, by idempotency.outcome.
//   - idempotency.wait.duration, a histogram in s: the time that twins spent
//     waiting, of requests that waited, by idempotency.outcome.
//
// idempotency.outcome is an [idempotency.Outcome] and idempotency.code an
// [idempotency.Code], left out where there is none. error.type follows the
// semantic conventions: "timeout", "canceled", "claim_lost", "store_full",
// "record_corrupt", "max_execution", or the Go type of the innermost cause, or
// "_OTHER" where that says nothing; it is left out where there is no error. All of
// them have few values. Keys, users, paths and the text of errors are in no
// attribute.
//
// # Spans
//
// The span that is active in the request's context, such as the one that otelhttp
// starts, gets the attributes idempotency.outcome and idempotency.code and an
// event "idempotency.settled" with these, error.type, http.response.status_code
// and the times. Where recording goes on behind the request it comes after the span
// has ended; the metrics then count it and the span does not tell of it. Run
// otelhttp outside the Middleware, or there is no span.
//
// # What is not measured
//
// There is no gauge of running claims. An Observer is told of a request once it
// has settled, so it cannot count those that have begun. A Store that counts its
// own calls cannot either: a claim that was left to lapse, or was lost, ends
// without a call, and the count would drift. Ask the store for what it holds, or
// use otelhttp's http.server.active_requests.
package otelobserver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/retrysafe/idempotency"
)

const (
	outcomeKey = attribute.Key("idempotency.outcome")
	codeKey    = attribute.Key("idempotency.code")
	errorKey   = attribute.Key("error.type")
	statusKey  = attribute.Key("http.response.status_code")
)

// New returns an Observer for [idempotency.WithObserver] that records metrics with
// meter. It makes the instruments, and returns an error if meter is nil or refuses
// one. The Observer may be shared by any number of Middlewares.
func New(meter metric.Meter) (idempotency.Observer, error) {
	if meter == nil {
		return nil, errors.New("otelobserver: the meter is nil")
	}
	requests, failed := meter.Int64Counter("idempotency.requests",
		metric.WithUnit("{request}"),
		metric.WithDescription("Requests that carried an idempotency key or lacked a required one."))
	o := &observer{requests: requests}
	if failed != nil {
		failed = fmt.Errorf("otelobserver: idempotency.requests: %w", failed)
	}
	for _, h := range []struct {
		to         *metric.Float64Histogram
		name, text string
		buckets    []float64
	}{
		{&o.handler, "idempotency.handler.duration", "Time spent in the handler.", requestBuckets()},
		{&o.store, "idempotency.store.duration", "Time spent in the calls of the store, all those of a request together.", storeBuckets()},
		{&o.wait, "idempotency.wait.duration", "Time spent waiting for a request with the same key.", requestBuckets()},
	} {
		var err error
		*h.to, err = meter.Float64Histogram(h.name, metric.WithUnit("s"),
			metric.WithDescription(h.text), metric.WithExplicitBucketBoundaries(h.buckets...))
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("otelobserver: %s: %w", h.name, err))
		}
	}
	if failed != nil {
		return nil, failed
	}
	return o.observe, nil
}

// requestBuckets are those that the semantic conventions give for
// http.server.request.duration, and two more for what may take minutes.
func requestBuckets() []float64 {
	return []float64{0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 30, 60}
}

// storeBuckets begin where a store in memory answers and end above the default
// timeout of a call, of which a request makes two or three.
func storeBuckets() []float64 {
	return []float64{0.00001, 0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 5}
}

type observer struct {
	requests             metric.Int64Counter
	handler, store, wait metric.Float64Histogram
}

func (o *observer) observe(ctx context.Context, e idempotency.Event) {
	outcome := outcomeKey.String(string(e.Outcome))
	attrs := append(make([]attribute.KeyValue, 0, 8), outcome)
	if e.Code != "" {
		attrs = append(attrs, codeKey.String(string(e.Code)))
	}
	told := attrs // what the span is given as attributes
	if e.Err != nil {
		attrs = append(attrs, errorKey.String(errorType(e.Err)))
	}
	o.requests.Add(ctx, 1, metric.WithAttributes(attrs...))

	by := metric.WithAttributeSet(attribute.NewSet(outcome))
	record(ctx, o.handler, e.Handler, by)
	record(ctx, o.store, e.Store, by)
	record(ctx, o.wait, e.Wait, by)

	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(told...)
	if e.Status != 0 {
		attrs = append(attrs, statusKey.Int(e.Status))
	}
	attrs = append(attrs,
		attribute.Float64("idempotency.handler.duration", e.Handler.Seconds()),
		attribute.Float64("idempotency.store.duration", e.Store.Seconds()),
		attribute.Float64("idempotency.wait.duration", e.Wait.Seconds()))
	span.AddEvent("idempotency.settled", trace.WithAttributes(attrs...))
}

// record leaves out what did not take place: a replay has no handler time, and a
// zero would hide the times of those that have one.
func record(ctx context.Context, h metric.Float64Histogram, d time.Duration, by metric.MeasurementOption) {
	if d > 0 {
		h.Record(ctx, d.Seconds(), by)
	}
}

// errorType returns a value of error.type: one of few, and nothing that a client
// or a user put into the error's text.
func errorType(err error) string {
	for _, known := range []struct {
		err  error
		name string
	}{
		{idempotency.ErrClaimLost, "claim_lost"},
		{idempotency.ErrStoreFull, "store_full"},
		{idempotency.ErrCorrupt, "record_corrupt"},
		{idempotency.ErrMaxExecution, "max_execution"},
		{context.DeadlineExceeded, "timeout"},
		{context.Canceled, "canceled"},
	} {
		if errors.Is(err, known.err) {
			return known.name
		}
	}
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	switch name := fmt.Sprintf("%T", err); name {
	case "*errors.errorString", "*errors.joinError", "*fmt.wrapErrors":
		return "_OTHER"
	default:
		return name
	}
}
