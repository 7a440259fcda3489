package idempotency_test

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/memstore"
)

// The exported API, as it was promised: this file compiles or something that
// users depend on has changed.
var (
	_ func(idempotency.Store, idempotency.UserFunc, ...idempotency.Option) *idempotency.Middleware = idempotency.New
	_ func(*idempotency.Middleware, http.Handler) http.Handler                                     = (*idempotency.Middleware).Handler
	_ func(*idempotency.Middleware, ...idempotency.Option) *idempotency.Middleware                 = (*idempotency.Middleware).With
	_ func(*idempotency.Middleware, context.Context) error                                         = (*idempotency.Middleware).Drain

	_ idempotency.UserFunc                   = idempotency.SharedKeys
	_ func(r *http.Request) (string, error)  = idempotency.SharedKeys
	_ func(name string) idempotency.UserFunc = idempotency.UserFromHeader

	_ = []func(time.Duration) idempotency.Option{
		idempotency.WithTTL, idempotency.WithLease, idempotency.WithMaxExecution, idempotency.WithStoreTimeout,
		idempotency.WithWait, idempotency.WithRetryAfter,
	}
	_ = []func() idempotency.Option{idempotency.WithAtMostOnce, idempotency.WithRequiredKey, idempotency.WithFailOpen}
	_ = []func(string) idempotency.Option{idempotency.WithKeyHeader, idempotency.WithReplayHeader, idempotency.WithDocs}
	_ = []func(...string) idempotency.Option{idempotency.WithMethods, idempotency.WithUnrecordedHeaders}
	_ = []func(int64) idempotency.Option{idempotency.WithMaxRequestBytes, idempotency.WithMaxResponseBytes}

	_ func(idempotency.Reconciler) idempotency.Option                    = idempotency.WithReconciler
	_ func(check func(key string) error) idempotency.Option              = idempotency.WithKeyCheck
	_ func(key string) error                                             = idempotency.RequireUUID
	_ func(skip func(r *http.Request) bool) idempotency.Option           = idempotency.WithSkip
	_ func(endpoint func(r *http.Request) string) idempotency.Option     = idempotency.WithEndpoint
	_ func(idempotency.FingerprintFunc) idempotency.Option               = idempotency.WithFingerprint
	_ func(int) idempotency.Option                                       = idempotency.WithMismatchStatus
	_ func(idempotency.Policy) idempotency.Option                        = idempotency.WithPolicy
	_ func(idempotency.ErrorHandler) idempotency.Option                  = idempotency.WithErrorHandler
	_ func(idempotency.Observer) idempotency.Option                      = idempotency.WithObserver
	_ func(*slog.Logger) idempotency.Option                              = idempotency.WithLogger
	_ func(w http.ResponseWriter, r *http.Request, e *idempotency.Error) = idempotency.WriteProblem

	_ = []idempotency.Policy{idempotency.RecordFinal, idempotency.RecordAll, idempotency.RecordNon5xx}
	_ = idempotency.Ending{Status: 200, Panicked: false, Cause: error(nil)}

	_ [32]byte                    = idempotency.Fingerprint{}
	_ idempotency.FingerprintFunc = idempotency.FingerprintBody
	_ idempotency.FingerprintFunc = idempotency.FingerprintJSON

	_ func(user, endpoint, value string) idempotency.Key = idempotency.NewKey
	_ string                                             = idempotency.Key{User: "", Endpoint: "", Value: ""}.String()

	_ = idempotency.Claim{Key: idempotency.Key{}, Token: "", Fingerprint: idempotency.Fingerprint{}, Hold: time.Second, Replaces: ""}
	_ = idempotency.Record{Token: "", Fingerprint: idempotency.Fingerprint{}, Response: (*idempotency.Response)(nil), Lapsed: false, ExpiresIn: time.Second}
	_ = idempotency.Response{Status: 200, Header: http.Header{}, Trailer: http.Header{}, Body: []byte{}, BodyLost: false, Reference: "", Time: time.Time{}}

	_ idempotency.Store     = memstore.New()
	_ idempotency.Waiter    = memstore.New()
	_ idempotency.Inspector = memstore.New()
	_ interface {
		idempotency.Store
		Bind(ctx context.Context, c idempotency.Claim) context.Context
	} = idempotency.TxStore(nil)

	_ = []error{
		idempotency.ErrClaimLost, idempotency.ErrStoreFull, idempotency.ErrCorrupt, idempotency.ErrMaxExecution, idempotency.ErrNotExecuted,
	}

	_ func(context.Context) *idempotency.Execution                                       = idempotency.FromContext
	_ func(*idempotency.Execution) idempotency.Key                                       = (*idempotency.Execution).Key
	_ func(*idempotency.Execution, string) string                                        = (*idempotency.Execution).Derive
	_ func(*idempotency.Execution)                                                       = (*idempotency.Execution).Keep
	_ func(*idempotency.Execution)                                                       = (*idempotency.Execution).Discard
	_ func(*idempotency.Execution, time.Duration)                                        = (*idempotency.Execution).SetTTL
	_ func(*idempotency.Execution, string)                                               = (*idempotency.Execution).SetReference
	_ func(ctx context.Context, e *idempotency.Execution) (*idempotency.Response, error) = idempotency.Reconciler(nil)
	_ func(w http.ResponseWriter, r *http.Request, err *idempotency.Error)               = idempotency.ErrorHandler(nil)
	_ func(ctx context.Context, e idempotency.Event)                                     = idempotency.Observer(nil)
	_ func(e idempotency.Ending) bool                                                    = idempotency.Policy(nil)
	_ func(r *http.Request, body []byte) (idempotency.Fingerprint, error)                = idempotency.FingerprintFunc(nil)

	_ = map[idempotency.Code]string{
		idempotency.CodeKeyMissing: "idempotency_key_missing", idempotency.CodeKeyInvalid: "idempotency_key_invalid",
		idempotency.CodeKeyReused: "idempotency_key_reused_with_different_params", idempotency.CodeInProgress: "request_in_progress",
		idempotency.CodeUserUnknown: "user_unknown", idempotency.CodeBodyTooLarge: "request_body_too_large",
		idempotency.CodeBodyUnreadable: "request_body_unreadable", idempotency.CodeNotReplayable: "response_not_replayable",
		idempotency.CodeOutcomeUnknown: "outcome_unknown", idempotency.CodeNotCommitted: "not_committed",
		idempotency.CodePanicked: "handler_panicked", idempotency.CodeStoreUnavailable: "store_unavailable",
		idempotency.CodeRecordCorrupt: "record_corrupt",
	}
	_ = idempotency.Error{
		Code: "", Status: 0, Detail: "", RetryAfter: time.Second, OriginalStatus: 0, Docs: "", Header: http.Header{}, Err: error(nil),
	}
	_ error = (*idempotency.Error)(nil)

	_ = []idempotency.Outcome{
		idempotency.OutcomeExecuted, idempotency.OutcomeReplayed, idempotency.OutcomeReleased, idempotency.OutcomeUnstored,
		idempotency.OutcomeRefused, idempotency.OutcomeReconciled, idempotency.OutcomeUnguarded,
	}
	_ = idempotency.Event{
		Outcome: "", Code: "", Key: idempotency.Key{}, Status: 0, Err: error(nil), Wait: time.Second, Handler: time.Second, Store: time.Second,
	}
)
