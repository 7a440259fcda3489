package idempotency_test

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
)

// The handler's rows and the record become visible together.
func TestTxCommits(t *testing.T) {
	for _, c := range []struct {
		name   string
		status int
		opts   []idempotency.Option
		wish   func(*idempotency.Execution)
	}{
		{name: "201", status: 201},
		{name: "404", status: 404},
		{name: "422", status: 422},
		{name: "500 kept", status: 500, wish: (*idempotency.Execution).Keep},
		{name: "500 with RecordAll", status: 500, opts: []idempotency.Option{idempotency.WithPolicy(idempotency.RecordAll)}},
		{name: "500 with RecordFinal", status: 500, opts: []idempotency.Option{idempotency.WithPolicy(idempotency.RecordFinal)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(b *bubbleWorld) {
				b.inserts(func(w http.ResponseWriter, r *http.Request, _ int) {
					if c.wish != nil {
						c.wish(idempotency.FromContext(r.Context()))
					}
					w.WriteHeader(c.status)
				})
				db := new(bubbleDB)
				p := b.transactional(db, c.opts...)
				require.Equal(b, c.status, p.send().Code)
				b.holds(db, 1, 1)
				again := p.send()
				require.Equal(b, c.status, again.Code)
				require.Equal(b, "true", again.Header().Get("Idempotent-Replayed"))
				b.holds(db, 1, 1)
				b.ran(1)
				require.Equal(b, idempotency.OutcomeExecuted, p.all()[0].Outcome)
			})
		})
	}
}

// Whatever is not recorded has left nothing behind.
func TestTxRollsBack(t *testing.T) {
	execution := func(r *http.Request) *idempotency.Execution { return idempotency.FromContext(r.Context()) }
	status := func(code int) func(w http.ResponseWriter, r *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	recordAll := []idempotency.Option{idempotency.WithPolicy(idempotency.RecordAll)}
	for _, c := range []struct {
		name string
		work func(w http.ResponseWriter, r *http.Request)
		opts []idempotency.Option
	}{
		{name: "500", work: status(500)},
		{name: "503", work: status(503)},
		{name: "599", work: status(599)},
		{name: "401", work: status(401)},
		{name: "429", work: status(429)},
		{name: "201 discarded", work: func(w http.ResponseWriter, r *http.Request) { execution(r).Discard(); w.WriteHeader(201) }},
		{name: "panic", work: func(http.ResponseWriter, *http.Request) { panic("boom") }},
		{name: "panic after the answer", work: func(w http.ResponseWriter, _ *http.Request) { bubbleCreated(w, 1); panic("boom") }},
		{name: "abort", work: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
		{name: "Goexit", work: func(http.ResponseWriter, *http.Request) { runtime.Goexit() }},
		{name: "panic with RecordAll", work: func(http.ResponseWriter, *http.Request) { panic("boom") }, opts: recordAll},
		{name: "Goexit with RecordAll", work: func(http.ResponseWriter, *http.Request) { runtime.Goexit() }, opts: recordAll},
		{name: "panic after Keep", work: func(_ http.ResponseWriter, r *http.Request) { execution(r).Keep(); panic("boom") }, opts: recordAll},
		{name: "short answer", work: func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "10") }},
		{name: "short answer kept", work: func(w http.ResponseWriter, r *http.Request) {
			execution(r).Keep()
			w.Header().Set("Content-Length", "10")
		}},
		{name: "policy that panics", work: status(201), opts: []idempotency.Option{
			idempotency.WithPolicy(func(idempotency.Ending) bool { panic("policy") }),
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(b *bubbleWorld) {
				b.inserts(func(w http.ResponseWriter, r *http.Request, _ int) { c.work(w, r) })
				db := new(bubbleDB)
				p := b.transactional(db, c.opts...)
				a := p.send()
				b.holds(db, 0, 0)
				require.Equal(b, a.panicked != nil || a.goexit, a.wrote == 0)
				require.Equal(b, idempotency.OutcomeReleased, p.event().Outcome)
				b.inserts(func(w http.ResponseWriter, r *http.Request, run int) {
					execution(r).Keep()
					bubbleCreated(w, run)
				})
				p.send().created(2)
				b.holds(db, 1, 1)
			})
		})
	}
}

// A run that has not committed cannot be seen: its twins are told to wait, or
// wait, and read its answer when it is there.
func TestTxTwins(t *testing.T) {
	for _, wait := range []time.Duration{0, time.Minute} {
		bubble(t, func(b *bubbleWorld) {
			b.inserts(func(w http.ResponseWriter, _ *http.Request, run int) {
				time.Sleep(20 * second)
				bubbleCreated(w, run)
			})
			db := new(bubbleDB)
			p, other := b.transactional(db), b.transactional(db, idempotency.WithWait(wait))
			a := p.start()
			b.until(second)
			twin := other.start()
			different := p.begin(bubbleRequest(b.Context(), "K", "b2")).wait()
			different.busy() // whose request that is cannot be seen either
			if wait == 0 {
				twin.busy()
				require.Equal(b, second, twin.at)
			} else {
				twin.wait().replayed(1)
				require.LessOrEqual(b, twin.at, 20*second+second/2)
				require.Less(b, len(other.fake.log("Claim")), 250)
			}
			a.wait().created(1)
			other.send().replayed(1)
			p.begin(bubbleRequest(b.Context(), "K", "b2")).refused(http.StatusConflict, idempotency.CodeKeyReused)
			b.holds(db, 1, 1)
			b.ran(1)
		})
	}
}

// Any error of the commit may mean that the work is undone: the answer is
// withheld, and the next request finds the truth.
func TestTxNotCommitted(t *testing.T) {
	for _, c := range []struct {
		name      string
		fault     bubbleFault
		committed bool
	}{
		{"refused", bubbleFault{refuse: errBubbleDown}, false},
		{"claim lost", bubbleFault{refuse: idempotency.ErrClaimLost}, false},
		{"hanging", bubbleFault{hang: true}, false},
		{"reply lost", bubbleFault{lose: errBubbleDown}, true},
	} {
		for _, size := range []int{0, 100} { // of the answer; the second is over the limit
			t.Run(c.name, func(t *testing.T) {
				bubble(t, func(b *bubbleWorld) {
					b.inserts(func(w http.ResponseWriter, _ *http.Request, run int) {
						w.Header().Set("Set-Cookie", "session=1")
						w.Header().Set("Etag", "1")
						w.Header().Set(http.TrailerPrefix+"Sum", "1")
						bubbleCreated(w, run)
						_, _ = w.Write([]byte(strings.Repeat("x", size)))
					})
					db := new(bubbleDB)
					p := b.transactional(db, idempotency.WithMaxResponseBytes(50))
					p.fake.once("Complete", c.fault)
					a := p.send()
					problem := a.refused(http.StatusServiceUnavailable, idempotency.CodeNotCommitted)
					require.True(b, problem.Retryable)
					require.Equal(b, 1, problem.RetryAfter)
					for _, name := range []string{"Location", "Set-Cookie", "Etag", "Sum", http.TrailerPrefix + "Sum"} {
						require.NotContains(b, a.Header(), name)
					}
					e := p.event()
					require.Equal(b, idempotency.OutcomeRefused, e.Outcome)
					require.Equal(b, idempotency.CodeNotCommitted, e.Code)
					require.Error(b, e.Err)
					require.NoError(b, p.mw.Drain(b.Context()))
					require.Len(b, p.fake.log("Complete"), 1, "a commit is not tried again behind the client's back")

					if c.committed {
						b.holds(db, 1, 1)
						p.send()
						b.ran(1)
					} else {
						b.holds(db, 0, 0)
						require.Equal(b, http.StatusCreated, p.send().Code)
						b.ran(2)
					}
					b.holds(db, 1, 1)
				})
			})
		}
	}
}

// An answer cannot leave before the commit: the writer does not flush, and what
// is over the limit is held back, too.
func TestTxHoldsTheWholeAnswer(t *testing.T) {
	bubble(t, func(b *bubbleWorld) {
		b.inserts(func(w http.ResponseWriter, _ *http.Request, _ int) {
			_, flushes := w.(http.Flusher)
			require.False(b, flushes)
			_, flushes = w.(interface{ FlushError() error })
			require.False(b, flushes)
			_, unwraps := w.(interface{ Unwrap() http.ResponseWriter })
			require.False(b, unwraps)
			w.WriteHeader(http.StatusCreated)
			for range 100 {
				_, err := w.Write([]byte("0123456789"))
				require.NoError(b, err)
				require.ErrorIs(b, http.NewResponseController(w).Flush(), http.ErrNotSupported)
			}
		})
		db := new(bubbleDB)
		p := b.transactional(db, idempotency.WithMaxResponseBytes(99))
		a := p.send()
		require.Equal(b, http.StatusCreated, a.Code)
		require.Equal(b, strings.Repeat("0123456789", 100), a.Body.String())
		require.Greater(b, a.wrote, p.fake.log("Complete")[0].ended)
		e := p.event()
		require.Equal(b, idempotency.OutcomeExecuted, e.Outcome)
		require.Equal(b, idempotency.CodeNotReplayable, e.Code)
		require.True(b, db.records[bubbleKey()].Response.BodyLost)
		require.Empty(b, db.records[bubbleKey()].Response.Body)
		require.Equal(b, http.StatusCreated, p.send().refused(http.StatusConflict, idempotency.CodeNotReplayable).OriginalStatus)
		b.holds(db, 1, 1)
		b.ran(1)
	})
}

// A claim whose reply was lost has a connection: it is given back.
func TestTxClaimFails(t *testing.T) {
	bubble(t, func(b *bubbleWorld) {
		b.inserts(func(w http.ResponseWriter, _ *http.Request, run int) { bubbleCreated(w, run) })
		db := new(bubbleDB)
		p := b.transactional(db)
		p.fake.once("Claim", bubbleFault{lose: errBubbleDown})
		p.send().refused(http.StatusServiceUnavailable, idempotency.CodeStoreUnavailable)
		require.Equal(b, 1, db.inUse())
		require.NoError(b, p.mw.Drain(b.Context()))
		b.holds(db, 0, 0)
		p.send().created(1)
		b.holds(db, 1, 1)
	})
}

// A rollback that failed goes on behind the answer.
func TestTxReleaseFails(t *testing.T) {
	for _, panics := range []bool{false, true} {
		bubble(t, func(b *bubbleWorld) {
			b.inserts(func(w http.ResponseWriter, _ *http.Request, _ int) {
				if panics {
					panic("boom")
				}
				w.WriteHeader(http.StatusInternalServerError)
			})
			db := new(bubbleDB)
			p := b.transactional(db)
			p.fake.on("Release", func(nth int) bubbleFault {
				if nth < 5 {
					return bubbleFault{refuse: errors.New("rollback failed")}
				}
				return bubbleFault{}
			})
			require.Zero(b, p.send().at)
			require.NoError(b, p.mw.Drain(b.Context()))
			b.holds(db, 0, 0)
			require.Equal(b, idempotency.OutcomeReleased, p.event().Outcome)
		})
	}
}

// So does one that failed after a commit that has not reached the store.
func TestTxReleaseFailsAfterComplete(t *testing.T) {
	bubble(t, func(b *bubbleWorld) {
		b.inserts(func(w http.ResponseWriter, _ *http.Request, run int) { bubbleCreated(w, run) })
		db := new(bubbleDB)
		p := b.transactional(db)
		p.fake.once("Complete", bubbleFault{refuse: errBubbleDown})
		p.fake.once("Release", bubbleFault{refuse: errBubbleDown})
		a := p.send()
		a.refused(http.StatusServiceUnavailable, idempotency.CodeNotCommitted)
		require.Zero(b, a.at)
		require.NoError(b, p.mw.Drain(b.Context()))
		b.holds(db, 0, 0)
		p.send().created(2)
		b.holds(db, 1, 1)
	})
}

// The end of the longest execution, and the client's hanging up, leave the
// transaction alone as long as the handler runs.
func TestTxOutlivesItsContext(t *testing.T) {
	bubble(t, func(b *bubbleWorld) {
		var end bubbleEnd
		b.inserts(func(w http.ResponseWriter, r *http.Request, run int) {
			<-r.Context().Done()
			end = bubbleEnd{b.now(), context.Cause(r.Context())}
			require.ErrorIs(b, context.Cause(r.Context()), idempotency.ErrMaxExecution)
			time.Sleep(time.Hour)
			require.NoError(b, insert(r.Context(), "row"))
			bubbleCreated(w, run)
		})
		db := new(bubbleDB)
		p := b.transactional(db, idempotency.WithMaxExecution(time.Minute))
		ctx, hangUp := context.WithCancel(b.Context())
		a := p.begin(bubbleRequest(ctx, "K", "b1"))
		b.until(second)
		hangUp()
		b.until(30 * time.Minute)
		require.Equal(b, []string{"Claim"}, withoutBeats(p.fake.methods()))
		p.send().busy() // there is no lease to lapse
		a.wait().created(1)
		require.Equal(b, bubbleEnd{time.Minute, idempotency.ErrMaxExecution}, end)
		b.holds(db, 2, 1)
	})
}

func withoutBeats(methods []string) []string {
	var rest []string
	for _, m := range methods {
		if m != "Extend" {
			rest = append(rest, m)
		}
	}
	return rest
}
