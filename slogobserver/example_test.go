package slogobserver_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/memstore"
	"github.com/retrysafe/idempotency/slogobserver"
)

func ExampleNew() {
	// The times are left out here, so that the example prints the same every time.
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			switch a.Key {
			case slog.TimeKey, "handler", "store":
				return slog.Attr{}
			}
			return a
		},
	}))
	mw := idempotency.New(memstore.New(), idempotency.UserFromHeader("X-User"), idempotency.WithObserver(slogobserver.New(logger)))
	payments := mw.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
	}))
	for _, body := range []string{`{"amount":100}`, `{"amount":100}`, `{"amount":999}`} {
		r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader(body))
		r.Header.Set("X-User", "alice")
		r.Header.Set("Idempotency-Key", "8e03978e-40d5-43e8-bc93-6894a57f9324")
		payments.ServeHTTP(httptest.NewRecorder(), r)
	}
	// Output:
	// level=INFO msg="idempotency: request" outcome=executed endpoint="POST /payments" key_hash=5886f718e422b70d status=201
	// level=INFO msg="idempotency: request" outcome=replayed endpoint="POST /payments" key_hash=5886f718e422b70d status=201
	// level=WARN msg="idempotency: request" outcome=refused code=idempotency_key_reused_with_different_params endpoint="POST /payments" key_hash=5886f718e422b70d status=409
}
