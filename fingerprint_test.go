package idempotency_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"math/big"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
)

func printOf(t testing.TB, f idempotency.FingerprintFunc, target, body string) idempotency.Fingerprint {
	t.Helper()
	print, err := f(httptest.NewRequest(http.MethodPost, target, nil), []byte(body))
	require.NoError(t, err)
	return print
}

func TestFingerprintBody(t *testing.T) {
	t.Parallel()
	body := func(target, body string) idempotency.Fingerprint {
		return printOf(t, idempotency.FingerprintBody, target, body)
	}
	require.Equal(t, idempotency.Fingerprint(sha256.Sum256([]byte("b1"))), body("/p", "b1"))
	require.Equal(t, idempotency.Fingerprint(sha256.Sum256(nil)), body("/p?", ""))
	require.Equal(t, body("/p?a=1", "b1"), body("/other?a=1", "b1"))
	sum := sha256.Sum256([]byte("b1"))
	require.Equal(t, hex.EncodeToString(sum[:]), body("/p", "b1").String())

	// However query and body are cut, and whatever a body without a query holds,
	// they differ. The last ones are what a fingerprint of both is computed from.
	seen := make(map[idempotency.Fingerprint]string)
	for _, tc := range [][2]string{
		{"/p", "b1"}, {"/p", "b2"}, {"/p", ""}, {"/p?a=1", "b1"}, {"/p?a=1b", "1"}, {"/p?a", "=1b1"}, {"/p?a=1&b=2", ""}, {"/p?b=2&a=1", ""},
		{"/p", "a=1b1"}, {"/p", "\x00\x00\x00\x00\x00\x00\x00\x03a=1b1"}, {"/p", "\x00\x00\x00\x00\x00\x00\x00\x00b1"},
	} {
		print := body(tc[0], tc[1])
		require.Empty(t, seen[print], "%q", tc)
		seen[print] = strings.Join(tc[:], " ")
	}
}

func TestFingerprintJSON(t *testing.T) {
	t.Parallel()
	deep := func(n int) string { return strings.Repeat("[", n) + " " + strings.Repeat("]", n) }
	for _, tc := range []struct {
		name, a, b string
		same       bool
	}{
		{"order of members", `{"a":1,"b":[2,{"c":3,"d":4}]}`, `{"b":[2,{"d":4,"c":3}],"a":1}`, true},
		{"white space", `{"a":[1,2]}`, " {\t\"a\" :\r\n [ 1 , 2 ] } ", true},
		{"escapes", `{"k\u00e9":"\u0041\/\n"}`, `{"ké":"A/\u000a"}`, true},
		{"surrogate pair", `"😀"`, `"\ud83d\uDE00"`, true},
		{"decimal value", `[1,100,0.5,-1.5]`, `[1.0,1e2,5E-1,-15e-1]`, true},
		{"zero", `[0,0,0]`, `[-0,0.00,0e99999999999999999999]`, true},
		{"large exponent", `1e100000000000000000000000`, `10e99999999999999999999999`, true},
		{"nothing", `{}`, ` { } `, true},
		{"order of elements", `[1,2]`, `[2,1]`, false},
		{"another value", `{"a":1}`, `{"a":2}`, false},
		{"another member", `{"a":1}`, `{"b":1}`, false},
		{"string and number", `["1"]`, `[1]`, false},
		{"null and absent", `{"a":null}`, `{}`, false},
		{"array and object", `[]`, `{}`, false},
		{"beyond float64", `9007199254740993`, `9007199254740992`, false},
		{"decimal beyond float64", `0.1`, `0.1000000000000000055511151231257827`, false},
		{"exponent beyond float64", `1e400`, `1e401`, false},
		{"sign", `1`, `-1`, false},
		{"lone surrogates", `"\ud800"`, `"\ud801"`, false},
		{"lone surrogate and replacement", `"\ud800"`, `"\ufffd"`, false},
		{"lone surrogate and its bytes", `"\ud800"`, "\"\xed\xa0\x80\"", false},
		{"lone surrogate, spelling", `"\uD800\n"`, `"\ud800\u000A"`, true},
		{"nesting", `[[1],2]`, `[[1,2]]`, false},
		{"strings that look like structure", `["a\",\"b"]`, `["a","b"]`, false},
		{"normal forms", `"é"`, "\"e\u0301\"", false},
		{"duplicate members, bytes count", `{"a":1,"a":2}`, `{"a":1, "a":2}`, false},
		{"duplicate members by escape", `{"a":1,"\u0061":2}`, `{"\u0061":2,"a":1}`, false},
		{"duplicate and the last of them", `{"a":1,"a":2}`, `{"a":2}`, false},
		{"invalid UTF-8, bytes count", "[\"\xff\"]", "[ \"\xff\"]", false},
		{"no JSON, bytes count", `{"a":1,}`, `{"a":1, }`, false},
		{"depth 1000", deep(1000), strings.ReplaceAll(deep(1000), " ", ""), true},
		{"depth 1001, bytes count", deep(1001), strings.ReplaceAll(deep(1001), " ", ""), false},
		{"not JSON's numbers", `01`, `1`, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			a, b := printOf(t, idempotency.FingerprintJSON, "/p", tc.a), printOf(t, idempotency.FingerprintJSON, "/p", tc.b)
			require.Equal(t, tc.same, a == b)
			require.NotEqual(t, a, printOf(t, idempotency.FingerprintJSON, "/p?q=1", tc.a), "the query counts")
		})
	}
	require.Equal(t, printOf(t, idempotency.FingerprintBody, "/p", "no JSON"), printOf(t, idempotency.FingerprintJSON, "/p", "no JSON"))
}

// A body is not worth more memory than its length, a few times: members out of
// order at every level of nesting would have a writer that sorts copies of them
// take the length times the depth.
func TestFingerprintJSONIsLinear(t *testing.T) { // not parallel: it counts what is allocated
	body := strings.Repeat(`{"b":1,"a":`, 900) + `"` + strings.Repeat("x", 1<<19) + `"` + strings.Repeat("}", 900)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	printOf(t, idempotency.FingerprintJSON, "/p", body)
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(10*len(body)))
}

// FuzzFingerprintJSON takes any body apart with another parser, shuffles and
// respaces it, and changes one value.
func FuzzFingerprintJSON(f *testing.F) {
	for _, seed := range []string{
		`{"a":1,"b":[true,null,"x\u0041"]}`, `[1.0,10e-1,-0]`, `{"a":{"c":1,"b":2},"":[]}`, `"\ud800"`, `{"a":1,"a":2}`, `1e400`, `9007199254740993`, `no`,
	} {
		f.Add([]byte(seed), uint64(1))
	}
	f.Fuzz(func(t *testing.T, body []byte, seed uint64) {
		print := printOf(t, idempotency.FingerprintJSON, "/p", string(body))
		value, comparable := parseJSON(body)
		if !comparable {
			if !utf8.Valid(body) || !json.Valid(body) {
				require.Equal(t, printOf(t, idempotency.FingerprintBody, "/p", string(body)), print)
			}
			return
		}
		random := rand.New(rand.NewPCG(seed, 1))
		var again bytes.Buffer
		writeShuffled(&again, value, random)
		require.Equal(t, print, printOf(t, idempotency.FingerprintJSON, "/p", again.String()), "%q and %q", body, again.Bytes())

		if changed, ok := changeOne(value, random); ok {
			var other bytes.Buffer
			writeShuffled(&other, changed, random)
			require.NotEqual(t, print, printOf(t, idempotency.FingerprintJSON, "/p", other.String()), "%q and %q", body, other.Bytes())
		}
	})
}

// jsonMember keeps members in the order of the body, duplicates included.
type jsonMember struct {
	name  string
	value any
}

// parseJSON parses a body that FingerprintJSON compares by value; it reports false
// for one that it compares by its bytes, or that this parser cannot tell.
func parseJSON(body []byte) (any, bool) {
	// encoding/json makes one of all lone surrogates.
	if !utf8.Valid(body) || !json.Valid(body) || bytes.Contains(bytes.ToLower(body), []byte(`\ud`)) {
		return nil, false
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	return parseValue(d, 0)
}

func parseValue(d *json.Decoder, depth int) (any, bool) {
	token, err := d.Token()
	if number, ok := token.(json.Number); err != nil || depth > 900 || ok && len(number) > 900 {
		return nil, false
	}
	switch token {
	case json.Delim('['):
		list := []any{}
		for d.More() {
			v, ok := parseValue(d, depth+1)
			if !ok {
				return nil, false
			}
			list = append(list, v)
		}
		_, err = d.Token()
		return list, err == nil
	case json.Delim('{'):
		members := []jsonMember{}
		for d.More() {
			name, err := d.Token()
			if err != nil {
				return nil, false
			}
			v, ok := parseValue(d, depth+1)
			if !ok || slices.ContainsFunc(members, func(m jsonMember) bool { return m.name == name }) {
				return nil, false
			}
			members = append(members, jsonMember{name.(string), v})
		}
		_, err = d.Token()
		return members, err == nil
	}
	return token, true
}

func writeShuffled(w *bytes.Buffer, value any, random *rand.Rand) {
	space := func() { w.WriteString([]string{"", "", " ", "\n\t"}[random.IntN(4)]) }
	space()
	switch v := value.(type) {
	case []any:
		w.WriteByte('[')
		for i, e := range v {
			if i > 0 {
				w.WriteByte(',')
			}
			writeShuffled(w, e, random)
		}
		space()
		w.WriteByte(']')
	case []jsonMember:
		w.WriteByte('{')
		for i, j := range random.Perm(len(v)) {
			if i > 0 {
				w.WriteByte(',')
			}
			writeShuffled(w, v[j].name, random)
			w.WriteByte(':')
			writeShuffled(w, v[j].value, random)
		}
		space()
		w.WriteByte('}')
	case json.Number:
		w.WriteString(respell(string(v), random))
	case string:
		quoted, _ := json.Marshal(v)
		_, _ = w.Write(quoted)
	default:
		plain, _ := json.Marshal(v)
		_, _ = w.Write(plain)
	}
	space()
}

// respell writes a number of moderate exponent as another of the same value.
func respell(number string, random *rand.Rand) string {
	if strings.ContainsAny(number, "eE") || random.IntN(2) == 0 {
		return number
	}
	if strings.Contains(number, ".") {
		return number + "0"
	}
	if number == "-0" || number == "0" {
		return "0.0"
	}
	return number + "0e-1"
}

// changeOne changes the first scalar into one of another value.
func changeOne(value any, random *rand.Rand) (any, bool) {
	switch v := value.(type) {
	case []any:
		for i, e := range v {
			if changed, ok := changeOne(e, random); ok {
				c := slices.Clone(v)
				c[i] = changed
				return c, true
			}
		}
		return append(slices.Clone(v), nil), true
	case []jsonMember:
		for i, m := range v {
			if changed, ok := changeOne(m.value, random); ok {
				c := slices.Clone(v)
				c[i].value = changed
				return c, true
			}
		}
		return append(slices.Clone(v), jsonMember{"", nil}), true
	case json.Number:
		if len(v) > 100 || strings.ContainsAny(string(v), "eE") {
			return nil, false
		}
		r, ok := new(big.Rat).SetString(string(v))
		if !ok {
			return nil, false
		}
		// The last digit of all counts, far beyond what a float64 can tell.
		places := 0
		if _, fraction, ok := strings.Cut(string(v), "."); ok {
			places = len(fraction)
		}
		least := new(big.Rat).SetFrac(big.NewInt(1), new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(places)), nil))
		return json.Number(r.Add(r, least).FloatString(places)), true
	case string:
		return v + "x", true
	case bool:
		return !v, true
	}
	return false, true
}

func BenchmarkFingerprint(b *testing.B) {
	body := []byte(`{"amount":100,"currency":"EUR","items":[` + strings.Repeat(`{"sku":"a-1","quantity":2,"price":10.50},`, 25) + `{}]}`)
	r := httptest.NewRequest(http.MethodPost, "/payments", nil)
	for name, f := range map[string]idempotency.FingerprintFunc{
		"body": idempotency.FingerprintBody, "json": idempotency.FingerprintJSON,
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				if _, err := f(r, body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("floor", func(b *testing.B) {
		b.SetBytes(int64(len(body)))
		for b.Loop() {
			sum := sha256.Sum256(body)
			_, _ = io.Discard.Write(sum[:])
		}
	})
}
