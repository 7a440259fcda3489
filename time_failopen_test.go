package idempotency_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
)

const unguardedHeader = "Idempotency-Unguarded"

// failingOpen returns a process that runs its handler when the store fails.
func (b *bubbleWorld) failingOpen(opts ...idempotency.Option) *bubbleProcess {
	return b.process(append([]idempotency.Option{idempotency.WithFailOpen()}, opts...)...)
}

// The store cannot be reached, or is full: the handler runs, the answer says so
// and goes out before the store is tried once more.
func TestFailOpen(t *testing.T) {
	for _, c := range []struct {
		name     string
		claim    bubbleFault
		complete bubbleFault
		replay   bool // whether a later request finds the answer
	}{
		{name: "unreachable", claim: bubbleFault{refuse: errBubbleDown}, complete: bubbleFault{refuse: errBubbleDown}},
		{name: "back soon", claim: bubbleFault{refuse: errBubbleDown}, replay: true},
		{name: "reply lost", claim: bubbleFault{lose: errBubbleDown}, replay: true},
		{name: "hanging", claim: bubbleFault{hang: true}, complete: bubbleFault{hang: true}},
		{name: "full", claim: bubbleFault{refuse: idempotency.ErrStoreFull}, complete: bubbleFault{refuse: errBubbleDown}},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(b *bubbleWorld) {
				b.takes(5 * time.Minute)
				p, other := b.failingOpen(), b.process()
				p.fake.once("Claim", c.claim)
				p.fake.always("Complete", c.complete)
				a := p.send().created(1)
				require.Equal(b, "true", a.Header().Get(unguardedHeader))
				require.Equal(b, []string{"Claim", "Complete"}, p.fake.methods(), "no beat, and one try to record")
				complete := p.fake.log("Complete")[0]
				require.Less(b, a.wrote, complete.began)
				require.Equal(b, p.fake.log("Claim")[0].claim.Token, complete.claim.Token)
				e := p.event()
				require.Equal(b, idempotency.OutcomeUnguarded, e.Outcome)
				require.Equal(b, http.StatusCreated, e.Status)
				require.Error(b, e.Err)
				require.NoError(b, p.mw.Drain(b.Context()))
				b.until(time.Hour)
				require.Len(b, p.fake.log(), 2)

				if c.replay {
					a = other.send().replayed(1)
				} else {
					a = other.send().created(2)
				}
				require.Empty(b, a.Header().Get(unguardedHeader), "the mark is not recorded")
			})
		})
	}
}

// methods returns what has been called, in order.
func (s *bubbleStore) methods() []string {
	var names []string
	for _, c := range s.log() {
		names = append(names, c.method)
	}
	return names
}

// What the policy does not record is released, once; so is a panic.
func TestFailOpenReleases(t *testing.T) {
	for _, c := range []struct {
		name   string
		work   func(w http.ResponseWriter, r *http.Request)
		opts   []idempotency.Option
		settle string
	}{
		{name: "503", work: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }, settle: "Release"},
		{name: "discarded", work: func(w http.ResponseWriter, r *http.Request) {
			idempotency.FromContext(r.Context()).Discard()
			w.WriteHeader(201)
		}, settle: "Release"},
		{name: "short", work: func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "10") }, settle: "Release"},
		{name: "panic", work: func(http.ResponseWriter, *http.Request) { panic("boom") }, settle: "Release"},
		{name: "Goexit", work: func(http.ResponseWriter, *http.Request) { runtime.Goexit() }, settle: "Release"},
		{name: "recorded panic", work: func(http.ResponseWriter, *http.Request) { panic("boom") },
			opts: []idempotency.Option{idempotency.WithPolicy(idempotency.RecordAll)}, settle: "Complete"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(b *bubbleWorld) {
				b.work = func(w http.ResponseWriter, r *http.Request, _ int) { c.work(w, r) }
				p := b.failingOpen(c.opts...)
				p.fake.once("Claim", bubbleFault{lose: errBubbleDown})
				a := p.send()
				require.Equal(b, []string{"Claim", c.settle}, p.fake.methods())
				require.Equal(b, idempotency.OutcomeUnguarded, p.event().Outcome)
				switch c.name {
				case "panic", "recorded panic":
					require.Equal(b, "boom", a.panicked)
					require.Equal(b, idempotency.CodePanicked, p.event().Code)
				case "Goexit":
					require.True(b, a.goexit)
				default:
					require.Equal(b, "true", a.Header().Get(unguardedHeader))
				}
				require.Equal(b, c.settle == "Release", b.lookup() == nil)
				require.NoError(b, p.mw.Drain(b.Context()))
				require.Len(b, p.fake.log(), 2)
			})
		})
	}
}

// A handler cannot forge the mark, nor is it on an answer that was guarded.
func TestUnguardedCannotBeForged(t *testing.T) {
	bubble(t, func(b *bubbleWorld) {
		b.work = func(w http.ResponseWriter, _ *http.Request, run int) {
			w.Header().Set(unguardedHeader, "true")
			w.Header().Set("Idempotent-Replayed", "true")
			bubbleCreated(w, run)
		}
		p := b.failingOpen()
		a := p.send().created(1)
		require.NotContains(b, a.Header(), unguardedHeader)
		a = p.send().replayed(1)
		require.NotContains(b, a.Header(), unguardedHeader)
	})
}

// The mark goes out with the first byte of an answer that is sent as it is made.
func TestUnguardedAnswerThatFlushes(t *testing.T) {
	bubble(t, func(b *bubbleWorld) {
		b.work = func(w http.ResponseWriter, _ *http.Request, run int) {
			require.NoError(b, http.NewResponseController(w).Flush())
			bubbleCreated(w, run)
		}
		p := b.failingOpen()
		p.fake.once("Claim", bubbleFault{refuse: errBubbleDown})
		a := p.send()
		require.Equal(b, "true", a.Result().Header.Get(unguardedHeader))
	})
}

// The longest execution ends an unguarded handler's context, too.
func TestUnguardedMaxExecution(t *testing.T) {
	bubble(t, func(b *bubbleWorld) {
		ends := b.untilEnded()
		p := b.failingOpen(idempotency.WithMaxExecution(time.Minute))
		p.fake.always("Claim", bubbleFault{refuse: errBubbleDown})
		p.send().created(1)
		require.Equal(b, []bubbleEnd{{time.Minute, idempotency.ErrMaxExecution}}, *ends)
	})
}

// A store that is there but cannot be read is not one that cannot be reached: an
// answer may be in it.
func TestFailOpenStopsAtCorruptRecords(t *testing.T) {
	for _, opts := range [][]idempotency.Option{nil, {idempotency.WithFailOpen()}} {
		bubble(t, func(b *bubbleWorld) {
			p := b.process(opts...)
			p.fake.always("Claim", bubbleFault{refuse: errors.Join(errBubbleDown, idempotency.ErrCorrupt)})
			p.send().refused(http.StatusInternalServerError, idempotency.CodeRecordCorrupt)
			b.ran(0)
			require.NoError(b, p.mw.Drain(b.Context()))
			require.Len(b, p.fake.log(), 1, "the record is left as it is")
		})
	}
}

// Twins of an unguarded run do run, as the option says; the first to record wins.
func TestUnguardedTwins(t *testing.T) {
	bubble(t, func(b *bubbleWorld) {
		b.work = func(w http.ResponseWriter, _ *http.Request, run int) {
			time.Sleep(time.Duration(run) * second)
			bubbleCreated(w, run)
		}
		p := b.failingOpen()
		p.fake.always("Claim", bubbleFault{refuse: errBubbleDown})
		first := p.start()
		b.until(time.Millisecond)
		second := p.start()
		first.wait().created(1)
		second.wait().created(2)
		p.fake.always("Claim", bubbleFault{})
		p.send().replayed(1)
	})
}

// Abnormal ends are logged once, without the key.
func TestAbnormalEndsAreLogged(t *testing.T) {
	for _, c := range []struct {
		outcome string
		method  string
		fault   bubbleFault
		says    error
	}{
		{"unguarded", "Claim", bubbleFault{refuse: errBubbleDown}, errBubbleDown},
		{"unstored", "Complete", bubbleFault{refuse: idempotency.ErrClaimLost}, idempotency.ErrClaimLost},
		{"unstored", "Complete", bubbleFault{refuse: errBubbleDown}, errBubbleDown},
		{"refused", "Claim", bubbleFault{refuse: idempotency.ErrCorrupt}, idempotency.ErrCorrupt},
	} {
		t.Run(c.outcome, func(t *testing.T) {
			bubble(t, func(b *bubbleWorld) {
				var log bytes.Buffer
				p := b.failingOpen(idempotency.WithLogger(slog.New(slog.NewTextHandler(&log, nil))), idempotency.WithMaxExecution(time.Minute))
				p.begin(bubbleRequest(b.Context(), "quiet", "b1")).wait().created(1)
				p.begin(bubbleRequest(b.Context(), "quiet", "b1")).wait().replayed(1)
				p.begin(bubbleRequest(b.Context(), "quiet", "b2")).wait().refused(http.StatusConflict, idempotency.CodeKeyReused)
				require.Empty(b, log.String(), "what clients do is not worth a line")
				p.fake.always(c.method, c.fault)
				p.begin(bubbleRequest(b.Context(), "secret-key", "b1")).wait()
				require.NoError(b, p.mw.Drain(b.Context()))
				require.Contains(b, log.String(), "outcome="+c.outcome)
				require.Contains(b, log.String(), c.says.Error())
				require.NotContains(b, log.String(), "secret-key")
				require.Equal(b, 1, bytes.Count(log.Bytes(), []byte{'\n'}))
			})
		})
	}
}
