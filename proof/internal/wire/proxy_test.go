package wire_test

import (
	"errors"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/retrysafe/idempotency/proof/internal/wire"
)

// counter is a server that keeps what it is sent and answers each piece of it.
type counter struct {
	net.Listener
	mu   sync.Mutex
	got  strings.Builder
	wait sync.WaitGroup
}

func newCounter(t *testing.T) *counter {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &counter{Listener: l}
	s.wait.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.wait.Go(func() { s.serve(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		s.wait.Wait()
	})
	return s
}

func (s *counter) serve(c net.Conn) {
	defer func() { _ = c.Close() }()
	buf := make([]byte, 100)
	for {
		n, err := c.Read(buf)
		if err != nil {
			return
		}
		s.mu.Lock()
		s.got.Write(buf[:n])
		s.mu.Unlock()
		_, _ = c.Write([]byte("yes."))
	}
}

func (s *counter) has() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got.String()
}

// TestFaults: each fault does to the second of three messages what it says.
func TestFaults(t *testing.T) {
	const whole, silence, broken = "yes.", "", "|"
	for _, tt := range []struct {
		fault  wire.Fault
		reply  string // what the client gets for it; broken: and the connection breaks
		server string // what the server gets while the client waits
		after  string // and in the end
	}{
		{wire.Fine, whole, "one.two.three.", "one.two.three."},
		{wire.Cut, broken, "one.", "one."},
		{wire.TornMessage, broken, "", "one.two"}, // when, is not told
		{wire.LostMessage, silence, "one.", "one."},
		{wire.SlowMessage, whole, "one.two.three.", "one.two.three."},
		{wire.LateMessage, silence, "one.", "one.two."},
		{wire.LastMessage, silence, "one.", "one.two."},
		{wire.LostReply, broken, "one.two.", "one.two."},
		{wire.TornReply, "yes" + broken, "one.two.", "one.two."},
		{wire.SilentReply, silence, "", "one.two."},
		{wire.SlowReply, whole, "one.two.three.", "one.two.three."},
	} {
		t.Run(tt.fault.String(), func(t *testing.T) {
			t.Parallel()
			server := newCounter(t)
			p, err := wire.Start("tcp", server.Addr().String(), map[int]wire.Fault{2: tt.fault})
			if err != nil {
				t.Fatal(err)
			}
			client, err := net.Dial("tcp", p.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = client.Close() }()
			ask(t, client, "one.", whole)
			reply := ask(t, client, "two.", tt.reply)
			if reply == whole {
				ask(t, client, "three.", whole)
			}
			if got := server.has(); tt.server != "" && got != tt.server {
				t.Errorf("the server has got %q", got)
			}
			_ = client.Close()
			p.Close()
			if got := server.has(); got != tt.after {
				t.Errorf("in the end the server has got %q", got)
			}
			if n := p.Messages(); n != 2 && reply != whole || n != 3 && reply == whole {
				t.Errorf("%d messages", n)
			}
			if struck := closed(p.Struck()); struck != (tt.fault != wire.Fine) {
				t.Errorf("struck: %t", struck)
			}
		})
	}
}

// ask sends a message and checks what comes back. Where nothing is to come it
// does not wait for long.
func ask(t *testing.T, client net.Conn, message, want string) string {
	t.Helper()
	if _, err := client.Write([]byte(message)); err != nil {
		t.Fatal(err)
	}
	if want == "" {
		_ = client.SetReadDeadline(time.Now().Add(30 * time.Millisecond))
	}
	var reply []byte
	for buf := make([]byte, 100); ; {
		n, err := client.Read(buf)
		reply = append(reply, buf[:n]...)
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			reply = append(reply, '|') // io.EOF, or the connection was reset
		}
		if err != nil || strings.HasSuffix(string(reply), ".") {
			break
		}
	}
	if string(reply) != want {
		t.Errorf("%q is answered with %q", message, reply)
	}
	return string(reply)
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// TestLastOfAll: what is to come last waits until the proxy closes, not only until
// the client has gone; and another connection passes meanwhile.
func TestLastOfAll(t *testing.T) {
	server := newCounter(t)
	p, err := wire.Start("tcp", server.Addr().String(), map[int]wire.Fault{1: wire.LastMessage})
	if err != nil {
		t.Fatal(err)
	}
	for _, message := range []string{"late.", "early."} {
		client, err := net.Dial("tcp", p.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		want := "yes."
		if message == "late." {
			want = ""
		}
		ask(t, client, message, want)
		_ = client.Close()
	}
	p.Close()
	if got := server.has(); got != "early.late." {
		t.Errorf("the server has got %q", got)
	}
}
