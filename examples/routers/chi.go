package routers

import (
	"net/http"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/retrysafe/idempotency"
)

// Chi is the API on chi. Its middleware is net/http's, and its path parameters
// are in the request's context, whose values the guard keeps: no adapter.
//
// Guard the routes (With, Group) and not the router: what is given to Use on the
// router runs before the route is found, so the 404 for a mistyped path would be
// recorded like an answer. chi's middleware.Timeout belongs outside the guard,
// where it does nothing to a guarded handler, whose context does not end with the
// request's; WithMaxExecution bounds that. middleware.Throttle belongs outside.
func Chi(orders *Orders, mw *idempotency.Middleware) http.Handler {
	a := api{orders, chi.URLParam}
	r := chi.NewRouter()
	r.Use(middleware.Recoverer, middleware.Compress(5))

	// The lines that matter: authentication first, then the guard.
	guarded := r.With(Authenticate, mw.Handler)
	guarded.Post("/orders", a.create)
	guarded.Post("/orders/{id}/pay", a.pay)

	guarded.Post("/orders/{id}/track", a.track)
	guarded.Post("/orders/{id}/refund", a.refund)
	return r
}
