package routers_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/gorilla/mux"
	"github.com/labstack/echo/v4"
	echomiddleware "github.com/labstack/echo/v4/middleware"
	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/examples/routers"
	"github.com/retrysafe/idempotency/memstore"
	"github.com/retrysafe/idempotency/vectors"
)

// How each framework serves the test handler, guarded, with its own recovery
// round it.
func mounts() map[string]func(target *vectors.Target, usual, required *idempotency.Middleware) http.Handler {
	const usualPath, requiredPath, controlPath = "/vectors/default/", "/vectors/required/", "/vectors/control/"
	return map[string]func(target *vectors.Target, usual, required *idempotency.Middleware) http.Handler{
		"servemux": func(target *vectors.Target, usual, required *idempotency.Middleware) http.Handler {
			return routers.Recover(target.Handler(usual.Handler, required.Handler))
		},
		"chi": func(target *vectors.Target, usual, required *idempotency.Middleware) http.Handler {
			r := chi.NewRouter()
			r.Use(routers.Recover, middleware.Compress(5))
			r.With(usual.Handler).Handle(usualPath+"*", target)
			r.With(required.Handler).Handle(requiredPath+"*", target)
			r.Handle(controlPath+"*", target.Control())
			return r
		},
		"gorilla": func(target *vectors.Target, usual, required *idempotency.Middleware) http.Handler {
			r := mux.NewRouter()
			r.PathPrefix(usualPath).Handler(usual.Handler(target))
			r.PathPrefix(requiredPath).Handler(required.Handler(target))
			r.PathPrefix(controlPath).Handler(target.Control())
			return routers.Recover(r)
		},
		"echo": func(target *vectors.Target, usual, required *idempotency.Middleware) http.Handler {
			e := echo.New()
			e.Logger.SetOutput(io.Discard)
			e.Use(echomiddleware.Recover(), echomiddleware.Gzip())
			handler := func(c echo.Context) error {
				target.ServeHTTP(c.Response(), c.Request())
				return nil
			}
			e.Any(usualPath+"*", handler, routers.EchoGuard(usual))
			e.Any(requiredPath+"*", handler, routers.EchoGuard(required))
			e.Any(controlPath+"*", echo.WrapHandler(target.Control()))
			return e
		},
		"gin": func(target *vectors.Target, usual, required *idempotency.Middleware) http.Handler {
			r := gin.New()
			r.Use(gin.RecoveryWithWriter(io.Discard))
			handler := func(c *gin.Context) { target.ServeHTTP(c.Writer, c.Request) }
			r.Any(usualPath+"*rest", routers.GinGuard(usual), handler)
			r.Any(requiredPath+"*rest", routers.GinGuard(required), handler)
			r.Any(controlPath+"*rest", gin.WrapH(target.Control()))
			return r
		},
	}
}

// Every vector holds through every router.
func TestVectors(t *testing.T) {
	t.Parallel()
	all, err := vectors.All()
	require.NoError(t, err)
	require.NotEmpty(t, all)
	mounted := mounts()
	require.Len(t, mounted, len(routers.Routers()))
	for name, mount := range mounted {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target := vectors.NewTarget()
			mw := idempotency.New(memstore.New(), target.User)
			runner := vectors.Runner{URL: serve(t, mount(target, mw, mw.With(idempotency.WithRequiredKey()))).URL}
			require.NoError(t, runner.Ping(t.Context()))
			for _, v := range all {
				t.Run(v.Name, func(t *testing.T) {
					t.Parallel()
					require.NoError(t, runner.Run(t.Context(), v), v.Why)
				})
			}
		})
	}
}
