package pgstore

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// What headerReader reads itself, it reads as JSON.
func FuzzHeaderReader(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"A": ["b"]}`, `{"A": ["b", "c"], "B": null, "C": []}`, `{"A": ["\u00E9\"\\"], "\u00E9": [""]}`,
		`{"A":["b"]}`, `{"B": [], "A": []}`, `{"A": [], "A": ["b"]}`, `{"A": [null]}`, `{"A": "b"}`, `[1]`, `null`, ``,
		`{"A": ["b"]} `, `{"A": ["b"]}x`, `{"A": ["b"], }`, `{"A": ["b", ]}`, `{, "A": []}`, `{"A": ["é"]}`, `{"A": ["\u0101"]}`, `{"A": ["\n"]}`,
		`{"A": ["\u00e9"]}`, `{"A": ["\u00"]}`, `{"A": ["\`, `{"A": ["b`, `{"A": [`, `{"A`, `{"A": ["\u00zz"]}`, "{\"\x7f\": []}",
		`{"[[[": ["]"]}`, `{"": []}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r := headerReader{rest: s}
		got := r.header()
		if r.strange {
			return
		}
		want, err := decodeJSONHeader(s)
		require.NoError(t, err)
		require.Equal(t, want, got)
	})
}

// What encodeHeader writes needs no JSON decoder to be read, and comes back.
func FuzzHeaderRoundTrip(f *testing.F) {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	f.Add("Content-Type", "text/plain", "Link", "<a>", byte(0))
	f.Add(string(every), string(every), "", "", byte(3))
	f.Add(`"`, `\`, `\u00`, `", "`, byte(4))
	f.Fuzz(func(t *testing.T, name1, value1, name2, value2 string, shape byte) {
		h := http.Header{name1: {value1, value2}, name2: {value2}}
		switch shape % 5 {
		case 1:
			h[name2] = nil
		case 2:
			h[name1] = []string{}
		case 3:
			h = http.Header{name1: nil}
		case 4:
			h = http.Header{}
		}
		text := encodeHeader(h).(string)
		r := headerReader{rest: text}
		got := r.header()
		require.False(t, r.strange, text)
		require.Equal(t, h, got, text)
		for name, values := range got {
			require.Len(t, values, cap(values), "%q: an append would reach into the next one's", name)
		}
		got, err := decodeJSONHeader(text)
		require.NoError(t, err)
		require.Equal(t, h, got, text)
	})
}
