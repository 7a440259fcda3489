package routers_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
)

func (s *site) observe(_ context.Context, e idempotency.Event) { s.events <- e }

const tea = `{"item":"tea"}`

// A retried order is one order, and the answer is the first one to the byte.
func TestReplay(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *site) {
		first := s.post("/orders", "K", tea)
		require.Equal(t, http.StatusCreated, first.status)
		require.Equal(t, "/orders/1", first.header.Get("Location"))
		require.Regexp(t, `"trace":"[0-9a-f-]{14}8[0-9a-f-]{21}"`, first.body, "the handler has the Execution")
		requireReplay(t, first, s.post("/orders", "K", tea))
		requireReplay(t, first, s.post("/orders", `"K"`, tea))
		require.Equal(t, 1, s.orders.Calls())
		require.NotEqual(t, first.body, s.post("/orders", "", tea).body, "without a key it is another order")
		require.Equal(t, 2, s.orders.Calls())
	})
}

// Another body, user or path is not a retry.
func TestScope(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *site) {
		first := s.post("/orders", "K", tea)
		requireProblem(t, 409, idempotency.CodeKeyReused, s.post("/orders", "K", `{"item":"milk"}`))
		requireReplay(t, first, s.post("/orders", "K", tea))
		bob := s.post("/orders", "K", tea, "Authorization", "Bearer bob-1")
		require.False(t, bob.replayed())
		require.Contains(t, bob.body, `"user":"bob"`)
		requireProblem(t, 400, idempotency.CodeKeyInvalid, s.post("/orders", "a,b", tea))
		require.Equal(t, 2, s.orders.Calls())
	})
}

// The handler gets its path parameters, and two resources are two endpoints.
func TestPathParameters(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *site) {
		s.post("/orders", "A", tea)
		s.post("/orders", "B", tea)
		first, second := s.post("/orders/1/pay", "K", ""), s.post("/orders/2/pay", "K", "")
		require.Equal(t, 200, first.status)
		require.Contains(t, first.body, `"id":"1"`)
		require.Contains(t, second.body, `"id":"2"`)
		requireReplay(t, first, s.post("/orders/1/pay", "K", ""))
		requireReplay(t, second, s.post("/orders/2/pay", "K", ""))
		require.Contains(t, s.post("/orders/1/pay", "L", "").body, `"paid":2`)
	})
}

// An error of the handler is an answer, in whatever way the framework has it
// given, and is recorded as the client saw it.
func TestErrors(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *site) {
		first := s.post("/orders", "K", `{}`)
		require.Equal(t, 422, first.status)
		require.Contains(t, first.body, "item is missing")
		requireReplay(t, first, s.post("/orders", "K", `{}`))
		unknown := s.post("/orders/9/pay", "K", "")
		require.Equal(t, 404, unknown.status)
		require.Contains(t, unknown.body, "no such order")
		requireReplay(t, unknown, s.post("/orders/9/pay", "K", ""))
		broken := s.post("/orders", "L", `{`)
		require.Equal(t, 400, broken.status)
		requireReplay(t, broken, s.post("/orders", "L", `{`))
		require.Equal(t, 2, s.orders.Calls())
	})
}

// A stream arrives as it is written, also through compression; twins meanwhile
// are refused; afterwards it is replayed whole.
func TestStream(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *site) {
		s.post("/orders", "A", tea)
		s.post("/orders", "B", tea)
		for id, encoding := range map[string]string{"1": "identity", "2": "gzip"} {
			path, calls := "/orders/"+id+"/track", s.orders.Calls()
			resp := s.open("POST", path, "K", "", "Accept-Encoding", encoding)
			require.Equal(t, 200, resp.StatusCode)
			stream := bufio.NewReader(decoded(t, resp))
			require.Equal(t, "data: packed\n", line(t, stream), "before the handler has ended")
			twin := s.post(path, "K", "")
			requireProblem(t, 409, idempotency.CodeInProgress, twin)
			require.Equal(t, "2", twin.header.Get("Retry-After"))
			requireProblem(t, 409, idempotency.CodeKeyReused, s.post(path, "K", "other"))
			s.orders.Ship(id)
			rest, err := io.ReadAll(stream)
			require.NoError(t, err)
			require.Equal(t, "\ndata: shipped\n\n", string(rest))
			require.NoError(t, resp.Body.Close())
			again := s.post(path, "K", "")
			require.True(t, again.replayed())
			require.Equal(t, "data: packed\n\ndata: shipped\n\n", again.body)
			require.Equal(t, "text/event-stream", again.header.Get("Content-Type"))
			require.Equal(t, calls+1, s.orders.Calls())
		}
	})
}

// A client that hangs up does not end its order: the answer is recorded.
func TestHangUp(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *site) {
		s.post("/orders", "A", tea)
		require.Equal(t, idempotency.OutcomeExecuted, s.event().Outcome)
		resp := s.open("POST", "/orders/1/track", "K", "")
		require.Equal(t, "data: packed\n", line(t, bufio.NewReader(resp.Body)))
		require.NoError(t, resp.Body.Close())
		requireProblem(t, 409, idempotency.CodeInProgress, s.post("/orders/1/track", "K", ""))
		require.Equal(t, idempotency.CodeInProgress, s.event().Code)
		s.orders.Ship("1")
		require.Equal(t, idempotency.OutcomeExecuted, s.event().Outcome)
		again := s.post("/orders/1/track", "K", "")
		require.True(t, again.replayed())
		require.Equal(t, "data: packed\n\ndata: shipped\n\n", again.body)
	})
}

// A panic is answered by the framework's recovery, and the key is free again.
func TestPanic(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *site) {
		for i := range 2 {
			a := s.post("/orders/1/refund", "K", "")
			require.Equal(t, 500, a.status)
			require.False(t, a.replayed())
			require.NotContains(t, a.body, "no refund for order", "the panic's value stays inside")
			require.Equal(t, i+1, s.orders.Calls())
			e := s.event()
			require.Equal(t, idempotency.OutcomeReleased, e.Outcome)
			require.Equal(t, idempotency.CodePanicked, e.Code)
		}
	})
}

// What the router answers by itself is not the guard's business.
func TestNotFound(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *site) {
		for range 2 {
			a := s.post("/nowhere", "K", tea)
			require.Equal(t, 404, a.status)
			require.False(t, a.replayed())
			a = s.do("PATCH", "/orders", "K", tea)
			require.Equal(t, 405, a.status)
			require.False(t, a.replayed())
		}
		require.Zero(t, s.orders.Calls())
		require.Empty(t, s.events)
	})
}

// Authentication sees every request, the ones that would be replayed, too, and
// its 401 is never recorded.
func TestAuthentication(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *site) {
		a := s.post("/orders", "K", tea, "Authorization", "Bearer mallory")
		require.Equal(t, 401, a.status)
		require.Zero(t, s.orders.Calls())
		first := s.post("/orders", "K", tea)
		require.Equal(t, 201, first.status)
		a = s.post("/orders", "K", tea, "Authorization", "")
		require.Equal(t, 401, a.status)
		require.NotContains(t, a.body, "tea")
		requireReplay(t, first, s.post("/orders", "K", tea))
	})
}

// Each client gets the encoding that it asked for, whatever the first one got.
func TestCompression(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *site) {
		for _, order := range [][]string{{"gzip", "identity", "gzip"}, {"identity", "gzip", "identity"}} {
			key := order[0]
			var first answer
			for i, encoding := range order {
				a := s.post("/orders", key, tea, "Accept-Encoding", encoding)
				require.Equal(t, 201, a.status)
				require.Equal(t, encoding == "gzip", a.header.Get("Content-Encoding") == "gzip")
				require.Contains(t, a.body, `"item":"tea"`)
				if i == 0 {
					first = a
					continue
				}
				requireReplay(t, first, a)
			}
			requireProblem(t, 409, idempotency.CodeKeyReused, s.post("/orders", key, `{}`, "Accept-Encoding", "gzip"))
		}
		require.Equal(t, 2, s.orders.Calls())
	})
}
