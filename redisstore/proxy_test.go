package redisstore_test

import (
	"bytes"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// action is what the proxy does with a request.
type action int

const (
	pass      action = iota
	dropClose        // let the request through, close the connection instead of replying
	dropHang         // let the request through, and never reply
	cut              // close the connection instead of passing the request on
)

// proxy stands between client and server and loses replies.
type proxy struct {
	addr   string
	target string
	// decide is asked about every piece of a request; it may take its time.
	decide atomic.Pointer[func(request []byte) action]

	mu    sync.Mutex
	conns map[net.Conn]struct{}
	ended bool
}

func startProxy(t testing.TB, target string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{addr: l.Addr().String(), target: target, conns: map[net.Conn]struct{}{}}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { p.serve(client) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		p.end()
		p.closeAll()
		wg.Wait()
	})
	return p
}

// when makes the proxy do a with the next n requests that contain text, and
// returns how many of them there have been.
func (p *proxy) when(text string, n int64, a action) *atomic.Int64 {
	var seen atomic.Int64
	p.set(func(request []byte) action {
		if bytes.Contains(request, []byte(text)) && seen.Add(1) <= n {
			return a
		}
		return pass
	})
	return &seen
}

func (p *proxy) set(decide func(request []byte) action) { p.decide.Store(&decide) }

func (p *proxy) closeAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

// end has every connection closed that is accepted too late for closeAll.
func (p *proxy) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
}

func (p *proxy) track(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[c] = struct{}{}
	if p.ended {
		_ = c.Close()
	}
}

func (p *proxy) serve(client net.Conn) {
	upstream, err := net.DialTimeout("tcp", p.target, time.Second)
	if err != nil {
		_ = client.Close()
		return
	}
	p.track(client)
	p.track(upstream)
	closeBoth := func() {
		_ = client.Close()
		_ = upstream.Close()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.conns, client)
		delete(p.conns, upstream)
	}
	defer closeBoth()
	var losing atomic.Int64 // the action for replies from now on
	var wg sync.WaitGroup
	wg.Go(func() {
		defer closeBoth()
		buf := make([]byte, 64<<10)
		for {
			n, err := upstream.Read(buf)
			if err != nil {
				return
			}
			switch action(losing.Load()) {
			case dropClose:
				return
			case dropHang:
				continue
			}
			if _, err := client.Write(buf[:n]); err != nil {
				return
			}
		}
	})
	buf := make([]byte, 64<<10)
	for {
		n, err := client.Read(buf)
		if err != nil {
			break
		}
		if decide := p.decide.Load(); decide != nil {
			switch a := (*decide)(buf[:n]); a {
			case pass:
			case cut:
				n = 0
			default:
				losing.Store(int64(a))
			}
		}
		if n == 0 {
			break
		}
		if _, err := upstream.Write(buf[:n]); err != nil {
			break
		}
	}
	closeBoth()
	wg.Wait()
}
