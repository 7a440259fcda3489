package routers

import (
	"bufio"
	"fmt"
	"net"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/retrysafe/idempotency"
)

// Hijack fails: a connection that was taken over could not be recorded.
func (w *ginWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return nil, nil, http.ErrNotSupported
}

func ginAuthenticate(c *gin.Context) {
	user, ok := tokens(c.GetHeader("Authorization"))
	if !ok {
		c.AbortWithStatus(http.StatusUnauthorized)
		return
	}
	c.Request = c.Request.WithContext(withUser(c.Request.Context(), user))
}

type ginAPI struct{ orders *Orders }

func (a ginAPI) create(c *gin.Context) {
	var in struct{ Item string }
	if err := c.ShouldBindJSON(&in); err != nil {
		c.String(http.StatusBadRequest, "no JSON")
		return
	}
	ctx := c.Request.Context() // c itself is no context that ends
	trace := idempotency.FromContext(ctx).Derive("order")
	order, err := a.orders.Create(userOf(ctx), in.Item, trace)
	if err != nil {
		c.String(statusOf(err), "%s", err.Error())
		return
	}
	c.Header("Location", "/orders/"+order.ID)
	c.JSON(http.StatusCreated, order)
}

func (a ginAPI) pay(c *gin.Context) {
	order, err := a.orders.Pay(c.Param("id"))
	if err != nil {
		c.String(statusOf(err), "%s", err.Error())
		return
	}
	c.JSON(http.StatusOK, order)
}

func (a ginAPI) track(c *gin.Context) {
	c.Header("Content-Type", "text/event-stream")
	err := a.orders.Track(c.Request.Context(), c.Param("id"), func(event string) {
		_, _ = fmt.Fprintf(c.Writer, "data: %s\n\n", event)
		c.Writer.Flush()
	})
	if err != nil {
		c.String(statusOf(err), "%s", err.Error())
	}
}

func (a ginAPI) refund(c *gin.Context) { a.orders.Refund(c.Param("id")) }
