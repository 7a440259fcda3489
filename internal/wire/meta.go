package wire

import (
	"encoding/binary"
	"math/bits"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/retrysafe/idempotency"
)

// The meta of version 1, in this order. Numbers are varints of encoding/binary,
// a text is its length and its bytes, and a count is stored plus one, so that 0
// stands for nil:
//
//	flags      one byte, see below
//	status     signed
//	time       if flagHasTime: Unix seconds, signed; nanoseconds
//	reference  text
//	body       its length, against a value that was cut off
//	header     count of names; for each, in ascending order: the name,
//	           the count of its values, the values
//	trailer    the same
const (
	flagBodyLost = 1 << iota
	flagHasTime
	flagHasBody // the body is not nil

	allFlags = flagBodyLost | flagHasTime | flagHasBody
)

// metaSize returns at least the length of what appendMeta appends.
func metaSize(r *idempotency.Response) int {
	n := 1 + 4*binary.MaxVarintLen64 + textSize(r.Reference)
	for _, h := range [2]http.Header{r.Header, r.Trailer} {
		n += binary.MaxVarintLen64
		for name, values := range h {
			n += textSize(name) + uvarintLen(uint64(len(values))+1)
			for _, v := range values {
				n += textSize(v)
			}
		}
	}
	return n
}

func textSize(s string) int { return uvarintLen(uint64(len(s))) + len(s) }

func uvarintLen(n uint64) int { return (bits.Len64(n|1) + 6) / 7 }

func appendMeta(dst []byte, r *idempotency.Response) []byte {
	var flags byte
	if r.BodyLost {
		flags |= flagBodyLost
	}
	if !r.Time.IsZero() {
		flags |= flagHasTime
	}
	if r.Body != nil {
		flags |= flagHasBody
	}
	dst = append(dst, flags)
	dst = binary.AppendVarint(dst, int64(r.Status))
	if !r.Time.IsZero() {
		dst = binary.AppendVarint(dst, r.Time.Unix())
		dst = binary.AppendUvarint(dst, uint64(r.Time.Nanosecond()))
	}
	dst = appendText(dst, r.Reference)
	dst = binary.AppendUvarint(dst, uint64(len(r.Body)))
	dst = appendHeader(dst, r.Header)
	return appendHeader(dst, r.Trailer)
}

func appendText(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

func appendHeader(dst []byte, h http.Header) []byte {
	if h == nil {
		return append(dst, 0)
	}
	dst = binary.AppendUvarint(dst, uint64(len(h))+1)
	// In order, so that one response has one encoding. Most have few headers,
	// and their names stay on the stack.
	var few [24]string
	names := few[:0]
	for name := range h {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		values := h[name]
		dst = appendText(dst, name)
		if values == nil {
			dst = append(dst, 0)
			continue
		}
		dst = binary.AppendUvarint(dst, uint64(len(values))+1)
		for _, v := range values {
			dst = appendText(dst, v)
		}
	}
	return dst
}

// decodeMeta reads the meta and the body behind it.
func decodeMeta(meta, body string) (*idempotency.Response, error) {
	// One copy that every text below is a part of, and none of them keeps the
	// value with its body in memory.
	d := decoder{rest: strings.Clone(meta)}
	flags := d.byte()
	r := &idempotency.Response{BodyLost: flags&flagBodyLost != 0}
	status := d.varint()
	r.Status = int(status)
	if flags&flagHasTime != 0 {
		sec, nsec := d.varint(), d.uvarint()
		if nsec >= uint64(time.Second) {
			return nil, corrupt("the time is not one")
		}
		r.Time = time.Unix(sec, int64(nsec)).UTC()
	}
	r.Reference = d.text()
	bodyLen := d.uvarint()
	r.Header = d.header()
	r.Trailer = d.header()
	switch {
	case d.bad || d.rest != "" || flags&^allFlags != 0 || int64(r.Status) != status:
		return nil, corrupt("the meta is not well formed")
	case bodyLen != uint64(len(body)), bodyLen > 0 && flags&flagHasBody == 0:
		return nil, corrupt("the body does not have its length")
	}
	if flags&flagHasBody != 0 {
		r.Body = make([]byte, len(body))
		copy(r.Body, body)
	}
	return r, nil
}

// decoder reads from the beginning of rest. Once something does not fit it is
// bad, and gives zeros.
type decoder struct {
	rest string
	bad  bool
}

func (d *decoder) byte() byte {
	if d.rest == "" {
		d.bad = true
		return 0
	}
	b := d.rest[0]
	d.rest = d.rest[1:]
	return b
}

func (d *decoder) uvarint() uint64 {
	var n uint64
	for shift := 0; ; shift += 7 {
		b := d.byte()
		if d.bad || shift == 63 && b > 1 {
			d.bad = true
			return 0
		}
		n |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return n
		}
	}
}

func (d *decoder) varint() int64 {
	n := d.uvarint()
	return int64(n>>1) ^ -int64(n&1)
}

func (d *decoder) text() string {
	n := d.uvarint()
	if n > uint64(len(d.rest)) {
		d.bad = true
		return ""
	}
	s := d.rest[:n]
	d.rest = d.rest[n:]
	return s
}

// count reads a count stored plus one, of things that take at least size bytes
// each. It returns -1 for nil.
func (d *decoder) count(size int) int {
	n := d.uvarint()
	if n == 0 {
		return -1
	}
	if n--; n > uint64(len(d.rest)/size) {
		d.bad = true
		return 0
	}
	return int(n)
}

func (d *decoder) header() http.Header {
	n := d.count(2)
	if n < 0 {
		return nil
	}
	// The counts are not to be trusted with memory: what is set aside for them
	// is little, and grows with what is really there.
	h := make(http.Header, min(n, 64))
	values := make([]string, 0, min(n, 64)+4)
	last := ""
	for i := range n {
		name := d.text()
		if d.bad || i > 0 && name <= last {
			d.bad = true
			return nil
		}
		last = name
		m := d.count(1)
		if m < 0 {
			h[name] = nil
			continue
		}
		start := len(values)
		for range m {
			values = append(values, d.text())
			if d.bad {
				return nil
			}
		}
		// The cap keeps an append to one name off the values of the next.
		h[name] = values[start:len(values):len(values)]
	}
	return h
}
