package idempotency_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/memstore"
)

// claimLooker is a store whose Claim looks at its context first.
type claimLooker struct {
	*memstore.Store
	look func(ctx context.Context)
}

func (s claimLooker) Claim(ctx context.Context, c idempotency.Claim, lease time.Duration) (*idempotency.Record, error) {
	s.look(ctx)
	return s.Store.Claim(context.WithoutCancel(ctx), c, lease)
}

// The context of a store's call has the request's values, and ends with the store
// timeout and with the call, but not with the client and not for its reason.
func TestContextOfStoreCalls(t *testing.T) {
	errGone := errors.New("the client has gone")
	ended := func(t *testing.T, ctx context.Context, want error) {
		require.ErrorIs(t, ctx.Err(), want)
		require.ErrorIs(t, context.Cause(ctx), want)
	}
	for name, look := range map[string]func(t *testing.T, ctx context.Context){
		"asked": func(t *testing.T, ctx context.Context) {
			time.Sleep(2*time.Second - time.Nanosecond)
			require.NoError(t, ctx.Err())
			time.Sleep(time.Nanosecond)
			ended(t, ctx, context.DeadlineExceeded)
		},
		"awaited": func(t *testing.T, ctx context.Context) {
			start := time.Now()
			<-ctx.Done()
			require.Equal(t, 2*time.Second, time.Since(start))
			ended(t, ctx, context.DeadlineExceeded)
		},
		"a child": func(t *testing.T, ctx context.Context) {
			child, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			<-child.Done()
			ended(t, child, context.DeadlineExceeded)
			require.NoError(t, ctx.Err())
		},
		"a grandchild": func(t *testing.T, ctx context.Context) {
			child, cancel := context.WithCancel(context.WithValue(ctx, bubbleUser{}, "other"))
			defer cancel()
			<-child.Done()
			ended(t, child, context.DeadlineExceeded)
			ended(t, ctx, context.DeadlineExceeded)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, hangUp := context.WithCancelCause(context.WithValue(t.Context(), bubbleUser{}, "alice"))
				var kept context.Context
				store := claimLooker{memstore.New(), func(ctx context.Context) {
					kept = ctx
					hangUp(errGone)
					require.Equal(t, "alice", ctx.Value(bubbleUser{}))
					require.NoError(t, ctx.Err())
					require.NoError(t, context.Cause(ctx))
					at, ok := ctx.Deadline()
					require.True(t, ok)
					require.Equal(t, 2*time.Second, time.Until(at))
					look(t, ctx)
					require.Equal(t, "alice", ctx.Value(bubbleUser{}))
				}}
				mw := idempotency.New(store, idempotency.SharedKeys, idempotency.WithStoreTimeout(2*time.Second))
				r := httptest.NewRequestWithContext(client, http.MethodPost, "/", nil)
				r.Header.Set("Idempotency-Key", "K")
				w := httptest.NewRecorder()
				mw.Handler(http.HandlerFunc(answerCreated)).ServeHTTP(w, r)
				require.Equal(t, http.StatusCreated, w.Code)
				<-kept.Done()
				require.Error(t, kept.Err(), "the call is over")
				require.NotErrorIs(t, context.Cause(kept), errGone)
			})
		})
	}
}

func answerCreated(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }
