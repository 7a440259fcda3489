// Package wire is a TCP proxy that stands between the client of a store and its
// server, and has chosen messages go wrong.
package wire

import (
	"net"
	"sync"
	"time"
)

const (
	// slowness is how much later what is slow arrives: soon enough for the client
	// to be waiting still.
	slowness = 10 * time.Millisecond

	// patience bounds the wait for a server to close a connection whose client
	// has gone.
	patience = 30 * time.Second
)

// Proxy passes on what its clients and a server say to each other. A message is
// what a client says until the server answers, a round trip that is: messages
// are numbered from 1, over all connections.
type Proxy struct {
	listener         net.Listener
	network, address string
	faults           map[int]Fault

	struck     chan struct{} // closed by the first fault
	strikeOnce sync.Once
	over       chan struct{} // closed by Close
	running    sync.WaitGroup

	mu       sync.Mutex
	messages int
	clients  map[net.Conn]struct{}
	closed   bool
}

// Start returns a Proxy to the server at address, whose messages suffer faults by
// their numbers.
func Start(network, address string, faults map[int]Fault) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{
		listener: l, network: network, address: address, faults: faults,
		struck: make(chan struct{}), over: make(chan struct{}), clients: make(map[net.Conn]struct{}),
	}
	p.running.Go(p.accept)
	return p, nil
}

// Addr is where clients reach the proxy.
func (p *Proxy) Addr() *net.TCPAddr { return p.listener.Addr().(*net.TCPAddr) }

// Struck is closed when the first fault has come to pass: the connection is
// broken, the message held back, or done by the server and its reply held back.
func (p *Proxy) Struck() <-chan struct{} { return p.struck }

// Messages is how many messages there have been.
func (p *Proxy) Messages() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.messages
}

// Close ends every connection, delivers what was to come last of all, and returns
// when the server has closed its ends too: by then it has done whatever was
// asked of it through this proxy, and rolled back what it will not commit.
func (p *Proxy) Close() {
	_ = p.listener.Close()
	p.mu.Lock()
	p.closed = true
	for c := range p.clients {
		_ = c.Close()
	}
	p.mu.Unlock()
	close(p.over)
	p.running.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.running.Go(func() { p.serve(client) })
	}
}

func (p *Proxy) serve(client net.Conn) {
	defer p.forget(client)
	if !p.know(client) {
		return
	}
	server, err := net.Dial(p.network, p.address)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	l := &link{proxy: p, client: client, server: server.(conn)}
	var requests sync.WaitGroup
	requests.Go(l.requests)
	l.replies()
	_ = client.Close()
	requests.Wait()
}

// know takes the client in, unless the proxy is closed.
func (p *Proxy) know(client net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clients[client] = struct{}{}
	return !p.closed
}

func (p *Proxy) forget(client net.Conn) {
	_ = client.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.clients, client)
}

// next counts a message and returns what it suffers.
func (p *Proxy) next() Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.messages++
	return p.faults[p.messages]
}

func (p *Proxy) strike() { p.strikeOnce.Do(func() { close(p.struck) }) }
