package routers

import (
	"io"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/retrysafe/idempotency"
)

// Gin is the API on gin, whose handlers write to gin's own writer and run as a
// chain that goes on by itself; GinGuard does right by both. A plain http.Handler
// needs no adapter: r.POST("/orders", gin.WrapH(mw.Handler(h))).
//
// Compression goes round the engine. gin.Recovery belongs outside the guard; for
// http.ErrAbortHandler it does not let net/http cut the connection, but ends the
// request with an empty 200, so a handler under it that gives up must panic with
// another value.
func Gin(orders *Orders, mw *idempotency.Middleware) http.Handler {
	r := gin.New()
	r.HandleMethodNotAllowed = true
	r.Use(gin.RecoveryWithWriter(io.Discard)) // the tests cause panics

	// The lines that matter: authentication first, then the guard, on the group.
	guarded := r.Group("", ginAuthenticate, GinGuard(mw))
	a := ginAPI{orders}
	guarded.POST("/orders", a.create)

	guarded.POST("/orders/:id/pay", a.pay)
	guarded.POST("/orders/:id/track", a.track)
	guarded.POST("/orders/:id/refund", a.refund)
	return Compress(r)
}

// GinGuard makes a gin middleware of mw. While the handlers after it run, c has
// the guard's request and a writer that writes into the guard; afterwards, also
// after a panic, its own again, so that recovery can answer. If the guard answers
// by itself, the chain is aborted.
//
// What renders c.Errors has to come after GinGuard: what is written outside is
// not recorded.
func GinGuard(mw *idempotency.Middleware) gin.HandlerFunc {
	return func(c *gin.Context) {
		request, writer, ran := c.Request, c.Writer, false
		defer func() { c.Request, c.Writer = request, writer }()
		mw.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ran = true
			inner := &ginWriter{ResponseWriter: w, status: writer.Status(), size: -1}
			c.Request, c.Writer = r, inner
			c.Next()
			inner.WriteHeaderNow() // c.Status alone writes nothing; gin does this at the end, to its own writer
		})).ServeHTTP(writer, request)
		if !ran {
			c.Abort()
		}
	}
}

// ginWriter is a gin.ResponseWriter that writes into the guard, with the rules of
// gin's own, which cannot be made: a status waits for the first byte, and may be
// changed until then.
type ginWriter struct {
	http.ResponseWriter
	status int
	size   int // -1 before the status is written
}

var _ gin.ResponseWriter = (*ginWriter)(nil)

func (w *ginWriter) Status() int   { return w.status }
func (w *ginWriter) Size() int     { return w.size }
func (w *ginWriter) Written() bool { return w.size >= 0 }

func (w *ginWriter) WriteHeader(status int) {
	if status > 0 && !w.Written() {
		w.status = status
	}
}

func (w *ginWriter) WriteHeaderNow() {
	if !w.Written() {
		w.size = 0
		w.ResponseWriter.WriteHeader(w.status)
	}
}

func (w *ginWriter) Write(p []byte) (int, error) {
	w.WriteHeaderNow()
	n, err := w.ResponseWriter.Write(p)
	w.size += n
	return n, err
}

func (w *ginWriter) WriteString(s string) (int, error) {
	w.WriteHeaderNow()
	n, err := io.WriteString(w.ResponseWriter, s)
	w.size += n
	return n, err
}

// Flush sends what there is on its way, where the guard allows it.
func (w *ginWriter) Flush() {
	w.WriteHeaderNow()
	_ = http.NewResponseController(w.ResponseWriter).Flush()
}

// Unwrap is for http.ResponseController. The guard's writer lets nobody past it.
func (w *ginWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// CloseNotify never tells: a guarded handler runs to its end though its client
// has gone, and c.Stream must not stop half-way.
func (w *ginWriter) CloseNotify() <-chan bool { return nil }

// Pusher returns nil: a push could not be recorded.
func (w *ginWriter) Pusher() http.Pusher { return nil }
