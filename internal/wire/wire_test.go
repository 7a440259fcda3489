package wire_test

import (
	"crypto/sha256"
	"encoding/binary"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/internal/wire"
)

const token = "7XQ2MKVWYB4CJ6T3ZPNRD5HSEA"

func fingerprint() idempotency.Fingerprint { return sha256.Sum256([]byte("body")) }

func fullResponse() *idempotency.Response {
	return &idempotency.Response{
		Status: 201,
		Header: http.Header{
			"Content-Type": {"application/json"},
			"Location":     {"/payments/4711"},
			"Link":         {`</a>; rel="next"`, `</b>; rel="prev"`},
			"X-Empty":      {""},
			"X-Obs-Text":   {"caf\xe9 \xff\xfe"},
			"Date-Removed": nil,
			"X-No-Values":  {},
		},
		Trailer:   http.Header{"Checksum": {"abc"}},
		Body:      []byte("\x00\x01{\"b\":1,  \"a\":1}\xff\xfe\n"),
		BodyLost:  false,
		Reference: "payment 4711",
		Time:      time.Date(2026, 11, 29, 16, 50, 0, 123456789, time.UTC),
	}
}

// TestGolden holds every version to the bytes that were written when it was
// released: a file here never changes, and is never taken away.
func TestGolden(t *testing.T) {
	t.Parallel()
	lost := &idempotency.Response{Status: 200, BodyLost: true}
	record := func(r *idempotency.Response) func() ([]byte, error) {
		return func() ([]byte, error) { return wire.EncodeRecord(token, fingerprint(), r) }
	}
	tests := []struct {
		file   string
		want   wire.Value
		encode func() ([]byte, error)
	}{
		{
			file:   "v1-claim.golden",
			want:   wire.Value{Token: token, Fingerprint: fingerprint(), Hold: 86400000},
			encode: func() ([]byte, error) { return wire.EncodeClaim(token, fingerprint(), 86400000), nil },
		},
		{
			file:   "v1-record.golden",
			want:   wire.Value{Token: token, Fingerprint: fingerprint(), Response: fullResponse()},
			encode: record(fullResponse()),
		},
		{
			file:   "v1-body-lost.golden",
			want:   wire.Value{Token: token, Fingerprint: fingerprint(), Response: lost},
			encode: record(lost),
		},
	}
	for _, tt := range tests {
		t.Run(tt.file, func(t *testing.T) {
			t.Parallel()
			golden, err := os.ReadFile(filepath.Join("testdata", tt.file))
			require.NoError(t, err)
			got, err := wire.Decode(string(golden))
			require.NoError(t, err)
			require.Equal(t, tt.want, got)
			b, err := tt.encode()
			require.NoError(t, err)
			require.Equal(t, golden, b, "what is written now must be what the release before can read")
		})
	}
}

func TestResponseRoundTrip(t *testing.T) {
	t.Parallel()
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	many := http.Header{}
	for i := range 100 {
		many[strings.Repeat("x", i+1)] = []string{"a", "b"}
	}
	tests := map[string]*idempotency.Response{
		"zero":           {},
		"full":           fullResponse(),
		"negative":       {Status: -1},
		"odd status":     {Status: 299},
		"empty body":     {Body: []byte{}},
		"every byte":     {Body: every},
		"large body":     {Body: make([]byte, 1<<20)},
		"empty headers":  {Header: http.Header{}, Trailer: http.Header{}},
		"many headers":   {Header: many},
		"odd names":      {Header: http.Header{"": {"a"}, "not canonical": {"b"}, "\xff": nil}},
		"before 1970":    {Time: time.Date(1, 1, 1, 0, 0, 0, 1, time.UTC)},
		"every byte ref": {Reference: string(every)},
	}
	for name, want := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, tok := range []string{"", token, " 1 ", "P1:x", strings.Repeat("é\x00\n", 1000)} {
				b, err := wire.EncodeRecord(tok, fingerprint(), want)
				require.NoError(t, err)
				require.True(t, strings.HasPrefix(string(b), wire.DonePrefix(tok)))
				require.False(t, wire.IsClaim(string(b)))
				got, err := wire.Decode(string(b))
				require.NoError(t, err)
				require.Equal(t, wire.Value{Token: tok, Fingerprint: fingerprint(), Response: want}, got)
			}
		})
	}
}

func TestTimeIsAnInstant(t *testing.T) {
	t.Parallel()
	now := time.Now().In(time.FixedZone("", 3600))
	b, err := wire.EncodeRecord(token, fingerprint(), &idempotency.Response{Time: now})
	require.NoError(t, err)
	got, err := wire.Decode(string(b))
	require.NoError(t, err)
	require.True(t, now.Equal(got.Response.Time))
	require.Equal(t, time.UTC, got.Response.Time.Location())
}

func TestClaimRoundTrip(t *testing.T) {
	t.Parallel()
	for _, hold := range []int64{0, 1, 999, 86400000, wire.MaxMilliseconds} {
		for _, tok := range []string{"", token, strings.Repeat("a", 5000)} {
			b := wire.EncodeClaim(tok, fingerprint(), hold)
			require.True(t, strings.HasPrefix(string(b), wire.ClaimPrefix(tok)))
			require.True(t, strings.HasSuffix(string(b), " "+wire.FormatHold(hold)))
			require.Len(t, b, wire.ClaimLen(tok))
			require.True(t, wire.IsClaim(string(b)))
			got, err := wire.Decode(string(b))
			require.NoError(t, err)
			require.Equal(t, wire.Value{Token: tok, Fingerprint: fingerprint(), Hold: hold}, got)
		}
	}
	require.Equal(t, wire.FormatHold(0), wire.FormatHold(-1))
	require.Equal(t, wire.FormatHold(wire.MaxMilliseconds), wire.FormatHold(wire.MaxMilliseconds+1))
	require.Len(t, wire.FormatHold(wire.MaxMilliseconds), wire.HoldDigits)
}

// TestPrefixes: no token's prefix is the beginning of another's.
func TestPrefixes(t *testing.T) {
	t.Parallel()
	tokens := []string{"", "a", "aa", "a 1 ", "1:a", ":", token, token + "x", strings.Repeat("a", 10)}
	for _, a := range tokens {
		require.Len(t, wire.DonePrefix(a), len(wire.ClaimPrefix(a)))
		for _, b := range tokens {
			require.Equal(t, a == b, strings.HasPrefix(wire.ClaimPrefix(a), wire.ClaimPrefix(b)), "%q %q", a, b)
			require.False(t, strings.HasPrefix(wire.ClaimPrefix(a), wire.DonePrefix(b)))
		}
	}
}

func TestCorrupt(t *testing.T) {
	t.Parallel()
	claim := string(wire.EncodeClaim(token, fingerprint(), 1))
	b, err := wire.EncodeRecord(token, fingerprint(), fullResponse())
	require.NoError(t, err)
	record := string(b)
	tests := map[string]string{
		"empty":               "",
		"foreign":             `{"status":201}`,
		"unknown state":       "X" + claim[1:],
		"unknown version":     strings.Replace(claim, " 1 ", " 2 ", 1),
		"token length":        "P99" + claim[3:],
		"negative length":     "P-1:" + claim[4:],
		"huge length":         "P" + strings.Repeat("9", 100) + ":",
		"fingerprint":         strings.Replace(claim, " 1 ", " 1 g", 1),
		"hold":                claim[:len(claim)-1] + "x",
		"hold too large":      claim[:len(claim)-wire.HoldDigits] + "9999999999999",
		"behind a claim":      claim + "x",
		"behind a record":     record + "x",
		"completed, no reply": "C" + claim[1:],
		"meta length":         strings.Replace(record, "\n", "x", 1),
	}
	for i := range claim {
		tests["claim cut at "+string(rune('a'+i))] = claim[:i]
	}
	for name, s := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := wire.Decode(s)
			require.ErrorIs(t, err, idempotency.ErrCorrupt)
		})
	}
	for i := range record {
		_, err := wire.Decode(record[:i])
		require.ErrorIs(t, err, idempotency.ErrCorrupt, "cut at %d", i)
	}
}

// TestCountsAreNotTrusted: a few bytes that promise many headers cost little.
func TestCountsAreNotTrusted(t *testing.T) {
	t.Parallel()
	plain, err := wire.EncodeRecord(token, fingerprint(), &idempotency.Response{})
	require.NoError(t, err)
	// The meta of an empty response is flags, status, reference, body length,
	// and the two counts.
	head := string(plain[:len(plain)-6-9])
	const size = 1 << 20
	meta := append([]byte{0, 0, 0, 0}, binary.AppendUvarint(nil, size/2)...)
	meta = append(meta, make([]byte, size-len(meta))...)
	value := head + "00100000\n" + string(meta)
	result := testing.Benchmark(func(b *testing.B) {
		for b.Loop() {
			_, err := wire.Decode(value)
			require.ErrorIs(b, err, idempotency.ErrCorrupt)
		}
	})
	require.Less(t, result.AllocedBytesPerOp(), int64(2*size))
}

// TestAllocations: what Encode and Decode allocate beside the headers and the
// body, which a copy of the response needs as well.
func TestAllocations(t *testing.T) {
	resp := fullResponse()
	b, err := wire.EncodeRecord(token, fingerprint(), resp)
	require.NoError(t, err)
	value := string(b)
	var kept *idempotency.Response // so that nothing stays on the stack
	clone := testing.AllocsPerRun(100, func() { kept = resp.Clone() })
	decode := testing.AllocsPerRun(100, func() {
		v, _ := wire.Decode(value)
		kept = v.Response
	})
	encode := testing.AllocsPerRun(100, func() { _, _ = wire.EncodeRecord(token, fingerprint(), resp) })
	require.NotNil(t, kept)
	require.LessOrEqual(t, decode, clone+3)
	require.LessOrEqual(t, encode, 3.0)
}
