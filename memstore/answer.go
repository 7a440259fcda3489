package memstore

import (
	"encoding/binary"
	"net/http"
	"strings"
	"time"

	"github.com/retrysafe/idempotency"
)

// answer is a Response as the store keeps it. It never changes. Its texts lie in
// one piece of memory: among a million answers each piece is a wait for it, and a
// map takes several times the memory of the few fields in it. They are copies: a
// value cut from a long request line would keep all of that in memory.
type answer struct {
	status    int
	bodyLost  bool
	hasBody   bool // the body is not nil
	time      time.Time
	headers   fields // of the header, and behind them those of the trailer
	reference string
	body      string
}

// apart is the size from which on a body is a piece of its own. Copying it takes
// longer than waiting for one more, and longer still to where it is not aligned.
const apart = 4 << 10

// record is what an entry keeps of a claim and its answer: key and token lie in
// one piece of memory with the answer.
type record struct {
	key    idempotency.Key
	token  string
	answer answer
	size   int64 // what the entry takes of the limit of bytes with all of that
}

// newRecord returns copies that share no memory with what they are made from.
func newRecord(c idempotency.Claim, resp *idempotency.Response) record {
	var room [512]byte // on the stack
	headers := appendFields(appendFields(room[:0], resp.Header), resp.Trailer)

	var texts, body strings.Builder
	inside := resp.Body
	if len(inside) >= apart {
		body.Grow(len(inside))
		body.Write(inside)
		inside = nil
	}
	texts.Grow(textSize(c) + len(headers) + len(resp.Reference) + len(inside))
	writeTexts(&texts, c)
	texts.Write(headers)
	texts.WriteString(resp.Reference)
	texts.Write(inside)

	r := record{size: entryOverhead + int64(texts.Cap()+body.Cap())}
	key, token, rest := cutTexts(texts.String(), c)
	r.key, r.token = key, token
	r.answer = answer{
		status:    resp.Status,
		bodyLost:  resp.BodyLost,
		hasBody:   resp.Body != nil,
		time:      resp.Time,
		headers:   fields(rest[:len(headers)]),
		reference: rest[len(headers):][:len(resp.Reference)],
		body:      rest[len(headers)+len(resp.Reference):] + body.String(),
	}
	return r
}

// restore writes the answer to resp, in memory that is resp's own.
func (a *answer) restore(resp *idempotency.Response) {
	rest := a.headers
	*resp = idempotency.Response{
		Status:    a.status,
		Header:    rest.cutHeader(),
		Trailer:   rest.cutHeader(),
		BodyLost:  a.bodyLost,
		Reference: a.reference,
		Time:      a.time,
	}
	if a.hasBody {
		resp.Body = []byte(a.body)
	}
}

// fields are packed headers. A text stands behind its length, and a list behind
// its count plus one, with which 0 stands for nil; numbers are unsigned varints:
//
//	count of names and, unless that is 0, count of all values;
//	for each name: the name, the count of its values, the values
type fields string

func appendFields(p []byte, h http.Header) []byte {
	if h == nil {
		return append(p, 0)
	}
	p = binary.AppendUvarint(p, uint64(len(h))+1)
	n := 0
	for _, values := range h {
		n += len(values)
	}
	p = binary.AppendUvarint(p, uint64(n))
	for name, values := range h {
		p = appendText(p, name)
		if values == nil {
			p = append(p, 0)
			continue
		}
		p = binary.AppendUvarint(p, uint64(len(values))+1)
		for _, v := range values {
			p = appendText(p, v)
		}
	}
	return p
}

func appendText(p []byte, s string) []byte {
	return append(binary.AppendUvarint(p, uint64(len(s))), s...)
}

// cutHeader takes a header off the front. The texts are parts of f, the map and
// the lists are new.
func (f *fields) cutHeader() http.Header {
	names := f.cutNumber()
	if names == 0 {
		return nil
	}
	all := make([]string, f.cutNumber())
	h := make(http.Header, names-1)
	for range names - 1 {
		name := f.cutText()
		n := f.cutNumber() - 1
		if n < 0 {
			h[name] = nil
			continue
		}
		values := all[:n:n] // the cap keeps an append to one name off the values of the next
		all = all[n:]
		for i := range values {
			values[i] = f.cutText()
		}
		h[name] = values
	}
	return h
}

func (f *fields) cutText() string {
	n := f.cutNumber()
	s := string((*f)[:n])
	*f = (*f)[n:]
	return s
}

func (f *fields) cutNumber() int {
	n, shift := 0, 0
	for i := 0; ; i++ {
		b := (*f)[i]
		n |= int(b&0x7f) << shift
		if b < 0x80 {
			*f = (*f)[i+1:]
			return n
		}
		shift += 7
	}
}
