package idempotency_test

import (
	"crypto/sha256"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

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

// A store that gives a record which no handler can have made: a clear refusal, not
// net/http's panic on the status.
func TestRecordWithoutStatus(t *testing.T) {
	t.Parallel()
	for _, status := range []int{-1, 0, 99, 100, 199, 1000} {
		store := memstore.New()
		claim := idempotency.Claim{
			Key: idempotency.NewKey("shared", "POST /", "K"), Token: "another's", Fingerprint: sha256.Sum256(nil),
		}
		require.NoError(t, store.Complete(t.Context(), claim, &idempotency.Response{Status: status}, time.Hour))
		h := idempotency.New(store, idempotency.SharedKeys, idempotency.WithLogger(discardLogger())).
			Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the handler ran") }))
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header.Set("Idempotency-Key", "K")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		require.Equal(t, http.StatusInternalServerError, w.Code, status)
		require.Contains(t, w.Body.String(), `"record_corrupt"`, status)
	}
}
