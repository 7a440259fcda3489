package routers

import (
	"net/http"

	"github.com/retrysafe/idempotency"
)

// Router is one way to serve the API.
type Router struct {
	Name string
	New  func(*Orders, *idempotency.Middleware) http.Handler
}

// Routers returns all of them.
func Routers() []Router {
	return []Router{{"servemux", ServeMux}, {"chi", Chi}, {"gorilla", Gorilla}, {"echo", Echo}, {"gin", Gin}}
}
