package idempotency_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// stuckWriter takes what it is given for as long as the test wants, but for its
// last byte.
type stuckWriter struct{ entered, end chan struct{} }

func (w stuckWriter) Write(p []byte) (int, error) {
	close(w.entered)
	<-w.end
	return len(p) - 1, io.ErrShortWrite
}

// As with net/http, a request body is over when the handler has returned, also
// for a goroutine that it left behind; and none of those holds up the answer.
func TestHTTPBodyEndsWithHandler(t *testing.T) {
	t.Parallel()
	writer := stuckWriter{make(chan struct{}), make(chan struct{})}
	copied := make(chan error, 1)
	var body io.Reader
	web := newSite(t, http1, guard().Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body = r.Body
		go func() {
			_, err := io.Copy(writer, r.Body)
			copied <- err
		}()
		<-writer.entered
		w.WriteHeader(http.StatusAccepted)
	})))
	require.Equal(t, http.StatusAccepted, web.post("/", "K", "some text").Status)
	_, err := body.Read(make([]byte, 1))
	require.ErrorIs(t, err, http.ErrBodyReadAfterClose)
	close(writer.end)
	require.ErrorIs(t, <-copied, io.ErrShortWrite)
	_, err = body.Read(make([]byte, 1))
	require.ErrorIs(t, err, http.ErrBodyReadAfterClose)
	_, err = io.Copy(io.Discard, body)
	require.ErrorIs(t, err, http.ErrBodyReadAfterClose)
}

// What a short write did not take can still be read.
func TestHTTPBodyAfterShortWrite(t *testing.T) {
	t.Parallel()
	web := newSite(t, http1, guard().Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		short := stuckWriter{make(chan struct{}), make(chan struct{})}
		close(short.end)
		_, err := io.Copy(short, r.Body)
		rest, readErr := io.ReadAll(io.MultiReader(strings.NewReader(err.Error()+": "), r.Body))
		if readErr == nil {
			_, _ = w.Write(rest)
		}
	})))
	require.Equal(t, "short write: t", web.post("/", "K", "some text").Body)
}
