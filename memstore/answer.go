package memstore

import (
	"bytes"
	"encoding/binary"
	"net/http"

	"github.com/retrysafe/idempotency"
)

// answer is a Response as the store keeps it. It never changes. Its header fields
// and its Reference are one text, since a map takes several times the memory of
// the few fields in it, and among a million answers each piece is a wait for
// memory. The text is a copy: a value cut from a long request line would keep all
// of that in memory.
type answer struct {
	idempotency.Response        // its Header and Trailer stay nil
	header               fields // and behind it those of the trailer
}

// newAnswer returns a copy of resp that shares no memory with it, and what it
// takes of the limit of bytes.
func newAnswer(resp *idempotency.Response) (a answer, size int64) {
	var room [512]byte // on the stack
	p := appendFields(appendFields(room[:0], resp.Header), resp.Trailer)
	packed := len(p)
	text := string(append(p, resp.Reference...))

	a.Response = *resp
	a.Header, a.Trailer = nil, nil
	a.header = fields(text[:packed])
	a.Reference = text[packed:]
	a.Body = bytes.Clone(resp.Body)
	return a, answerOverhead + int64(len(text)+len(resp.Body))
}

// restore writes the answer to resp, in memory that is resp's own.
func (a *answer) restore(resp *idempotency.Response) {
	*resp = a.Response
	rest := a.header
	resp.Header = rest.cutHeader()
	resp.Trailer = rest.cutHeader()
	resp.Body = bytes.Clone(a.Body)
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
