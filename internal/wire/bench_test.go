package wire_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/internal/wire"
)

func BenchmarkRecord(b *testing.B) {
	for _, size := range []struct {
		name  string
		bytes int
	}{{"1KiB", 1 << 10}, {"100KiB", 100 << 10}} {
		resp := &idempotency.Response{
			Status: 201,
			Header: http.Header{
				"Content-Type": {"application/json"}, "Location": {"/payments/4711"}, "Etag": {`"1"`},
				"Link": {"<a>", "<b>"}, "Cache-Control": {"no-store"}, "X-Request-Id": {"4711"},
			},
			Body: make([]byte, size.bytes),
			Time: time.Now(),
		}
		b.Run("encode/"+size.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := wire.EncodeRecord(token, fingerprint(), resp); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("clone/"+size.name, func(b *testing.B) { // the headers and the body alone
			b.ReportAllocs()
			for b.Loop() {
				_ = resp.Clone()
			}
		})
		encoded, err := wire.EncodeRecord(token, fingerprint(), resp)
		if err != nil {
			b.Fatal(err)
		}
		value := string(encoded)
		b.Run("decode/"+size.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := wire.Decode(value); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
