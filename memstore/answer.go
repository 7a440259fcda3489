package memstore

import (
	"net/http"
	"strings"

	"github.com/retrysafe/idempotency"
)

// answer is a Response as the store keeps it. It never changes. Header fields
// are kept as a list, since a map takes several times the memory of the few
// fields in it, and texts in one piece of their own: a value cut from a long
// request line would keep all of that in memory.
type answer struct {
	idempotency.Response // its Header and Trailer stay nil
	header, trailer      []field
	size                 int64 // of what the limit of bytes counts
}

// field is a header field. No values and nil values are different things.
type field struct {
	name   string
	values []string
}

// newAnswer returns a copy of resp that shares no memory with it.
func newAnswer(resp *idempotency.Response) *answer {
	var fields, values, bytes int
	bytes = len(resp.Reference)
	for _, h := range [...]http.Header{resp.Header, resp.Trailer} {
		fields += len(h)
		for name, vs := range h {
			values += len(vs)
			bytes += len(name)
			for _, v := range vs {
				bytes += len(v)
			}
		}
	}
	p := packer{fields: make([]field, 0, fields), values: make([]string, 0, values)}
	p.texts.Grow(bytes)

	a := &answer{Response: *resp, header: p.header(resp.Header), trailer: p.header(resp.Trailer)}
	a.Header, a.Trailer = nil, nil
	a.Reference = p.text(resp.Reference)
	a.Body = cloneBody(resp.Body)
	a.size = answerOverhead + int64(bytes+len(resp.Body)+fields*fieldOverhead+values*valueOverhead)
	return a
}

// restore writes the answer to resp, in memory that is resp's own.
func (a *answer) restore(resp *idempotency.Response) {
	*resp = a.Response
	resp.Header = newHeader(a.header)
	resp.Trailer = newHeader(a.trailer)
	resp.Body = cloneBody(a.Body)
}

func newHeader(fields []field) http.Header {
	if fields == nil {
		return nil
	}
	n := 0
	for _, f := range fields {
		n += len(f.values)
	}
	p := packer{values: make([]string, 0, n)}
	h := make(http.Header, len(fields))
	for _, f := range fields {
		h[f.name] = p.list(f.values)
	}
	return h
}

func cloneBody(body []byte) []byte {
	if body == nil {
		return nil
	}
	return append(make([]byte, 0, len(body)), body...)
}

// packer copies many small things into few allocations, whose sizes the caller
// has worked out before.
type packer struct {
	texts  strings.Builder
	values []string
	fields []field
}

func (p *packer) text(s string) string {
	n := p.texts.Len()
	p.texts.WriteString(s)
	return p.texts.String()[n:]
}

func (p *packer) list(values []string) []string {
	if values == nil {
		return nil
	}
	n := len(p.values)
	p.values = append(p.values, values...)
	return p.values[n:len(p.values):len(p.values)]
}

func (p *packer) header(h http.Header) []field {
	if h == nil {
		return nil
	}
	n := len(p.fields)
	for name, values := range h {
		f := field{name: p.text(name), values: p.list(values)}
		for i, v := range f.values {
			f.values[i] = p.text(v)
		}
		p.fields = append(p.fields, f)
	}
	return p.fields[n:len(p.fields):len(p.fields)]
}
