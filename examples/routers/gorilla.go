package routers

import (
	"net/http"

	"github.com/gorilla/mux"

	"github.com/retrysafe/idempotency"
)

// Gorilla is the API on gorilla/mux. Its middleware is net/http's, and its path
// parameters are in the request's context, whose values the guard keeps: no
// adapter. Use runs for requests that match a route, so 404 and 405 never reach
// the guard; recovery and compression are to cover those, too, and go round the
// whole router.
func Gorilla(orders *Orders, mw *idempotency.Middleware) http.Handler {
	a := api{orders, func(r *http.Request, name string) string { return mux.Vars(r)[name] }}
	r := mux.NewRouter()

	// The lines that matter: authentication first, then the guard.
	r.Use(Authenticate, mw.Handler)
	r.HandleFunc("/orders", a.create).Methods(http.MethodPost)
	r.HandleFunc("/orders/{id}/pay", a.pay).Methods(http.MethodPost)

	r.HandleFunc("/orders/{id}/track", a.track).Methods(http.MethodPost)
	r.HandleFunc("/orders/{id}/refund", a.refund).Methods(http.MethodPost)
	return Recover(Compress(r))
}
