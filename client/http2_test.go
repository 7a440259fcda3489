package client_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency/client"
)

// http2Frame is a frame of HTTP/2, written by hand: net/http offers no way to
// misbehave.
func http2Frame(kind, flags byte, stream uint32, payload ...byte) []byte {
	n := len(payload)
	head := []byte{byte(n >> 16), byte(n >> 8), byte(n), kind, flags, byte(stream >> 24), byte(stream >> 16), byte(stream >> 8), byte(stream)}
	return append(head, payload...)
}

// misbehave speaks HTTP/2 until it has seen a request's header, answers with the
// frames and says no more.
func misbehave(conn net.Conn, frames ...[]byte) {
	defer conn.Close()
	r := bufio.NewReader(conn)
	_, _ = io.CopyN(io.Discard, r, int64(len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")))
	_, _ = conn.Write(http2Frame(4, 0, 0)) // SETTINGS
	for {
		head := make([]byte, 9)
		if _, err := io.ReadFull(r, head); err != nil {
			return
		}
		_, _ = io.CopyN(io.Discard, r, int64(head[0])<<16|int64(head[1])<<8|int64(head[2]))
		if head[3] == 1 { // HEADERS
			for _, f := range frames {
				_, _ = conn.Write(f)
			}
			// Not both directions at once: unread data would make the kernel take the
			// frames back.
			_ = conn.(*net.TCPConn).CloseWrite()
			_, _ = io.Copy(io.Discard, r)
			return
		}
	}
}

// firstIsBad is a listener that keeps the first connection for misbehave.
type firstIsBad struct {
	net.Listener
	once   sync.Once
	frames [][]byte
}

func (l *firstIsBad) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	first := false
	l.once.Do(func() { first = true })
	if first {
		go misbehave(conn, l.frames...)
		return l.Accept()
	}
	return conn, nil
}

func TestHTTP2ConnectionsThatEnd(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		frames   [][]byte
		attempts int // at least, as the Transport counts: net/http repeats what it knows to be untouched
	}{
		{"GOAWAY before the request", [][]byte{http2Frame(7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)}, 1},
		{"refused stream", [][]byte{http2Frame(3, 0, 1, 0, 0, 0, 7)}, 1},
		{"GOAWAY after the request, then the end", [][]byte{http2Frame(7, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0), http2Frame(3, 0, 1, 0, 0, 0, 2)}, 2},
		{"stream reset", [][]byte{http2Frame(3, 0, 1, 0, 0, 0, 2)}, 2},
		{"connection cut", nil, 2},
	}
	for _, tt := range tests {
		for _, kind := range bodyKinds() {
			t.Run(tt.name+"/"+kind.name, func(t *testing.T) {
				t.Parallel()
				var seen sightings
				srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					seen.see(r)
					w.WriteHeader(201)
					_, _ = io.WriteString(w, r.Proto)
				}))
				srv.Listener = &firstIsBad{Listener: srv.Listener, frames: tt.frames}
				srv.Config.Protocols = new(http.Protocols)
				srv.Config.Protocols.SetUnencryptedHTTP2(true)
				srv.Start()
				t.Cleanup(srv.Close)
				base := ownBase(t)
				base.Protocols = new(http.Protocols)
				base.Protocols.SetUnencryptedHTTP2(true)

				resp, body, err := roundTrip(t, fast(base), post(t, t.Context(), srv.URL, kind.make(t)))
				require.NoError(t, err)
				require.Equal(t, "HTTP/2.0", body)
				require.Equal(t, seen.requireSame(t, 1, kind.want), client.Info(resp).Key)
				require.GreaterOrEqual(t, client.Info(resp).Attempts, tt.attempts)
			})
		}
	}
}

// A server that shuts down answers what it has begun and sends GOAWAY.
func TestHTTP2GracefulShutdown(t *testing.T) {
	t.Parallel()
	var seen sightings
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if seen.see(r)%2 == 1 {
			w.Header().Set("Connection", "close") // GOAWAY, in HTTP/2
			w.WriteHeader(503)
			return
		}
		w.WriteHeader(201)
	}))
	srv.Config.Protocols = new(http.Protocols)
	srv.Config.Protocols.SetUnencryptedHTTP2(true)
	srv.Start()
	t.Cleanup(srv.Close)
	base := ownBase(t)
	base.Protocols = srv.Config.Protocols
	rt := fast(base)
	for range 20 {
		resp, _, err := roundTrip(t, rt, post(t, t.Context(), srv.URL, stream(payment)))
		require.NoError(t, err)
		require.Equal(t, 201, resp.StatusCode)
		require.Equal(t, 2, resp.ProtoMajor)
	}
	require.Len(t, seen.list(), 40)
}
