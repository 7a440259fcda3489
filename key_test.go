package idempotency_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
)

func TestNewKey(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 256)
	for _, tc := range []struct {
		name, text, part string
	}{
		{"plain", "alice", "alice"},
		{"empty", "", ""},
		{"a space stays", "POST /a b", "POST /a b"},
		{"percent", "50%", "50%25"},
		{"separator", "a|b", "a%7Cb"},
		{"line end", "a\r\nb", "a%0D%0Ab"},
		{"not ASCII", "ü", "%C3%BC"},
		{"invalid UTF-8", "\xff", "%FF"},
		{"DEL", "\x7f", "%7F"},
		{"255 bytes", long[1:], long[1:]},
		{"256 bytes", long, long[:189] + "%~d9c7fb7e4c6a3ab0"},
		{"85 escapes", strings.Repeat("\x00", 85), strings.Repeat("%00", 85)},
		{"86 escapes", strings.Repeat("\x00", 86), strings.Repeat("%00", 63) + "%~"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			for _, got := range []string{
				idempotency.NewKey(tc.text, "", "").User,
				idempotency.NewKey("", tc.text, "").Endpoint,
				idempotency.NewKey("", "", tc.text).Value,
			} {
				require.LessOrEqual(t, len(got), 255)
				if !strings.Contains(tc.part, "%~") {
					require.Equal(t, tc.part, got)
				} else {
					visible, _, _ := strings.Cut(tc.part, "%~")
					require.True(t, strings.HasPrefix(got, visible+"%~"), got)
					require.Len(t, got, len(visible)+2+64)
				}
			}
		})
	}
}

func TestKeyString(t *testing.T) {
	t.Parallel()
	require.Equal(t, "alice|POST /payments|order-1", idempotency.NewKey("alice", "POST /payments", "order-1").String())
	require.Equal(t, "a%7Cb|c|", idempotency.NewKey("a|b", "c", "").String())
	require.Equal(t, "|a%7Cb|c|", idempotency.Key{User: "a|b", Endpoint: "c"}.String())
	require.Equal(t, "|a|b%0A|c%25", idempotency.Key{User: "a", Endpoint: "b\n", Value: "c%"}.String())
}

// hostile texts: those that look like another's escape, shortening or separator.
func hostileTexts() []string {
	long := strings.Repeat("k", 300)
	texts := []string{
		"", " ", "a", "|", "||", "%", "%7C", "%257C", "a|b", "a%7Cb", "%~", "\x00", "\n", "\r\n", "{a}", "é", "e\u0301", "\xc3", "*", "a:b",
		long, long + "k", long + "|", strings.Repeat("%", 100), strings.Repeat("|", 255),
	}
	// What NewKey makes of them is a text like any other.
	for _, text := range texts[:len(texts):len(texts)] {
		texts = append(texts, idempotency.NewKey(text, "", "").User)
	}
	return texts
}

func TestKeysNeverMeet(t *testing.T) {
	t.Parallel()
	seen := make(map[string]string)
	made := make(map[idempotency.Key]string)
	texts := hostileTexts()
	distinct := make(map[string]bool)
	for _, a := range texts {
		if distinct[a] {
			continue
		}
		distinct[a] = true
		for _, b := range []string{"", "b", "|", "%7C", "b|"} {
			for _, c := range []string{"", "c", "|c"} {
				story := fmt.Sprintf("%q %q %q", a, b, c)
				key := idempotency.NewKey(a, b, c)
				require.Empty(t, made[key], "NewKey of %s", story)
				made[key] = story
				for _, k := range []idempotency.Key{key, {User: a, Endpoint: b, Value: c}} {
					s := k.String()
					require.NotContains(t, s, "\n")
					if other, ok := seen[s]; ok {
						require.Equal(t, other, fmt.Sprintf("%q", k), "both are written %q", s)
					}
					seen[s] = fmt.Sprintf("%q", k)
				}
			}
		}
	}
}

func FuzzKey(f *testing.F) {
	f.Add("a", "b", "c", "a", "b|c", "")
	f.Add("a|b", "c", "", "a", "b|c", "")
	f.Add("%7C", "", "", "|", "", "")
	f.Add(strings.Repeat("x", 256), "", "", strings.Repeat("x", 257), "", "")
	f.Add(strings.Repeat("\x00", 86), "", "", "%00", "", "")
	f.Fuzz(func(t *testing.T, u1, e1, v1, u2, e2, v2 string) {
		same := u1 == u2 && e1 == e2 && v1 == v2
		k1, k2 := idempotency.NewKey(u1, e1, v1), idempotency.NewKey(u2, e2, v2)
		require.Equal(t, same, k1 == k2)
		require.Equal(t, same, k1.String() == k2.String())
		for _, part := range []string{k1.User, k1.Endpoint, k1.Value} {
			require.LessOrEqual(t, len(part), 255)
			require.False(t, strings.ContainsFunc(part, func(r rune) bool { return r < ' ' || r > '~' || r == '|' }), part)
		}
		h1, h2 := idempotency.Key{User: u1, Endpoint: e1, Value: v1}, idempotency.Key{User: u2, Endpoint: e2, Value: v2}
		require.Equal(t, same, h1.String() == h2.String(), "%q %q", h1, h2)
		require.Equal(t, k1 == h2, k1.String() == h2.String(), "%q %q", k1, h2)
		require.False(t, strings.ContainsFunc(h1.String(), func(r rune) bool { return r < ' ' || r > '~' }))
	})
}

func TestRequireUUID(t *testing.T) {
	t.Parallel()
	for _, key := range []string{
		"9b2d7c1e-7d0b-4c5e-9c2f-0a1b2c3d4e5f", "9B2D7C1E-7D0B-4C5E-9C2F-0A1B2C3D4E5F", "00000000-0000-7000-8000-000000000000",
	} {
		require.NoError(t, idempotency.RequireUUID(key), key)
	}
	for _, key := range []string{
		"", "order-1", "9b2d7c1e7d0b4c5e9c2f0a1b2c3d4e5f", "{9b2d7c1e-7d0b-4c5e-9c2f-0a1b2c3d4e5f}",
		"9b2d7c1e-7d0b-4c5e-9c2f-0a1b2c3d4e5g", "9b2d7c1e-7d0b-4c5e-9c2f-0a1b2c3d4e5", "9b2d7c1e-7d0b-4c5e-9c2f-0a1b2c3d4e5f0",
		"9b2d7c1e-7d0b-4c5e-9c2f_0a1b2c3d4e5f", "9b2d7c1e-7d0b-4c5e-9c2f-0a1b2c3d4\x105f",
	} {
		err := idempotency.RequireUUID(key)
		var e *idempotency.Error
		require.True(t, errors.As(err, &e), key)
		require.Equal(t, idempotency.CodeKeyInvalid, e.Code)
		if key != "" {
			require.NotContains(t, e.Detail, key)
		}
	}
}
