package routers_test

import (
	"errors"
	"io"
	"net/http"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/examples/routers"
	"github.com/retrysafe/idempotency/memstore"
)

func guard() *idempotency.Middleware {
	return idempotency.New(memstore.New(), idempotency.SharedKeys)
}

// A replay ends gin's chain, which goes on by itself; a status without a body,
// which gin writes last, is recorded; and a status may be changed until then.
func TestGinChain(t *testing.T) {
	t.Parallel()
	runs := 0
	var seen []any // by the handlers
	r := gin.New()
	r.Use(routers.GinGuard(guard()))
	r.POST("/status", func(c *gin.Context) {
		runs++
		c.Status(http.StatusAccepted)
		c.Status(http.StatusNoContent)
		seen = append(seen, c.Writer.Status(), c.Writer.Written())
	})
	r.POST("/error", func(c *gin.Context) {
		runs++
		c.AbortWithStatusJSON(http.StatusConflict, gin.H{"a": 1})
		seen = append(seen, c.Writer.Size(), c.Writer.Written())
	})
	s := &site{t: t, server: serve(t, r)}
	first := s.post("/status", "K", "")
	require.Equal(t, http.StatusNoContent, first.status)
	requireReplay(t, first, s.post("/status", "K", ""))
	first = s.post("/error", "K", "")
	require.Equal(t, http.StatusConflict, first.status)
	requireReplay(t, first, s.post("/error", "K", ""))
	require.Equal(t, 2, runs)
	require.Equal(t, []any{204, false, len(`{"a":1}`), true}, seen)
	// Given to the engine, the guard is run for unknown paths, too: their 404 is
	// kept, though without gin's body.
	require.Equal(t, http.StatusNotFound, s.post("/nowhere", "K", "").status)
}

// gin's c.Stream does not stop half-way, and what cannot be recorded is refused.
func TestGinWriter(t *testing.T) {
	t.Parallel()
	r := gin.New()
	var pusher http.Pusher
	var hijacked error
	r.POST("/", routers.GinGuard(guard()), func(c *gin.Context) {
		pusher = c.Writer.Pusher()
		_, _, hijacked = c.Writer.Hijack()
		left := []string{"c", "b", "a"}
		c.Stream(func(w io.Writer) bool {
			last := len(left) - 1
			_, _ = io.WriteString(w, left[last])
			left = left[:last]
			return last > 0
		})
		_, _ = c.Writer.WriteString("d")
	})
	s := &site{t: t, server: serve(t, r)}
	first := s.post("/", "K", "")
	require.Equal(t, "abcd", first.body)
	require.Nil(t, pusher)
	require.ErrorIs(t, hijacked, http.ErrNotSupported)
	again := s.post("/", "K", "")
	require.True(t, again.replayed())
	require.Equal(t, "abcd", again.body)
}

// Layers outside see what the client sees, and the guarded request's end.
func TestOutside(t *testing.T) {
	t.Parallel()
	t.Run("gin", func(t *testing.T) {
		t.Parallel()
		var seen []int
		r := gin.New()
		r.Use(func(c *gin.Context) { c.Next(); seen = append(seen, c.Writer.Status(), c.Writer.Size()) })
		r.POST("/", routers.GinGuard(guard()), func(c *gin.Context) { c.String(http.StatusTeapot, "tea") })
		s := &site{t: t, server: serve(t, r)}
		s.post("/", "K", "")
		s.post("/", "K", "")
		s.server.Close() // waits for the requests
		require.Equal(t, []int{418, 3, 418, 3}, seen)
	})
	t.Run("echo", func(t *testing.T) {
		t.Parallel()
		var seen []int
		e := echo.New()
		e.HTTPErrorHandler = func(err error, c echo.Context) { _ = c.String(http.StatusTeapot, err.Error()) }
		e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
			return func(c echo.Context) error {
				err := next(c)
				seen = append(seen, c.Response().Status, int(c.Response().Size))
				return err
			}
		})
		e.POST("/", func(echo.Context) error { return errors.New("tea") }, routers.EchoGuard(guard()))
		s := &site{t: t, server: serve(t, e)}
		first := s.post("/", "K", "")
		require.Equal(t, "tea", first.body)
		requireReplay(t, first, s.post("/", "K", ""))
		s.server.Close()
		require.Equal(t, []int{418, 3, 418, 3}, seen)
	})
}

// The reasons for the adapters: if one of these fails, the framework has changed
// and the adapter may be needless.
func TestWithoutAdapters(t *testing.T) {
	t.Parallel()
	t.Run("echo's WrapMiddleware records nothing for an error", func(t *testing.T) {
		t.Parallel()
		e := echo.New()
		e.POST("/", func(echo.Context) error { return echo.ErrTeapot }, echo.WrapMiddleware(guard().Handler))
		a := (&site{t: t, server: serve(t, e)}).post("/", "K", "")
		require.Equal(t, 200, a.status)
		require.Empty(t, a.body)
	})
	t.Run("echo's group runs middleware for unknown paths", func(t *testing.T) {
		t.Parallel()
		e := echo.New()
		e.Group("", routers.EchoGuard(guard())).POST("/", func(c echo.Context) error { return c.NoContent(204) })
		s := &site{t: t, server: serve(t, e)}
		first := s.post("/nowhere", "K", "")
		require.Equal(t, 404, first.status)
		requireReplay(t, first, s.post("/nowhere", "K", ""))
	})
	t.Run("gin's Recovery answers ErrAbortHandler", func(t *testing.T) {
		t.Parallel()
		r := gin.New()
		r.Use(gin.RecoveryWithWriter(io.Discard))
		r.POST("/", func(*gin.Context) { panic(http.ErrAbortHandler) })
		require.Equal(t, 200, (&site{t: t, server: serve(t, r)}).post("/", "K", "").status)
	})
}
