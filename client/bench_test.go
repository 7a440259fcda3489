package client_test

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/retrysafe/idempotency/client"
)

// What a Transport adds to a request, over a Base that does nothing.
func BenchmarkRoundTrip(b *testing.B) {
	base := roundTripper(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 201, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
	})
	quiet := slog.New(slog.DiscardHandler)
	for name, rt := range map[string]http.RoundTripper{
		"base alone": base,
		"transport":  &client.Transport{Base: base, Logger: quiet},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, anywhere, strings.NewReader(payment))
				if err != nil {
					b.Fatal(err)
				}
				resp, err := rt.RoundTrip(req)
				if err != nil {
					b.Fatal(err)
				}
				resp.Body.Close()
			}
		})
	}
}
