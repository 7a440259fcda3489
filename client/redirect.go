package client

import (
	"net/http"
	"net/url"
	"strings"
)

// hop is what is known about a request that http.Client makes because of a
// redirect. It copies the caller's header to every hop, the key included, and
// calls RoundTrip for each.
type hop struct {
	trail   *trail // of the answer that redirected here; nil for a first request
	foreign bool   // the chain has been to another origin: no key from here on
}

// hopOf follows the chain of redirects that led to req back to the first
// request. As with net/http's own sensitive headers, a chain that has left its
// origin does not get the key back by returning to it. A chain that cannot be
// followed counts as foreign.
func hopOf(req *http.Request) hop {
	if req.Response == nil {
		return hop{}
	}
	h := hop{trail: trailOf(req.Response)}
	for r := req; r.Response != nil; r = r.Response.Request {
		before := r.Response.Request
		if before == nil || before.URL == nil || req.URL == nil || origin(before.URL) != origin(req.URL) {
			h.foreign = true
			break
		}
	}
	return h
}

// origin is the scheme, host and port of u.
func origin(u *url.URL) string {
	scheme, port := strings.ToLower(u.Scheme), u.Port()
	if port == "" {
		switch scheme {
		case "http":
			port = "80"
		case "https":
			port = "443"
		}
	}
	return scheme + "://" + strings.ToLower(u.Hostname()) + ":" + port
}

// withoutKey returns req without the key's header, and req itself if it has
// none.
func withoutKey(req *http.Request, name string) *http.Request {
	for k := range req.Header {
		if http.CanonicalHeaderKey(k) == name {
			r := req.WithContext(req.Context())
			r.Header = req.Header.Clone()
			dropHeader(r.Header, name)
			return r
		}
	}
	return req
}
