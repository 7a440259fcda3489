package pgstore_test

import (
	"encoding/binary"
	"net"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// fault is what a proxy does to the next message from a client.
type fault int

const (
	none        fault = iota
	loseRequest       // the message does not arrive, the connection breaks
	loseReply         // the message is executed, its reply is lost, the connection breaks
	hangReply         // the message is executed, its reply never comes
)

// proxy stands between a pool and the server.
type proxy struct {
	listener net.Listener
	target   string

	mu    sync.Mutex
	next  fault
	conns []net.Conn
}

// newProxy returns a pool of one connection that goes through a proxy.
func newProxy(t *testing.T, changes ...func(*pgxpool.Config)) (*proxy, *pgxpool.Pool) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{listener: l}
	t.Cleanup(p.close)
	pool := newPool(t, 1, append(changes, func(c *pgxpool.Config) {
		p.target = net.JoinHostPort(c.ConnConfig.Host, portOf(c))
		if c.ConnConfig.Host[0] == '/' {
			t.Fatal("the proxy needs a server that listens on TCP")
		}
		c.ConnConfig.Host = "127.0.0.1"
		c.ConnConfig.Port = uint16(l.Addr().(*net.TCPAddr).Port)
		c.ConnConfig.Fallbacks = nil
	})...)
	go p.accept()
	return p, pool
}

// arm sets what happens to the next message.
func (p *proxy) arm(f fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = f
}

func (p *proxy) take() fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.next
	p.next = none
	return f
}

func (p *proxy) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close()
	}
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, client, server)
		p.mu.Unlock()
		link := &link{client: client, server: server}
		go p.requests(link)
		go link.replies()
	}
}

// link is one connection through the proxy.
type link struct {
	client, server net.Conn
	mu             sync.Mutex
	fault          fault // what the replies suffer
}

func (l *link) close() {
	_ = l.client.Close()
	_ = l.server.Close()
}

func (p *proxy) requests(l *link) {
	defer l.close()
	buf := make([]byte, 1<<20)
	for first := true; ; first = false {
		n, err := l.client.Read(buf)
		if err != nil || first && !isStartup(buf[:n]) {
			return
		}
		f := none
		if !first {
			f = p.take()
		}
		if f == loseRequest {
			return
		}
		l.mu.Lock()
		l.fault = max(l.fault, f)
		l.mu.Unlock()
		if _, err := l.server.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (l *link) replies() {
	buf := make([]byte, 1<<20)
	for {
		n, err := l.server.Read(buf)
		if err != nil {
			_ = l.client.Close()
			return
		}
		l.mu.Lock()
		f := l.fault
		l.mu.Unlock()
		switch f {
		case loseReply:
			l.close()
			return
		case hangReply:
			continue
		}
		if _, err := l.client.Write(buf[:n]); err != nil {
			l.close()
			return
		}
	}
}

// isStartup tells a client of PostgreSQL from one that looks for a server of
// some other test, which had this port before.
func isStartup(message []byte) bool {
	return len(message) >= 8 && int(binary.BigEndian.Uint32(message)) == len(message)
}
