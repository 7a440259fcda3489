package wire

// Fault is what goes wrong with one message on the wire, or with its reply.
type Fault int

// The faults. Where it says that the connection breaks, the client sees it
// closed, and the server does once it has dealt with what it got. Where it does
// not break, nothing more passes in that direction, and only the client's own
// timeout ends the waiting.
const (
	Fine        Fault = iota
	Cut               // the connection breaks before the message arrives
	TornMessage       // the message arrives but for its last byte, then the connection breaks
	LostMessage       // the message does not arrive
	SlowMessage       // the message arrives a little later
	LateMessage       // the message arrives when the client has given it up
	LastMessage       // the message arrives after everything else, when the proxy closes
	LostReply         // the connection breaks in place of the reply
	TornReply         // the reply arrives but for its last byte, then the connection breaks
	SilentReply       // the reply does not arrive
	SlowReply         // the reply arrives a little later
	Kinds             // how many there are
)

func (f Fault) String() string {
	return [...]string{
		"fine", "cut off", "torn", "lost", "slow", "late", "last of all",
		"reply lost", "reply torn", "reply never comes", "reply slow",
	}[f]
}

// holds reports whether the message stays in the proxy.
func (f Fault) holds() bool { return f == LostMessage || f == LateMessage || f == LastMessage }
