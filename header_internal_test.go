package idempotency

import (
	"strings"
	"testing"

	"github.com/dunglas/httpsfv"
	"github.com/stretchr/testify/require"
)

func TestParseKey(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("k", 255)
	for _, tc := range []struct {
		name  string
		lines []string
		key   string
		err   error
	}{
		{"bare", []string{"K"}, "K", nil},
		{"bare, visible ASCII", []string{"!#$%&'()*+-./0:<=>?@A[]^_`a{|}~"}, "!#$%&'()*+-./0:<=>?@A[]^_`a{|}~", nil},
		{"surrounding spaces", []string{" \t K \t"}, "K", nil},
		{"quoted", []string{`"K"`}, "K", nil},
		{"quoted, spaces inside count", []string{`" K "`}, " K ", nil},
		{"quoted, what bare cannot hold", []string{`"a,b;c d"`}, "a,b;c d", nil},
		{"quoted, escapes", []string{`"a\"b\\c"`}, `a"b\c`, nil},
		{"quoted, parameters", []string{`"K";a;b=1;c="x;y";d=?0;e=:aGk=:;f=tok/en;g=-1.5; h=@1659578233;i=%"f%c3%bc"`}, "K", nil},
		{"case counts", []string{"k"}, "k", nil},
		{"255 bytes", []string{long}, long, nil},
		{"255 bytes quoted", []string{`"` + long + `"`}, long, nil},
		{"255 bytes after unquoting", []string{`"` + long[1:] + `\\"`}, long[1:] + `\`, nil},
		{"256 bytes", []string{long + "k"}, "", errKeyTooLong},
		{"256 bytes quoted", []string{`"` + long + `k"`}, "", errKeyTooLong},
		{"two lines", []string{"K", "K"}, "", errKeyRepeated},
		{"no line", nil, "", errKeyRepeated},
		{"empty", []string{""}, "", errKeyEmpty},
		{"only spaces", []string{"  \t"}, "", errKeyEmpty},
		{"empty quoted", []string{`""`}, "", errKeyEmpty},
		{"list", []string{"a,b"}, "", errKeyBare},
		{"bare with parameter", []string{"K;a=1"}, "", errKeyBare},
		{"space inside", []string{"a b"}, "", errKeyBare},
		{"quotation mark inside", []string{`a"b`}, "", errKeyBare},
		{"backslash", []string{`a\b`}, "", errKeyBare},
		{"control character", []string{"a\x01b"}, "", errKeyBare},
		{"NUL", []string{"a\x00"}, "", errKeyBare},
		{"DEL", []string{"a\x7f"}, "", errKeyBare},
		{"not ASCII", []string{"schlüssel"}, "", errKeyBare},
		{"open quote", []string{`"K`}, "", errKeyQuoted},
		{"open quote after escape", []string{`"K\"`}, "", errKeyQuoted},
		{"escape of nothing", []string{`"K\`}, "", errKeyQuoted},
		{"escape of another character", []string{`"\K"`}, "", errKeyQuoted},
		{"control character quoted", []string{"\"a\x1fb\""}, "", errKeyQuoted},
		{"not ASCII quoted", []string{`"ü"`}, "", errKeyQuoted},
		{"text after the quotes", []string{`"K"x`}, "", errKeyQuoted},
		{"list of strings", []string{`"K", "L"`}, "", errKeyQuoted},
		{"parameter without name", []string{`"K";`}, "", errKeyQuoted},
		{"parameter in capitals", []string{`"K";A=1`}, "", errKeyQuoted},
		{"parameter without value", []string{`"K";a=`}, "", errKeyQuoted},
		{"parameter with 16 digits", []string{`"K";a=1234567890123456`}, "", errKeyQuoted},
		{"parameter with 4 decimals", []string{`"K";a=1.2345`}, "", errKeyQuoted},
		{"parameter with broken base64", []string{`"K";a=:a:`}, "", errKeyQuoted},
		{"parameter with decimal date", []string{`"K";a=@1.5`}, "", errKeyQuoted},
		{"parameter with invalid UTF-8", []string{`"K";a=%"%ff"`}, "", errKeyQuoted},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			key, err := parseKey(tc.lines)
			require.Equal(t, tc.err, err)
			require.Equal(t, tc.key, key)
		})
	}
}

// FuzzParseKey compares quoted keys with another parser of RFC 9651, and states
// what bare ones may hold.
func FuzzParseKey(f *testing.F) {
	for _, seed := range []string{
		"K", `"K"`, ` "K" `, `"K";a=1`, `"K";a=?1;b=:aGk=:;c=@1;d=%"%c3%a4";e=a/b;f=-1.5;*="x\"y"`,
		`"\\"`, `"K`, `""`, "a,b", "\"\x7f\"", `"K";a=:a:`, `"K";a=1.`, `"K";a=--1`, `"K" ;a`, `"K"; a`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		key, err := parseKey([]string{line})
		trimmed := strings.Trim(line, " \t")
		if !strings.HasPrefix(trimmed, `"`) {
			ok := trimmed != "" && len(trimmed) <= 255 && !strings.ContainsFunc(trimmed, func(r rune) bool {
				return r <= ' ' || r > '~' || strings.ContainsRune(`",;\`, r)
			})
			require.Equal(t, ok, err == nil, "%q: %v", line, err)
			if ok {
				require.Equal(t, trimmed, key)
			}
			return
		}
		item, oracle := httpsfv.UnmarshalItem([]string{trimmed})
		want, _ := item.Value.(string)
		if oracle != nil || want == "" || len(want) > 255 {
			require.Error(t, err, "%q", line)
			return
		}
		require.NoError(t, err, "%q", line)
		require.Equal(t, want, key)
	})
}
