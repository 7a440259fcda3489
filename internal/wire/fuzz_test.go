package wire_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/internal/wire"
)

// FuzzDecode: no bytes make Decode panic, what it refuses is corrupt, and what
// it accepts comes out of Encode and Decode as it went in.
func FuzzDecode(f *testing.F) {
	f.Add(string(wire.EncodeClaim(token, fingerprint(), 1)))
	b, err := wire.EncodeRecord(token, fingerprint(), fullResponse())
	require.NoError(f, err)
	f.Add(string(b))
	f.Fuzz(func(t *testing.T, s string) {
		v, err := wire.Decode(s)
		if err != nil {
			require.ErrorIs(t, err, idempotency.ErrCorrupt)
			return
		}
		if v.Response == nil {
			require.True(t, strings.HasPrefix(s, wire.ClaimPrefix(v.Token)))
			require.Equal(t, s, string(wire.EncodeClaim(v.Token, v.Fingerprint, v.Hold)))
			return
		}
		require.True(t, strings.HasPrefix(s, wire.DonePrefix(v.Token)))
		b, err := wire.EncodeRecord(v.Token, v.Fingerprint, v.Response)
		require.NoError(t, err)
		again, err := wire.Decode(string(b))
		require.NoError(t, err)
		require.Equal(t, v, again)
	})
}

// FuzzRecord: every response comes out as it went in.
func FuzzRecord(f *testing.F) {
	f.Add("token", 201, "Link", "a", "b", "Trailer", "ref", []byte("body"), int64(1), true, false)
	f.Fuzz(func(t *testing.T, tok string, status int, name, v1, v2, trailer, ref string, body []byte, ns int64, lost, none bool) {
		want := &idempotency.Response{
			Status:    status,
			Header:    http.Header{name: {v1, v2}, name + "-2": {v2}, name + "-3": nil},
			Trailer:   http.Header{trailer: {v1}},
			Body:      body,
			BodyLost:  lost,
			Reference: ref,
			Time:      time.Unix(0, ns).UTC(),
		}
		if none {
			want.Header, want.Trailer, want.Body, want.Time = nil, nil, nil, time.Time{}
		}
		b, err := wire.EncodeRecord(tok, fingerprint(), want)
		require.NoError(t, err)
		got, err := wire.Decode(string(b))
		require.NoError(t, err)
		require.Equal(t, wire.Value{Token: tok, Fingerprint: fingerprint(), Response: want}, got)
	})
}
