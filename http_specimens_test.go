package idempotency_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

// specimens are the handlers of the differential test: every way in which a
// handler can answer.
func specimens() []specimen {
	var all []specimen
	for _, some := range [][]specimen{
		plainSpecimens(), statusSpecimens(), headerSpecimens(), lengthSpecimens(), typeSpecimens(),
		flushSpecimens(), copySpecimens(), helperSpecimens(), trailerSpecimens(), controlSpecimens(),
	} {
		all = append(all, some...)
	}
	return all
}

func plainSpecimens() []specimen {
	return []specimen{
		{name: "nothing at all", handler: func(http.ResponseWriter, *http.Request) {}},
		{name: "Write", handler: func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello")) }},
		{name: "Write of nothing", handler: func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(nil) }},
		{name: "WriteString", handler: func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }},
		{name: "many writes", handler: func(w http.ResponseWriter, _ *http.Request) {
			for i := range 3000 {
				_, _ = fmt.Fprintf(w, "line %d of the answer\n", i)
			}
		}},
		{name: "one large write", handler: func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, fill(300_000)) }},
		{name: "2048 bytes", handler: func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, fill(2048)) }},
		{name: "2049 bytes", handler: func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, fill(2049)) }},
		{name: "the limit", handler: func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, fill(1<<20)) }},
		{name: "every byte", handler: func(w http.ResponseWriter, _ *http.Request) {
			for b := range 256 {
				_, _ = w.Write([]byte{byte(b)})
			}
		}},
		{name: "the request's body", handler: func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }},
	}
}

func statusSpecimens() []specimen {
	status := func(status int, body string) specimen {
		return specimen{name: fmt.Sprintf("%d with %d bytes", status, len(body)), handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Etag", `"1"`)
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}}
	}
	return []specimen{
		status(200, ""), status(201, "made"), status(202, ""), status(204, ""), status(204, "body"), status(205, "body"),
		status(299, "odd"), status(304, ""), status(304, "body"), status(404, "no"), status(500, "broken"), status(777, "?"),
		{name: "WriteHeader twice", handler: func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(404)
			w.WriteHeader(500)
		}},
		{name: "Write, then WriteHeader", handler: func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "fine")
			w.WriteHeader(500)
		}},
		{name: "early hints", handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Link", "</style.css>; rel=preload")
			w.WriteHeader(103)
			w.Header().Add("Link", "</script.js>; rel=preload")
			w.WriteHeader(103)
			w.Header().Set("Location", "/1")
			w.WriteHeader(201)
			w.WriteHeader(103)
			_, _ = io.WriteString(w, "made")
		}},
	}
}

func headerSpecimens() []specimen {
	return []specimen{
		{name: "repeated and empty headers", handler: func(w http.ResponseWriter, _ *http.Request) {
			h := w.Header()
			h.Add("Link", "<a>; rel=next")
			h.Add("Link", "<b>; rel=prev")
			h.Add("Vary", "Accept")
			h.Add("Vary", "Origin")
			h.Set("X-Empty", "")
			h["x-lower-case"] = []string{"1", "2"}
			h.Set("Content-Type", "text/csv; charset=latin-1")
			w.WriteHeader(201)
		}},
		{name: "headers after the fact", handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Before", "1")
			w.WriteHeader(200)
			w.Header().Set("X-Before", "2")
			w.Header().Set("X-After", "1")
			_, _ = io.WriteString(w, "body")
		}},
		{name: "personal headers", handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Add("Set-Cookie", "a=1")
			w.Header().Add("Set-Cookie", "b=2")
			w.Header()["set-cookie"] = []string{"c=3"}
			w.Header().Set("WWW-Authenticate", "Basic")
			w.Header().Set("X-Kept", "yes")
		}},
		{name: "Cache-Control", handler: func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Cache-Control", "max-age=60") }},
		{name: "Connection: close", handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Connection", "close")
			_, _ = io.WriteString(w, "bye")
		}},
		{name: "Connection options", handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Connection", "x-connection-option")
			w.Header().Set("X-Connection-Option", "1")
		}},
		{name: "no Date", handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Date"] = nil
			_, _ = io.WriteString(w, "timeless")
		}},
		{name: "own Date", handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Date", "Sun, 06 Nov 1994 08:49:37 GMT")
		}},
	}
}

func lengthSpecimens() []specimen {
	length := func(announced string, pieces ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", announced)
			for _, piece := range pieces {
				_, _ = io.WriteString(w, piece)
			}
		}
	}
	return []specimen{
		{name: "Content-Length", handler: length("10", "01234", "56789")},
		{name: "Content-Length of nothing", handler: length("0")},
		{name: "Content-Length that is none", handler: length("ten", "0123456789")},
		{name: "Content-Length of a large body", handler: length("100000", fill(100_000))},
		{name: "Content-Length not reached", handler: length("10", "01234"), released: true},
		{name: "Content-Length without a body", handler: length("10"), released: true},
		{name: "Content-Length exceeded at once", handler: length("5", "0123456789"), released: true, exceeds: true},
		{name: "Content-Length exceeded, then not reached", handler: length("5", "012", "345", "67"), released: true, exceeds: true},
		{name: "Content-Length exceeded in the end", handler: length("5", "01234", "56789"), closes: true, exceeds: true},
		{name: "Content-Length of 204", handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "0")
			w.WriteHeader(204)
		}},
		{name: "Transfer-Encoding", handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Transfer-Encoding", "chunked")
			w.Header().Set("Content-Type", "text/plain")
			_, _ = io.WriteString(w, "chunk")
		}},
	}
}

func typeSpecimens() []specimen {
	html := "<!DOCTYPE html><title>x</title>"
	return []specimen{
		{name: "sniffed HTML", handler: func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, html) }},
		{name: "sniffed in pieces", handler: func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, html[:3])
			_, _ = io.WriteString(w, html[3:])
		}},
		{name: "sniffed binary", handler: func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("\x89PNG\x0D\x0A\x1A\x0A\xff\xfe"))
		}},
		{name: "no Content-Type", handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = nil
			_, _ = io.WriteString(w, html)
		}},
		{name: "empty Content-Type", handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "")
			_, _ = io.WriteString(w, html)
		}},
		{name: "Content-Encoding", handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = io.WriteString(w, "\x1f\x8b not really")
		}},
		{name: "flushed before the type is known", handler: func(w http.ResponseWriter, _ *http.Request) {
			flush(w)
			_, _ = io.WriteString(w, html)
		}},
		{name: "flushed when the type is known", handler: func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, html[:2])
			flush(w)
			_, _ = io.WriteString(w, html[2:])
		}},
		{name: "encoded and flushed", handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "br")
			flush(w)
			_, _ = io.WriteString(w, html)
		}},
	}
}

func flush(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }

func flushSpecimens() []specimen {
	return []specimen{
		{name: "Flush alone", handler: func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush() }},
		{name: "201, flush, write", handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "/1")
			w.WriteHeader(201)
			w.(http.Flusher).Flush()
			_, _ = io.WriteString(w, "later")
		}},
		{name: "204 and flush", handler: func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(204)
			flush(w)
		}},
		{name: "write, flush, write, flush", handler: func(w http.ResponseWriter, _ *http.Request) {
			for range 3 {
				_, _ = io.WriteString(w, "piece ")
				flush(w)
			}
			_, _ = w.Write([]byte("end"))
		}},
		{name: "flushed with a length", handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "6")
			_, _ = io.WriteString(w, "012")
			flush(w)
			_, _ = io.WriteString(w, "345")
		}},
		{name: "flushed with a length not reached", released: true, handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "9")
			_, _ = io.WriteString(w, "012")
			flush(w)
			_, _ = io.WriteString(w, "345")
		}},
		{name: "server-sent events", handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			w.Header().Set("Cache-Control", "no-cache")
			for i := range 5 {
				_, _ = fmt.Fprintf(w, "id: %d\ndata: tick\n\n", i)
				flush(w)
			}
		}},
	}
}

func copySpecimens() []specimen {
	file := func(n int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			f, err := os.CreateTemp("", "specimen")
			if err != nil {
				panic(err)
			}
			defer func() { _, _ = f.Close(), os.Remove(f.Name()) }()
			_, _ = f.WriteString(fill(n))
			_, _ = f.Seek(0, io.SeekStart)
			w.WriteHeader(201)
			if n, err := io.Copy(w, f); err != nil {
				panic(fmt.Sprint(n, err))
			}
		}
	}
	return []specimen{
		{name: "io.Copy of a short file", handler: file(100)},
		{name: "io.Copy of a file", handler: file(1000), length: true},
		{name: "io.Copy of a long file", handler: file(100_000)},
		{name: "io.Copy of a LimitedReader", handler: func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.Copy(w, io.LimitReader(strings.NewReader(fill(5000)), 400))
		}},
		{name: "io.CopyN and bytes.Buffer", handler: func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.CopyN(w, strings.NewReader(fill(5000)), 300)
			_, _ = bytes.NewBufferString("rest").WriteTo(w)
		}},
	}
}

func helperSpecimens() []specimen {
	content := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Etag", `"v1"`)
		http.ServeContent(w, r, "file.txt", time.Unix(1e9, 0), strings.NewReader(fill(5000)))
	}
	return []specimen{
		{name: "fmt.Fprintf", handler: func(w http.ResponseWriter, r *http.Request) { _, _ = fmt.Fprintf(w, "%s %s", r.Method, r.Proto) }},
		{name: "json.Encoder", handler: func(w http.ResponseWriter, _ *http.Request) {
			_ = json.NewEncoder(w).Encode(map[string]any{"a": 1, "b": []int{1, 2}})
		}},
		{name: "http.Error", handler: func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "cannot", http.StatusUnprocessableEntity) }},
		{name: "http.NotFound", handler: http.NotFound},
		{name: "http.Redirect", handler: func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere?a=b", http.StatusSeeOther)
		}},
		{name: "http.SetCookie", handler: func(w http.ResponseWriter, _ *http.Request) {
			http.SetCookie(w, &http.Cookie{Name: "session", Value: "secret"})
		}},
		{name: "http.ServeContent", handler: content},
		{name: "http.ServeContent of a range", handler: content, header: http.Header{"Range": {"bytes=10-19"}}},
		{name: "http.ServeContent of no range", handler: content, header: http.Header{"Range": {"bytes=9000-"}}},
		{name: "http.ServeContent, not matching", handler: content, header: http.Header{"If-Match": {`"v2"`}}},
	}
}

func trailerSpecimens() []specimen {
	late := func(body string, flushed bool) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, body)
			if flushed {
				flush(w)
			}
			w.Header().Set(http.TrailerPrefix+"X-Sum", "1234")
			w.Header().Add(http.TrailerPrefix+"X-Sum", "5678")
		}
	}
	declared := func(flushed bool) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "X-Sum, x-unset")
			w.Header().Add("Trailer", "Grpc-Status")
			_, _ = io.WriteString(w, "body")
			if flushed {
				flush(w)
			}
			w.Header().Set("X-Sum", "1234")
			w.Header().Set("Grpc-Status", "0")
			w.Header().Set("X-Undeclared", "lost")
		}
	}
	return []specimen{
		{name: "trailers", handler: declared(false)},
		{name: "trailers, flushed", handler: declared(true)},
		{name: "trailers without a body", handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "X-Sum")
			w.WriteHeader(200)
			w.Header().Set("X-Sum", "1234")
		}},
		{name: "undeclared trailers", handler: late("short", false), trailer: true},
		{name: "undeclared trailers, flushed", handler: late("short", true)},
		{name: "undeclared trailers, long body", handler: late(fill(10_000), false)},
	}
}

func controlSpecimens() []specimen {
	return []specimen{
		{name: "deadlines", handler: func(w http.ResponseWriter, _ *http.Request) {
			c := http.NewResponseController(w)
			_, _ = fmt.Fprintln(w, c.SetReadDeadline(time.Now().Add(time.Hour)), c.SetWriteDeadline(time.Now().Add(time.Hour)),
				c.SetReadDeadline(time.Time{}), c.SetWriteDeadline(time.Time{}))
		}},
		{name: "full duplex", handler: func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			_, _ = fmt.Fprintln(w, http.NewResponseController(w).EnableFullDuplex())
		}},
	}
}
