package routers

import (
	"fmt"
	"io"
	"net/http"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"

	"github.com/retrysafe/idempotency"
)

// Echo is the API on echo.
//
// An echo handler does not always write its answer: it may return an error, which
// echo turns into one after all middleware has returned. echo.WrapMiddleware
// leaves that error to echo, so the guard would see an empty 200, record it, and
// send it to the client in place of the error. And it leaves the context with the
// guard's writer, so that middleware.Recover would answer a panic into nothing.
// EchoGuard does both right.
func Echo(orders *Orders, mw *idempotency.Middleware) http.Handler {
	e := echo.New()
	e.Logger.SetOutput(io.Discard) // of the panics that the tests cause
	e.Use(middleware.Recover(), middleware.Gzip())

	// The lines that matter: authentication first, then the guard, on each route.
	// Not on a group: a group with middleware runs it for unknown paths, too, and
	// makes a 404 of every 405, and the guard would record that.
	guarded := []echo.MiddlewareFunc{echoAuthenticate, EchoGuard(mw)}
	a := echoAPI{orders}
	e.POST("/orders", a.create, guarded...)

	e.POST("/orders/:id/pay", a.pay, guarded...)
	e.POST("/orders/:id/track", a.track, guarded...)
	e.POST("/orders/:id/refund", a.refund, guarded...)
	return e
}

// EchoGuard makes an echo middleware of mw. An error that the handler returns is
// rendered by echo's HTTPErrorHandler inside the guard, so that it is the answer
// that is recorded; layers outside find it in the Response and get no error.
// Middleware that renders errors itself has to come after EchoGuard.
//
// With a store whose answers cannot be flushed (idempotency.TxStore),
// Response.Flush panics; http.NewResponseController returns an error.
func EchoGuard(mw *idempotency.Middleware) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			request, response := c.Request(), c.Response()
			// Also after a panic: recovery must answer on the writer outside.
			defer func() { c.SetRequest(request); c.SetResponse(response) }()
			mw.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				c.SetRequest(r)
				c.SetResponse(echo.NewResponse(w, c.Echo()))
				if err := next(c); err != nil {
					c.Error(err)
				}
			})).ServeHTTP(response, request)
			return nil
		}
	}
}

func echoAuthenticate(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		user, ok := tokens(c.Request().Header.Get("Authorization"))
		if !ok {
			return echo.ErrUnauthorized
		}
		c.SetRequest(c.Request().WithContext(withUser(c.Request().Context(), user)))
		return next(c)
	}
}

type echoAPI struct{ orders *Orders }

func (a echoAPI) create(c echo.Context) error {
	var in struct{ Item string }
	if err := c.Bind(&in); err != nil {
		return err
	}
	ctx := c.Request().Context()
	trace := idempotency.FromContext(ctx).Derive("order")
	order, err := a.orders.Create(userOf(ctx), in.Item, trace)
	if err != nil {
		return echo.NewHTTPError(statusOf(err), err.Error())
	}
	c.Response().Header().Set("Location", "/orders/"+order.ID)
	return c.JSON(http.StatusCreated, order)
}

func (a echoAPI) pay(c echo.Context) error {
	order, err := a.orders.Pay(c.Param("id"))
	if err != nil {
		return echo.NewHTTPError(statusOf(err), err.Error())
	}
	return c.JSON(http.StatusOK, order)
}

func (a echoAPI) track(c echo.Context) error {
	c.Response().Header().Set("Content-Type", "text/event-stream")
	err := a.orders.Track(c.Request().Context(), c.Param("id"), func(event string) {
		_, _ = fmt.Fprintf(c.Response(), "data: %s\n\n", event)
		c.Response().Flush()
	})
	if err != nil {
		return echo.NewHTTPError(statusOf(err), err.Error())
	}
	return nil
}

func (a echoAPI) refund(c echo.Context) error {
	a.orders.Refund(c.Param("id"))
	return nil
}
