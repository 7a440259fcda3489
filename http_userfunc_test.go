package idempotency_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/memstore"
)

// A function of the user's that returns its own error type, nil inside, is Go's
// oldest trap: the request is refused, not the process.
func TestUserFuncReturnsTypedNil(t *testing.T) {
	t.Parallel()
	user := func(*http.Request) (string, error) {
		var none *idempotency.Error
		return "", none
	}
	ran := false
	h := idempotency.New(memstore.New(), user).Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { ran = true }))
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	r.Header.Set("Idempotency-Key", "K")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	require.Equal(t, http.StatusUnauthorized, w.Code)
	require.False(t, ran)
}
