package client

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/retrysafe/idempotency"
)

// maxKey is the longest key, in bytes, that servers take.
const maxKey = 255

type (
	contextKey struct{}

	// givenKey is the key that a context brings. since is zero unless it is known
	// when the key was first sent.
	givenKey struct {
		value string
		since time.Time
		set   bool
	}
)

// WithKey returns a context whose requests carry key. Use it when the operation
// has an identity of its own that outlives this process, such as an order's id,
// or to resume an operation whose key is known.
//
// The context stands for one operation: two different requests made with it
// would have the same key. An empty or invalid key makes RoundTrip fail with
// [ErrInvalidKey]. A key in the request's header takes precedence.
func WithKey(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, contextKey{}, givenKey{value: key, set: true})
}

// WithDerivedKey returns a context whose requests carry a key that is derived
// from the operation being served: within a handler that the middleware guards,
// and with the context that the middleware gave it, a handler that runs again
// makes its downstream call under the same key, and so repeats it instead of
// making it twice.
//
// purpose tells the downstream calls of one handler apart, "charge" from
// "receipt"; each call needs one of its own, and the same one in every run. In
// any other context the key is random: then the requests made with the returned
// context share a key that is new with each call of WithDerivedKey.
func WithDerivedKey(ctx context.Context, purpose string) context.Context {
	return WithKey(ctx, idempotency.FromContext(ctx).Derive(purpose))
}

func keyOf(ctx context.Context) givenKey {
	k, _ := ctx.Value(contextKey{}).(givenKey)
	return k
}

// withoutContextKey hides a key of WithKey from requests that Base itself makes
// with the context, to fetch an access token for instance.
func withoutContextKey(ctx context.Context) context.Context {
	if !keyOf(ctx).set {
		return ctx
	}
	return context.WithValue(ctx, contextKey{}, givenKey{})
}

// opKey is the key of one operation.
type opKey struct {
	value string
	wire  string    // as it is sent
	since time.Time // when it was first sent; zero: not yet
}

// keyFor finds the key of req: its header, the redirect that it follows, its
// context, and else a new one.
func (t *Transport) keyFor(req *http.Request, h hop) (opKey, error) {
	since := time.Time{}
	if h.trail != nil {
		since = h.trail.since
	}
	if sent, ok, err := keyHeader(req.Header, t.header()); ok || err != nil {
		if err != nil {
			return opKey{}, err
		}
		value, wire, err := t.parse(sent)
		return opKey{value: value, wire: wire, since: since}, err
	}
	var value string
	if h.trail != nil && h.trail.facts.Key != "" {
		value = h.trail.facts.Key
	} else if k := keyOf(req.Context()); k.set {
		value, since = k.value, k.since
	} else {
		made, err := t.newKey(req)
		if err != nil {
			return opKey{}, err
		}
		value = made
	}
	wire, err := t.format(value)
	return opKey{value: value, wire: wire, since: since}, err
}

// keyHeader returns the one value of the header, whatever the letter case of
// its map key. An empty list counts as no header: it is how Go programs tell
// net/http that a request may be sent again without sending a key.
func keyHeader(h http.Header, name string) (value string, ok bool, err error) {
	for k, values := range h {
		if http.CanonicalHeaderKey(k) != name {
			continue
		}
		for _, v := range values {
			if ok {
				return "", false, fmt.Errorf("%w: more than one in the request's header", ErrInvalidKey)
			}
			value, ok = v, true
		}
	}
	return value, ok, nil
}

// dropHeader removes the header from h, whatever the letter case of its map key.
func dropHeader(h http.Header, name string) {
	for k := range h {
		if http.CanonicalHeaderKey(k) == name {
			delete(h, k)
		}
	}
}

// parse reads a header that the caller wrote, bare or quoted. Without
// [Transport.Quoted] it is sent in the form in which it was written.
func (t *Transport) parse(sent string) (value, wire string, err error) {
	sent = strings.Trim(sent, " \t")
	if !strings.HasPrefix(sent, `"`) {
		wire, err = t.format(sent)
		return sent, wire, err
	}
	value, ok := unquote(sent)
	if !ok {
		return "", "", fmt.Errorf("%w: the header is not a well-formed string", ErrInvalidKey)
	}
	wire, err = quoted(value)
	return value, wire, err
}

// format writes a key as the server wants it.
func (t *Transport) format(key string) (string, error) {
	if t.Quoted {
		return quoted(key)
	}
	if err := checkLength(key); err != nil {
		return "", err
	}
	for i := range len(key) {
		if c := key[i]; c <= ' ' || c > '~' || strings.IndexByte(`",;\`, c) >= 0 {
			return "", fmt.Errorf("%w: byte %d cannot stand in an unquoted key", ErrInvalidKey, i)
		}
	}
	return key, nil
}

func checkLength(key string) error {
	if key == "" {
		return fmt.Errorf("%w: it is empty", ErrInvalidKey)
	}
	if len(key) > maxKey {
		return fmt.Errorf("%w: it is %d bytes long, more than %d", ErrInvalidKey, len(key), maxKey)
	}
	return nil
}

// quoted writes key as a String of RFC 9651.
func quoted(key string) (string, error) {
	if err := checkLength(key); err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(key) {
		c := key[i]
		if c < ' ' || c > '~' {
			return "", fmt.Errorf("%w: byte %d is not printable ASCII", ErrInvalidKey, i)
		}
		if c == '"' || c == '\\' {
			b.WriteByte('\\')
		}
		b.WriteByte(c)
	}
	b.WriteByte('"')
	return b.String(), nil
}

// unquote reads a String of RFC 9651 without parameters.
func unquote(s string) (string, bool) {
	if len(s) < 2 || s[0] != '"' || s[len(s)-1] != '"' {
		return "", false
	}
	s = s[1 : len(s)-1]
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '"':
			return "", false
		case '\\':
			i++
			if i == len(s) || s[i] != '"' && s[i] != '\\' {
				return "", false
			}
		}
		b.WriteByte(s[i])
	}
	return b.String(), true
}
