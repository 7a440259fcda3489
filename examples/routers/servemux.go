package routers

import (
	"net/http"

	"github.com/retrysafe/idempotency"
)

// Fiber is missing on purpose: it is built on fasthttp, where there is no
// http.ResponseWriter to record and a request's memory is reused as soon as its
// handler has returned. README.md says more.

// ServeMux is the API on net/http's own router. Nothing is needed but Handler.
func ServeMux(orders *Orders, mw *idempotency.Middleware) http.Handler {
	a := api{orders, (*http.Request).PathValue}
	mux := http.NewServeMux()

	// The lines that matter: the guard goes round each handler that changes
	// something, inside authentication.
	guard := func(h http.HandlerFunc) http.Handler { return Authenticate(mw.Handler(h)) }
	mux.Handle("POST /orders", guard(a.create))
	mux.Handle("POST /orders/{id}/pay", guard(a.pay))

	mux.Handle("POST /orders/{id}/track", guard(a.track))
	mux.Handle("POST /orders/{id}/refund", guard(a.refund))
	return Recover(Compress(mux))
}
