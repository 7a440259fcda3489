package idempotency_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/memstore"
)

// Derived keys never change: other systems have records under them.
func TestDeriveVectors(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ user, target, key, purpose, want string }{
		{"alice", "/payments", "order-1", "charge", "5eb30d23-937d-8fe0-8e71-cf2f506591cf"},
		{"alice", "/payments", "order-1", "", "303bae7b-45af-803b-bbce-405fdde1324c"},
		{"bob", "/payments", "order-1", "charge", "2b010314-61da-8ef6-818c-2bd99a2c64fd"},
		{"alice", "/payments", "order-2", "charge", "c2dadc09-9d04-83cc-b0b7-386f957b6610"},
		{"alice", "/refunds", "order-1", "charge", "852480c5-2b98-83f1-aa59-a44d9c5ea6c9"},
		{"ü|", "/payments", "order-1", "ü", "d6f788c7-db7d-85d2-952c-33f049acf5ce"},
	} {
		mw := idempotency.New(memstore.New(), func(*http.Request) (string, error) { return tc.user, nil })
		var got []string
		h := mw.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			e := idempotency.FromContext(r.Context())
			got = append(got, e.Derive(tc.purpose))
			e.Discard()
		}))
		for range 2 {
			r := httptest.NewRequest(http.MethodPost, tc.target, nil)
			r.Header.Set("Idempotency-Key", tc.key)
			h.ServeHTTP(httptest.NewRecorder(), r)
		}
		require.Equal(t, []string{tc.want, tc.want}, got, "%q", tc)
	}
}

func TestNilExecution(t *testing.T) {
	t.Parallel()
	e := idempotency.FromContext(context.Background())
	require.Nil(t, e)
	e.Keep()
	e.Discard()
	e.SetTTL(time.Second)
	e.SetReference("r")
	require.Equal(t, idempotency.Key{}, e.Key())
	first, second := e.Derive("charge"), e.Derive("charge")
	require.NotEqual(t, first, second)
	for _, id := range []string{first, second} {
		require.NoError(t, idempotency.RequireUUID(id))
		require.Equal(t, "4", id[14:15])
		require.Contains(t, "89ab", id[19:20])
	}
}
