package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/client"
	"github.com/retrysafe/idempotency/memstore"
)

// cuttingProxy passes bytes on and cuts each connection after a random number
// of them, in either direction.
type cuttingProxy struct {
	net.Listener
	to      string
	streams int64 // that share a connection, which lives as much longer
	cuts    atomic.Int64
}

func newCuttingProxy(t *testing.T, to string, seed uint64, streams int64) *cuttingProxy {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &cuttingProxy{Listener: l, to: to, streams: streams}
	ending, end := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() {
		for n := uint64(0); ; n++ {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { p.serve(ending, conn, n == 0, rand.New(rand.NewPCG(seed, n))) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		// A Transport may have dialled once more than it needed, and keep that
		// connection even after its idle ones were closed.
		end()
		serving.Wait()
	})
	return p
}

// serve passes on what comes by one connection, until it is cut or ctx ends.
func (p *cuttingProxy) serve(ctx context.Context, near net.Conn, first bool, random *rand.Rand) {
	far, err := new(net.Dialer).DialContext(ctx, "tcp", p.to)
	if err != nil {
		near.Close()
		return
	}
	cut := func() {
		// Without linger the kernel throws away what is on its way.
		_ = near.(*net.TCPConn).SetLinger(0)
		_ = far.(*net.TCPConn).SetLinger(0)
		near.Close()
		far.Close()
	}
	defer context.AfterFunc(ctx, cut)()
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
		// Half of the cuts come within the first requests, and half of them right
		// after a write, when the server may be at work.
		limit := random.Int64N(1500 * p.streams)
		if random.IntN(2) == 0 {
			limit = random.Int64N(200_000 * p.streams)
		}
		if first {
			limit = 200 // so that there is a cut whatever the luck
		}
		exact := random.IntN(2) == 0
		both.Go(func() {
			if p.pass(way[1], way[0], limit, exact) {
				p.cuts.Add(1)
			}
			cut()
		})
	}
	both.Wait()
}

// pass copies until limit is reached, to the byte or with the whole write in
// which it is, and reports whether it was.
func (p *cuttingProxy) pass(to io.Writer, from io.Reader, limit int64, exact bool) bool {
	buf := make([]byte, 16<<10)
	for limit > 0 {
		n, err := from.Read(buf)
		if exact {
			n = int(min(int64(n), limit))
		}
		if _, werr := to.Write(buf[:n]); err != nil || werr != nil {
			return false
		}
		limit -= int64(n)
	}
	return true
}

// ledger is a handler that notes what it did for each operation.
type ledger struct {
	mu   sync.Mutex
	done map[string][]string // operation: the answers it was carried out with
}

func (l *ledger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(err)
	}
	operation := string(body)
	answer := fmt.Sprintf("%s done, receipt %d", operation, rand.Uint64())
	if strings.HasSuffix(operation, "77") {
		answer += strings.Repeat(".", 80<<10) // too long to be read ahead
	}
	l.mu.Lock()
	l.done[operation] = append(l.done[operation], answer)
	l.mu.Unlock()
	if strings.HasSuffix(operation, "3") {
		<-time.After(20 * time.Millisecond) // long enough to be met by a retry
	}
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, answer)
}

// pay carries one operation out as a careful caller does: what is unknown, and an
// answer that breaks off, is resumed under the same key.
func pay(ctx context.Context, c *http.Client, url, operation string) (string, error) {
	for range 1000 {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, stream(operation))
		if err != nil {
			return "", err
		}
		resp, err := c.Do(req)
		var u *client.UnknownOutcomeError
		if errors.As(err, &u) {
			ctx = u.Resume(ctx)
			continue
		}
		if err != nil {
			return "", err
		}
		answer, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		key := client.Info(resp).Key
		switch {
		case resp.StatusCode == http.StatusConflict && client.Info(resp).Code == idempotency.CodeInProgress:
		case resp.StatusCode != http.StatusCreated:
			return "", fmt.Errorf("status %s: %s", resp.Status, answer)
		case err == nil:
			return string(answer), nil
		}
		ctx = client.WithKey(ctx, key)
	}
	return "", errors.New("a thousand times in vain")
}

// The whole chain: client, a network that cuts connections at random,
// middleware, handler. Every operation is carried out once, and every caller gets
// the answer to its own.
func TestWholeChain(t *testing.T) {
	t.Parallel()
	for name, operations := range map[string]int{"HTTP/1.1": 5000, "HTTP/2": 500} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := &ledger{done: map[string][]string{}}
			mw := idempotency.New(memstore.New(), idempotency.SharedKeys,
				idempotency.WithRequiredKey(), idempotency.WithLogger(slog.New(slog.DiscardHandler)))
			srv := httptest.NewUnstartedServer(mw.Handler(l))
			srv.Config.ErrorLog = quiet()
			base := ownBase(t)
			base.MaxIdleConnsPerHost = 32
			streams := int64(1)
			if name == "HTTP/2" {
				srv.Config.Protocols = new(http.Protocols)
				srv.Config.Protocols.SetUnencryptedHTTP2(true)
				base.Protocols = srv.Config.Protocols
				streams = 2
			}
			srv.Start()
			t.Cleanup(srv.Close)
			proxy := newCuttingProxy(t, srv.Listener.Addr().String(), 20260801, streams)

			var attempts, replays, busy atomic.Int64
			rt := fast(base)
			rt.OnAttempt = func(a client.Attempt) {
				attempts.Add(1)
				if a.Replayed {
					replays.Add(1)
				}
				if a.Code == idempotency.CodeInProgress {
					busy.Add(1)
				}
			}
			answers := payAll(t, &http.Client{Transport: rt}, "http://"+proxy.Addr().String()+"/payments", operations)

			t.Logf("%d operations, %d attempts, %d cuts, %d replays, %d times busy", operations, attempts.Load(), proxy.cuts.Load(), replays.Load(), busy.Load())
			require.Len(t, l.done, operations)
			for operation, answer := range answers {
				require.Equal(t, []string{answer}, l.done[operation])
			}
			require.Positive(t, proxy.cuts.Load(), "the network was bad")
			if name == "HTTP/1.1" {
				require.Positive(t, replays.Load()) // some 200
			}
		})
	}
}

// payAll carries n operations out, 32 at a time, and returns their answers.
func payAll(t *testing.T, c *http.Client, url string, n int) map[string]string {
	var (
		next    atomic.Int64
		mu      sync.Mutex
		answers = make(map[string]string, n)
		callers sync.WaitGroup
	)
	for range 32 {
		callers.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= n || t.Failed() {
					return
				}
				operation := fmt.Sprintf("operation %d", i)
				answer, err := pay(t.Context(), c, url, operation)
				if err != nil {
					t.Errorf("%s: %v", operation, err)
				}
				mu.Lock()
				answers[operation] = answer
				mu.Unlock()
			}
		})
	}
	callers.Wait()
	c.CloseIdleConnections()
	require.False(t, t.Failed())
	return answers
}

// A retry that meets its own first attempt waits for it and gets its answer; a
// retry that is another request is told so at once.
func TestBusyAndMismatch(t *testing.T) {
	t.Parallel()
	runs, release := make(chan struct{}, 10), make(chan struct{})
	mw := idempotency.New(memstore.New(), idempotency.SharedKeys)
	srv := server(t, mw.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		runs <- struct{}{}
		<-release
		w.WriteHeader(201)
		_, _ = io.WriteString(w, "paid")
	})).ServeHTTP)
	send := func(rt *client.Transport, body string) (*http.Response, string, error) {
		return roundTrip(t, rt, post(t, client.WithKey(t.Context(), "k1"), srv.URL, strings.NewReader(body)))
	}

	first := make(chan error, 1)
	go func() {
		_, _, err := send(fast(ownBase(t)), payment)
		first <- err
	}()
	<-runs

	resp, _, err := send(fast(ownBase(t)), "another payment")
	require.NoError(t, err)
	require.Equal(t, client.Facts{Key: "k1", Attempts: 1, Code: idempotency.CodeKeyReused}, client.Info(resp))

	rt := fast(ownBase(t))
	busy := 0
	rt.OnAttempt = func(a client.Attempt) {
		if a.Code == idempotency.CodeInProgress {
			if busy++; busy == 10 { // more often than MaxAttempts
				close(release)
			}
		}
	}
	resp, body, err := send(rt, payment)
	require.NoError(t, err)
	require.Equal(t, "paid", body)
	require.True(t, client.Info(resp).Replayed)
	require.NoError(t, <-first)
	require.Empty(t, runs, "it ran once")
}

// A handler that runs again repeats its call to another service instead of
// making it twice.
func TestDerivedKeyInAHandler(t *testing.T) {
	t.Parallel()
	var charges, receipts, runs atomic.Int64
	downstream := func(n *atomic.Int64) *httptest.Server {
		mw := idempotency.New(memstore.New(), idempotency.SharedKeys, idempotency.WithRequiredKey())
		return server(t, mw.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "%d", n.Add(1))
		})).ServeHTTP)
	}
	bank, mail := downstream(&charges), downstream(&receipts)
	inner := fast(ownBase(t))
	var keys []string
	call := func(r *http.Request, purpose, url string) {
		resp, _, err := roundTrip(t, inner, post(t, client.WithDerivedKey(r.Context(), purpose), url, strings.NewReader(payment)))
		if err != nil {
			panic(err)
		}
		keys = append(keys, client.Info(resp).Key)
	}
	mw := idempotency.New(memstore.New(), idempotency.SharedKeys)
	shop := httptest.NewUnstartedServer(mw.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		call(r, "charge", bank.URL)
		call(r, "receipt", mail.URL)
		if runs.Add(1) == 1 {
			panic(http.ErrAbortHandler) // after the work, before the answer
		}
		w.WriteHeader(201)
	})))
	shop.Config.ErrorLog = quiet()
	shop.Start()
	t.Cleanup(shop.Close)

	resp, _, err := roundTrip(t, fast(ownBase(t)), post(t, t.Context(), shop.URL, strings.NewReader(payment)))
	require.NoError(t, err)
	require.Equal(t, 201, resp.StatusCode)
	require.EqualValues(t, 2, runs.Load())
	require.EqualValues(t, 1, charges.Load())
	require.EqualValues(t, 1, receipts.Load())
	require.Equal(t, keys[:2], keys[2:])
	require.NotEqual(t, keys[0], keys[1])
	require.NotContains(t, keys, client.Info(resp).Key)
}
