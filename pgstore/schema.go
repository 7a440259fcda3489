package pgstore

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

const (
	defaultTable = "idempotency_keys"
	defaultIndex = "idempotency_keys_free_at_idx"
	maxName      = 63 // longer names are cut by PostgreSQL, and two could become one
)

// Schema makes the table, for people with migrations of their own; Migrate
// executes the same statements. For another name than idempotency_keys replace
// it throughout.
//
// The columns, as an auditor reads them:
//
//   - idempotency_key, endpoint, user_id: the scope of the record, unique
//     together. Printable ASCII, as [idempotency.NewKey] writes it; a part that
//     NewKey cannot have made is kept behind the mark "%~" in the same
//     escaping, and cut with a SHA-256 at its end where it would be longer than
//     255 bytes. The collation "C" keeps the index apart from the collations of
//     the operating system, which change under a database.
//   - request_hash: the fingerprint of the request, in hexadecimal.
//   - status: 'in_progress' or 'completed'.
//   - status_code, response_headers, response_trailers, response_body: the
//     answer. Headers are a JSON object of arrays, names in order; one
//     character is one byte, so the bytes 0x80 to 0xff appear as the
//     characters \u0080 to \u00ff (ISO 8859-1). A name with null or without
//     values is one that the handler took away. Bodies are the bytes as sent.
//   - body_lost: the body was larger than the limit and was not kept.
//   - reference: the application's id of the operation; what is not printable
//     ASCII, and the percent sign, as %XX. Empty: none.
//   - host_time: when the handler finished by its host's clock, in the form of
//     RFC 3339, for people.
//   - token: of the attempt that made the claim, in the escaping of reference.
//   - created_at, completed_at: when the key was claimed and when its answer
//     was recorded, by the server's clock.
//   - expires_at: the end of the lease while in progress, of the TTL once
//     completed. free_at: from when on the key is free again; later than
//     expires_at where a lapsed claim goes on blocking its key.
//   - replays, last_replayed_at: kept under [WithReplayAudit].
//
// There are no CHECK constraints: PostgreSQL parses them anew for every
// statement that writes, which is a tenth of what claiming and recording cost
// it. A row that makes no sense is [idempotency.ErrCorrupt] to who reads it.
const Schema = `CREATE TABLE IF NOT EXISTS idempotency_keys (
  idempotency_key   text COLLATE "C" NOT NULL,
  endpoint          text COLLATE "C" NOT NULL,
  user_id           text COLLATE "C" NOT NULL,
  request_hash      char(64) NOT NULL,
  status            text NOT NULL,
  status_code       integer,
  response_headers  json,
  response_trailers json,
  response_body     bytea,
  body_lost         boolean NOT NULL DEFAULT false,
  reference         text NOT NULL DEFAULT '',
  host_time         text,
  token             text COLLATE "C" NOT NULL,
  created_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
  completed_at      timestamptz,
  expires_at        timestamptz NOT NULL,
  free_at           timestamptz NOT NULL,
  replays           bigint NOT NULL DEFAULT 0,
  last_replayed_at  timestamptz,
  PRIMARY KEY (idempotency_key, endpoint, user_id)
) WITH (fillfactor = 80);
CREATE INDEX IF NOT EXISTS idempotency_keys_free_at_idx ON idempotency_keys (free_at);
`

// historySchema makes the table of WithHistory; %[1]s is its name, %[2]s the
// name of its index, %[3]s the table whose rows it takes.
const historySchema = `CREATE TABLE IF NOT EXISTS %[1]s (
  LIKE %[3]s,
  archived_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX IF NOT EXISTS %[2]s ON %[1]s (idempotency_key, endpoint, user_id);
`

// Migrate makes the table, its index and, with [WithHistory], the table of the
// history. What is there already stays as it is, and several processes may
// migrate at the same moment. It needs the right to create tables; it fails
// with the error of the server, and has then changed nothing.
func (t *table) Migrate(ctx context.Context) error {
	script := t.names.schema()
	lock := lockNumber("migrate\x00" + t.names.table)
	err := pgx.BeginFunc(ctx, t.pool, func(tx pgx.Tx) error {
		// CREATE TABLE IF NOT EXISTS fails when two run it at once.
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1::bigint)", lock); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, script)
		return err
	})
	return wrap("migrate", err)
}

// names are the quoted names that the statements use.
type names struct {
	table, index          string
	history, historyIndex string // "" without a history
}

func (n names) schema() string {
	script := strings.NewReplacer(defaultIndex, n.index, defaultTable, n.table).Replace(Schema)
	if n.history != "" {
		script += fmt.Sprintf(historySchema, n.history, n.historyIndex, n.table)
	}
	return script
}

// lockNumber is the number of an advisory lock. Locks are the whole database's,
// so the text is hashed with the package's name.
func lockNumber(text string) int64 {
	sum := sha256.Sum256([]byte("pgstore\x00" + text))
	return int64(binary.BigEndian.Uint64(sum[:8])) //nolint:gosec // any 64 bits will do
}

// quoteTable turns "table" or "schema.table" into its quoted form, and panics
// when it is neither.
func quoteTable(option, name string) string {
	parts := strings.Split(name, ".")
	if len(parts) > 2 {
		panic("pgstore: " + option + " wants a table, or a schema and a table with one dot between them")
	}
	for _, p := range parts {
		if p == "" || len(p) > maxName || strings.ContainsRune(p, 0) {
			panic(fmt.Sprintf("pgstore: %s wants names of 1 to %d bytes without NUL", option, maxName))
		}
	}
	return pgx.Identifier(parts).Sanitize()
}

// quoteIndex is the quoted name of an index on the named table.
func quoteIndex(table, suffix string) string {
	base := table[strings.LastIndexByte(table, '.')+1:]
	name := base + suffix
	if len(name) > maxName {
		sum := sha256.Sum256([]byte(base))
		name = "idempotency_" + hex.EncodeToString(sum[:8]) + suffix
	}
	return pgx.Identifier{name}.Sanitize()
}
