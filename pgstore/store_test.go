package pgstore_test

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/pgstore"
)

// bothStores runs f with a store of each kind.
func bothStores(t *testing.T, f func(t *testing.T, fix fixture, s idempotency.Store)) {
	t.Run("New", func(t *testing.T) {
		t.Parallel()
		fix := newFixture(t, newPool(t, 8))
		f(t, fix, fix.store())
	})
	t.Run("NewTx", func(t *testing.T) {
		t.Parallel()
		fix := newFixture(t, newPool(t, 8))
		f(t, fix, fix.txStore())
	})
}

func allBytes() []byte {
	b := make([]byte, 256)
	for i := range b {
		b[i] = byte(i)
	}
	return b
}

func TestResponsesComeBackExactly(t *testing.T) {
	t.Parallel()
	every := string(allBytes())
	responses := map[string]*idempotency.Response{
		"nothing but a status": {Status: 204},
		"empty is not nil":     {Status: 200, Body: []byte{}, Header: http.Header{}, Trailer: http.Header{}},
		"a nil body with headers": {
			Status: 201, Header: http.Header{"Location": {"/a"}}, Trailer: http.Header{"X-Sum": {"1"}},
		},
		"repeated, empty and missing values": {Status: 299, Header: http.Header{
			"Link": {"</a>; rel=next", "</b>; rel=prev"}, "Vary": {"a", "b"}, "X-Empty": {""},
			"Content-Type": nil, "X-None": {}, "odd-CASE": {"kept"},
		}},
		"every byte":        {Status: 200, Header: http.Header{"X-Every": {every}}, Body: allBytes(), Reference: every},
		"obs-text":          {Status: 200, Header: http.Header{"X-Name": {"caf\xe9 \xff\xfe", "käse", "日本"}}},
		"quotes":            {Status: 200, Header: http.Header{"Etag": {`"a\b"`}, `X-"Q\`: {"'; drop table x; --"}}},
		"invalid UTF-8":     {Status: 200, Body: []byte("a\xff\xfeb\xe2\x82")},
		"JSON as it is":     {Status: 200, Body: []byte("\xef\xbb\xbf{\"b\":1,  \"a\":1,\"a\":2}\n")},
		"1 MiB":             {Status: 200, Body: bytes.Repeat(allBytes(), 4096)},
		"a body not kept":   {Status: 200, BodyLost: true},
		"percent reference": {Status: 200, Reference: "100%25 of ch_1%"},
		"nanoseconds":       {Status: 200, Time: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)},
	}
	bothStores(t, func(t *testing.T, _ fixture, s idempotency.Store) {
		for name, resp := range responses {
			t.Run(name, func(t *testing.T) {
				requireReplay(t, s, recorded(t, s, resp.Clone()), resp)
			})
		}
	})
}

func TestDistinctKeysNeverMeet(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 70_000)
	keys := []idempotency.Key{
		{},
		{Value: "a"}, {Endpoint: "a"}, {User: "a"},
		{User: "a", Endpoint: "b", Value: "c"}, {User: "b", Endpoint: "a", Value: "c"},
		{User: "a|b", Endpoint: "", Value: "c"}, {User: "a", Endpoint: "b|", Value: "c"},
		{Value: "K"}, {Value: "k"}, {Value: " k"}, {Value: "k "},
		{Value: "\x00"}, {Value: "\x00\x00"}, {Value: "%00"}, {Value: "%~%00"}, {Value: "%~"}, {Value: "%~%25~"},
		{Value: "\xff"}, {Value: "\xfe"}, {Value: "\ufffd"}, {Value: "é"}, {Value: "e\u0301"}, {Value: `\`}, {Value: "'"},
		{Value: long}, {Value: long + "x"}, {Value: long + "\x00"}, {Value: long[:255]}, {Value: long[:256]},
		{User: long, Endpoint: long, Value: long}, {User: long, Endpoint: long, Value: long + "y"},
		idempotency.NewKey(long, long, long), idempotency.NewKey("\xff", "é", "\x00"),
	}
	// What one key's column holds is another key.
	keys = append(keys, idempotency.Key{Value: "%~" + strings.Repeat("x", 187) + "%~" + strings.Repeat("0", 64)})
	bothStores(t, func(t *testing.T, fix fixture, s idempotency.Store) {
		for i, k := range keys {
			c := again(idempotency.Claim{Key: k, Fingerprint: idempotency.Fingerprint{byte(i)}})
			rec, err := s.Claim(t.Context(), c, lease)
			requireHeld(t, rec, err)
			if tx, ok := s.(idempotency.TxStore); ok {
				tx.Bind(t.Context(), c)
			}
			require.NoError(t, s.Complete(t.Context(), c, &idempotency.Response{Status: 200 + i}, ttl))
		}
		for i, k := range keys {
			rec, err := s.(idempotency.Inspector).Lookup(t.Context(), k)
			require.NoError(t, err)
			require.NotNil(t, rec, "%.40q", k)
			require.Equal(t, 200+i, rec.Response.Status, "%.40q", k)
		}
	})
}

func TestTokensComeBackExactly(t *testing.T) {
	t.Parallel()
	s := newStore(t, newPool(t, 4))
	for _, token := range []string{"", "a", "%", "%41", "\x00\xff", strings.Repeat("t", 5000)} {
		c := newClaim()
		c.Token = token
		rec, err := s.Claim(t.Context(), c, lease)
		requireHeld(t, rec, err)
		rec, err = s.Claim(t.Context(), again(c), lease)
		require.NoError(t, err)
		require.Equal(t, token, rec.Token)
		require.NoError(t, s.Complete(t.Context(), c, newResponse("x"), ttl))
		requireReplay(t, s, c, newResponse("x"))
	}
}

// The columns are what an auditor reads.
func TestRowIsReadable(t *testing.T) {
	t.Parallel()
	bothStores(t, func(t *testing.T, fix fixture, s idempotency.Store) {
		resp := newResponse(`{"id":1}`)
		resp.Reference = "ch_123"
		resp.Header["X-Name"] = []string{"caf\xe9"}
		c := recorded(t, s, resp)
		require.True(t, query[bool](t, fix, `SELECT idempotency_key = $1 AND endpoint = 'POST /things' AND user_id = 'user'
			AND request_hash = $2 AND status = 'completed' AND status_code = 201 AND reference = 'ch_123'
			AND response_headers->'Location'->>0 = '/things/1' AND response_body = '{"id":1}'
			AND token = $3 AND created_at <= completed_at AND expires_at = completed_at + interval '1 hour'
			AND free_at = expires_at AND replays = 0 AND last_replayed_at IS NULL
			AND host_time::timestamptz = '2026-05-06T07:08:09.123457Z'
			FROM %s`, c.Key.Value, c.Fingerprint.String(), c.Token))
		require.JSONEq(t, `{"Content-Type": ["text/plain"], "Location": ["/things/1"], "X-Name": ["café"]}`,
			query[string](t, fix, `SELECT response_headers::text FROM %s`))
	})
}

func TestQueryModes(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			pool := newPool(t, 4, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
			fix := newFixture(t, pool)
			history := newName(t)
			opts := []pgstore.Option{pgstore.WithReplayAudit(), pgstore.WithHistory(history)}
			require.NoError(t, fix.store(opts...).Migrate(t.Context()))
			exerciseMode(t, fix, fix.store(opts...))
			exerciseMode(t, fix, fix.txStore(opts...))
		})
	}
}

func exerciseMode(t *testing.T, fix fixture, s idempotency.Store) {
	resp := newResponse(string(allBytes()))
	resp.Header["X-Every"] = []string{string(allBytes())}
	c := recorded(t, s, resp)
	requireReplay(t, s, c, resp)
	require.NoError(t, s.Complete(t.Context(), c, newResponse("again"), ttl))
	require.ErrorIs(t, s.Complete(t.Context(), again(c), newResponse("late"), ttl), idempotency.ErrClaimLost)
	require.NoError(t, s.Extend(t.Context(), c, lease))
	requireReplay(t, s, c, resp)
	require.EqualValues(t, 2, query[int](t, fix, "SELECT replays FROM %s WHERE idempotency_key = $1", c.Key.Value))

	fix.pass(t, c.Key, 2*ttl)
	c = again(c)
	rec, err := s.Claim(t.Context(), c, lease)
	requireHeld(t, rec, err)
	require.NoError(t, s.Release(t.Context(), c))
	found, err := s.(idempotency.Inspector).Lookup(t.Context(), c.Key)
	require.NoError(t, err)
	require.Nil(t, found)
}

func TestTables(t *testing.T) {
	t.Parallel()
	pool := newPool(t, 4)

	t.Run("two tables do not meet", func(t *testing.T) {
		t.Parallel()
		for _, pair := range [][2]idempotency.Store{
			{newStore(t, pool), newStore(t, pool)},
			{newTxStore(t, pool), newTxStore(t, pool)},
		} {
			c := claimed(t, pair[0])
			second := again(c)
			rec, err := pair[1].Claim(t.Context(), second, lease)
			requireHeld(t, rec, err)
			require.NoError(t, pair[0].Release(t.Context(), c))
			require.NoError(t, pair[1].Release(t.Context(), second))
		}
	})
	t.Run("one table by two names is one table", func(t *testing.T) {
		t.Parallel()
		fix := newFixture(t, pool)
		schema, bare, _ := strings.Cut(fix.name, ".")
		other := newPool(t, 2, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["search_path"] = schema })
		s := fix.txStore()
		c := claimed(t, s)
		rec, err := pgstore.NewTx(other, pgstore.WithTable(bare)).Claim(t.Context(), again(c), lease)
		require.NoError(t, err)
		require.NotNil(t, rec)
		require.NoError(t, s.Release(t.Context(), c))
	})
	t.Run("names that would break SQL", func(t *testing.T) {
		t.Parallel()
		for _, name := range []string{`it's "quoted"`, `back\slash`, `Sélect`, strings.Repeat("n", 63), `{t} %s $1`} {
			name := testServer.schema + "." + name
			history := testServer.schema + ".h" + name[len(testServer.schema)+2:]
			for _, s := range []interface {
				idempotency.Store
				Migrate(ctx context.Context) error
			}{
				pgstore.New(pool, pgstore.WithTable(name), pgstore.WithHistory(history)),
				pgstore.NewTx(pool, pgstore.WithTable(name), pgstore.WithHistory(history)),
			} {
				require.NoError(t, s.Migrate(t.Context()))
				requireReplay(t, s, recorded(t, s, newResponse("x")), newResponse("x"))
			}
		}
	})
	t.Run("the schema without Migrate", func(t *testing.T) {
		t.Parallel()
		schema := testServer.schema + "_own"
		require.NoError(t, onServer("CREATE SCHEMA "+schema))
		t.Cleanup(func() { require.NoError(t, onServer("DROP SCHEMA "+schema+" CASCADE")) })
		own := newPool(t, 2, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["search_path"] = schema })
		for range 2 {
			_, err := own.Exec(t.Context(), pgstore.Schema)
			require.NoError(t, err)
		}
		s := pgstore.New(own)
		requireReplay(t, s, recorded(t, s, newResponse("x")), newResponse("x"))
		require.NoError(t, s.Migrate(t.Context()))
	})
}

func TestMigrateAtTheSameMoment(t *testing.T) {
	t.Parallel()
	pool := newPool(t, 8)
	name, history := newName(t), newName(t)
	var all sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		all.Go(func() {
			errs[i] = pgstore.New(pool, pgstore.WithTable(name), pgstore.WithHistory(history)).Migrate(t.Context())
		})
	}
	all.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
}

func TestSenselessOptionsPanic(t *testing.T) {
	t.Parallel()
	pool := &pgxpool.Pool{}
	for name, f := range map[string]func(){
		"no pool":            func() { pgstore.New(nil) },
		"no pool for tx":     func() { pgstore.NewTx(nil) },
		"empty table":        func() { pgstore.WithTable("") },
		"empty schema":       func() { pgstore.WithTable(".a") },
		"two dots":           func() { pgstore.WithTable("a.b.c") },
		"NUL":                func() { pgstore.WithTable("a\x00b") },
		"cut by PostgreSQL":  func() { pgstore.WithTable(strings.Repeat("n", 64)) },
		"history is table":   func() { pgstore.New(pool, pgstore.WithTable("a"), pgstore.WithHistory("a")) },
		"tx options on New":  func() { pgstore.New(pool, pgstore.WithTxOptions(pgx.TxOptions{})) },
		"read only":          func() { pgstore.NewTx(pool, pgstore.WithTxOptions(pgx.TxOptions{AccessMode: pgx.ReadOnly})) },
		"sweep without rest": func() { pgstore.New(pool).SweepEvery(t.Context(), 0, 1, nil) },
	} {
		require.Panics(t, f, name)
	}
}

// Rows that a hand or another program has spoilt.
func TestCorruptRecords(t *testing.T) {
	t.Parallel()
	bothStores(t, func(t *testing.T, fix fixture, s idempotency.Store) {
		for _, set := range []string{
			`response_headers = '[1]'`, `response_headers = '{"A": "b"}'`, `response_headers = '{"A": ["Ā"]}'`,
			`response_trailers = '3'`, `request_hash = 'zz'`, `request_hash = 'abcd'`,
			`host_time = 'yesterday'`, `reference = '%%4'`, `token = '%%zz'`, `status_code = NULL`, `status = 'done'`,
		} {
			t.Run(set, func(t *testing.T) {
				c := recorded(t, s, newResponse("x"))
				fix.exec(t, "UPDATE %s SET "+set+" WHERE idempotency_key = $1", c.Key.Value)
				rec, err := s.Claim(t.Context(), again(c), lease)
				require.ErrorIs(t, err, idempotency.ErrCorrupt)
				require.Nil(t, rec)
				_, err = s.(idempotency.Inspector).Lookup(t.Context(), c.Key)
				require.ErrorIs(t, err, idempotency.ErrCorrupt)
				requireReturned(t, fix.pool)
			})
		}
		c := recorded(t, s, newResponse("x"))
		fix.exec(t, "UPDATE %s SET free_at = 'infinity' WHERE idempotency_key = $1", c.Key.Value)
		_, err := s.Claim(t.Context(), again(c), lease)
		require.Error(t, err, "no time is left of an infinite one")
		requireReturned(t, fix.pool)

		c = recorded(t, s, newResponse("x"))
		fix.exec(t, "UPDATE %s SET status = 'done' WHERE idempotency_key = $1", c.Key.Value)
		require.Error(t, s.Complete(t.Context(), c, newResponse("x"), ttl), "it is not completed")
	})
}
