package wire

import (
	"bytes"
	"encoding/binary"
	"net"
	"sync"
	"time"
)

// conn is a connection of which one direction can be closed.
type conn interface {
	net.Conn
	CloseWrite() error
}

// link is one connection through the proxy.
type link struct {
	proxy  *Proxy
	client net.Conn
	server conn

	mu      sync.Mutex
	waiting bool  // the client has sent a message and has had no reply
	fault   Fault // of that message
}

// asked is called for each piece that the client sends, and returns the fault of
// the message that it belongs to.
func (l *link) asked() Fault {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.waiting {
		l.waiting, l.fault = true, l.proxy.next()
	}
	return l.fault
}

// answered is called for each piece that the server sends, and returns the fault
// of the message that it answers.
func (l *link) answered() Fault {
	l.mu.Lock()
	defer l.mu.Unlock()
	// Behind a reply that does not come none can.
	l.waiting = l.fault == SilentReply
	return l.fault
}

// requests passes on what the client says, until it has gone.
func (l *link) requests() {
	var held []byte
	fault := Fine
	for buf, first := make([]byte, 64<<10), true; ; first = false {
		n, err := l.client.Read(buf)
		leaves := isGoodbye(buf[:n])
		if err != nil || fault.holds() && leaves {
			held = append(held, buf[:n]...)
			break
		}
		if leaves || first && isCancel(buf[:n]) { // no messages
			_, _ = l.server.Write(buf[:n])
			continue
		}
		fault = l.asked()
		if fault == Cut || fault == TornMessage {
			if fault == TornMessage {
				_, _ = l.server.Write(buf[:n-1])
			}
			l.proxy.strike()
			break
		}
		if fault.holds() {
			held = append(held, buf[:n]...)
			l.proxy.strike()
			continue
		}
		if fault == SlowMessage {
			l.proxy.strike()
			time.Sleep(slowness)
		}
		if _, err := l.server.Write(buf[:n]); err != nil {
			break
		}
	}
	_ = l.client.Close()
	if fault == LastMessage {
		<-l.proxy.over
	}
	if fault == LateMessage || fault == LastMessage {
		_, _ = l.server.Write(held)
	}
	_ = l.server.CloseWrite()
	_ = l.server.SetReadDeadline(time.Now().Add(patience))
}

// replies passes on what the server says, until it has closed the connection. A
// client that has gone is no reason to stop: what the server does, it has done
// when it closes.
func (l *link) replies() {
	buf := make([]byte, 64<<10)
	for {
		n, err := l.server.Read(buf)
		if err != nil {
			return
		}
		piece := buf[:n]
		switch l.answered() {
		case LostReply:
			_ = l.client.Close()
			l.proxy.strike()
			continue
		case TornReply:
			_, _ = l.client.Write(piece[:n-1])
			_ = l.client.Close()
			l.proxy.strike()
			continue
		case SilentReply:
			l.proxy.strike()
			continue
		case SlowReply:
			l.proxy.strike()
			time.Sleep(slowness)
		}
		_, _ = l.client.Write(piece)
	}
}

// isCancel recognises a connection of PostgreSQL's whose one message asks to
// cancel what another connection does. pgx sends it of its own accord, behind a
// call that it has given up, so it counts as no message.
func isCancel(first []byte) bool {
	return len(first) == 16 && binary.BigEndian.Uint32(first[4:]) == 80877102
}

// isGoodbye recognises PostgreSQL's Terminate, by which pgx says that it has given
// up waiting, or leaves: it then waits for the server to close the connection.
func isGoodbye(piece []byte) bool { return bytes.Equal(piece, []byte{'X', 0, 0, 0, 4}) }
