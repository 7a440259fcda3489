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
	// The fields are listed first, since to go through a map takes longer than to
	// go through a list, and copied once it is known how much there is.
	fields := make([]field, 0, len(resp.Header)+len(resp.Trailer))
	values, bytes := 0, len(resp.Reference)
	for _, h := range [...]http.Header{resp.Header, resp.Trailer} {
		for name, vs := range h {
			fields = append(fields, field{name, vs})
			values += len(vs)
			bytes += len(name)
			for _, v := range vs {
				bytes += len(v)
			}
		}
	}
	p := packer{values: make([]string, 0, values)}
	p.texts.Grow(bytes)
	for i, f := range fields {
		fields[i] = p.field(f)
	}

	a := &answer{Response: *resp}
	a.Header, a.Trailer = nil, nil
	if n := len(resp.Header); resp.Header != nil {
		a.header = fields[:n:n]
	}
	if n := len(resp.Header); resp.Trailer != nil {
		a.trailer = fields[n:]
	}
	a.Reference = p.text(resp.Reference)
	a.Body = cloneBody(resp.Body)
	a.size = answerOverhead + int64(bytes+len(resp.Body)+len(fields)*fieldOverhead+values*valueOverhead)
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

func (p *packer) field(f field) field {
	own := field{name: p.text(f.name), values: p.list(f.values)}
	for i, v := range own.values {
		own.values[i] = p.text(v)
	}
	return own
}
