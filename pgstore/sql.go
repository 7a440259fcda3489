package pgstore

import (
	"strings"
	"time"

	"github.com/retrysafe/idempotency"
)

// statements are the SQL of one table. Every argument is a string, a []byte, a
// bool or an integer with a cast beside it, so that all query modes of pgx take
// them, and every clock is the server's. What is compared is compared with
// clock_timestamp: a condition that is looked at again after waiting for a lock
// sees how late it is by then. What is written is counted from
// statement_timestamp, which is the same wherever it stands in a statement; a
// subquery that reads clock_timestamp once costs a join, a tenth of a claim and
// record. now() would be the start of the transaction.
//
// The first three arguments of a statement are the key's columns.
type statements struct {
	insert   string // the claim: key, hash, token, lease, lease+hold
	insertTx string // the same under the try-lock: …, lock; returns where the row is
	found    string // key: read, behind a claim that took nothing
	read     string // key
	audit    string // key, hash, token: counts a replay
	vacate   string // key, token: moves or deletes a row whose key is free, unless it is token's
	vacateTx string // key, lock: the same under the try-lock
	revive   string // key, token, lease, lease+hold
	replace  string // key, hash, token, lease, lease+hold, the replaced token
	complete string // key, token, then the answer
	upsert   string // key, token, then the answer, then hash
	record   string // complete by place: place, value, endpoint, token, then the answer; an error where there is no row
	extend   string // key, token, lease, lease+hold
	release  string // key, token
	forget   string // key
	sweep    string // limit
}

// columns are all columns, in the table's order.
const columns = `idempotency_key, endpoint, user_id, request_hash, status, status_code, response_headers,
  response_trailers, response_body, body_lost, reference, host_time, token, created_at, completed_at,
  expires_at, free_at, replays, last_replayed_at`

const (
	byKey = `idempotency_key = $1::text AND endpoint = $2::text AND user_id = $3::text`
	now   = `statement_timestamp()`

	claimColumns = `(idempotency_key, endpoint, user_id, request_hash, token, status, created_at, expires_at, free_at)`
	claimValues  = `SELECT $1::text, $2::text, $3::text, $4::text, $5::text, 'in_progress', ` + now + `,
  ` + now + ` + $6::bigint * interval '1 microsecond', ` + now + ` + $7::bigint * interval '1 microsecond'`
	keyConflict = ` ON CONFLICT (idempotency_key, endpoint, user_id) `

	// setAnswer writes the answer; $5 to $12.
	setAnswer = `status = 'completed', completed_at = ` + now + `,
  expires_at = ` + now + ` + $5::bigint * interval '1 microsecond',
  free_at = ` + now + ` + $5::bigint * interval '1 microsecond', status_code = $6::integer, response_headers = $7::text::json,
  response_trailers = $8::text::json, response_body = $9::bytea, body_lost = $10::boolean, reference = $11::text,
  host_time = $12::text`
	setComplete = `UPDATE {t} AS r SET ` + setAnswer + `
WHERE token = $4::text AND status = 'in_progress' AND `
	// byPlace finds the row that the same transaction inserted without reading
	// the index: under serializable isolation every reader of an index page
	// conflicts with those who insert into it, and all of them do.
	byPlace = `ctid = $1::text::tid AND idempotency_key = $2::text AND endpoint = $3::text`
	// tookNothing is true while the transaction has written nothing. Behind the
	// insert of a claim it spares the winner the look at the index, for the
	// same reason.
	tookNothing = ` AND pg_current_xact_id_if_assigned() IS NULL`

	// tryLock takes the key for the transaction, or is false at once where
	// another transaction has it. The table's oid keeps tables apart, by
	// whatever name they are reached.
	tryLock = `pg_try_advisory_xact_lock({lock}::bigint # {regclass}::regclass::oid::bigint)`
)

func newStatements(n names) statements {
	literal := "'" + strings.ReplaceAll(n.table, "'", "''") + "'"
	if strings.Contains(literal, `\`) {
		literal = "E" + strings.ReplaceAll(literal, `\`, `\\`)
	}
	fill := func(s, lock string) string {
		return strings.NewReplacer("{t}", n.table, "{h}", n.history, "{regclass}", literal, "{lock}", lock).Replace(s)
	}
	// remove deletes the rows that the condition names, or moves them.
	remove := func(condition string) string {
		if n.history == "" {
			return `DELETE FROM {t} WHERE ` + condition
		}
		return `WITH gone AS (DELETE FROM {t} WHERE ` + condition + ` RETURNING ` + columns + `)
INSERT INTO {h} (` + columns + `) SELECT ` + columns + ` FROM gone`
	}
	const free = `free_at <= clock_timestamp()`
	return statements{
		insert: fill(`INSERT INTO {t} `+claimColumns+` `+claimValues+keyConflict+`DO NOTHING`, ""),
		insertTx: fill(`INSERT INTO {t} `+claimColumns+` `+claimValues+` WHERE `+tryLock+keyConflict+`DO NOTHING
RETURNING ctid::text`, "$8"),
		found: fill(readRow+tookNothing, ""),
		read:  fill(readRow, ""),
		audit: fill(`UPDATE {t} SET replays = replays + 1, last_replayed_at = clock_timestamp() WHERE `+byKey+`
  AND request_hash = $4::text AND token <> $5::text AND status = 'completed' AND free_at > clock_timestamp()`+
			tookNothing, ""),
		vacate:   fill(remove(byKey+` AND `+free+` AND (token <> $4::text OR status = 'in_progress')`), ""),
		vacateTx: fill(remove(byKey+` AND `+free+` AND `+tryLock), "$4"),
		revive: fill(`UPDATE {t} SET expires_at = GREATEST(expires_at, `+now+` + $5::bigint * interval '1 microsecond'),
  free_at = GREATEST(free_at, `+now+` + $6::bigint * interval '1 microsecond')
WHERE `+byKey+` AND token = $4::text AND status = 'in_progress' AND free_at > clock_timestamp()`, ""),
		replace: fill(`UPDATE {t} SET request_hash = $4::text, token = $5::text,
  expires_at = `+now+` + $6::bigint * interval '1 microsecond',
  free_at = `+now+` + $7::bigint * interval '1 microsecond'
WHERE `+byKey+` AND token = $8::text AND status = 'in_progress'
  AND expires_at <= clock_timestamp() AND free_at > clock_timestamp()`, ""),
		complete: fill(setComplete+byKey, ""),
		upsert:   fill(upsertRow, ""),
		// Division by zero makes the COMMIT behind it a rollback: without a row
		// of this claim there is no record, and so there must be no work.
		record: fill(`WITH done AS (`+setComplete+byPlace+` RETURNING 1) SELECT 1 / count(*) FROM done`, ""),
		extend: fill(`UPDATE {t} SET expires_at = `+now+` + $5::bigint * interval '1 microsecond',
  free_at = `+now+` + $6::bigint * interval '1 microsecond'
WHERE `+byKey+` AND token = $4::text AND status = 'in_progress' AND free_at > clock_timestamp()`, ""),
		release: fill(`DELETE FROM {t} WHERE `+byKey+` AND token = $4::text AND status = 'in_progress'`, ""),
		forget:  fill(remove(byKey), ""),
		// The row lock is what keeps a key that is claimed at this moment: the
		// subquery looks at the row again once it has the lock. now() rather
		// than clock_timestamp(), which no index can serve; it is the earlier
		// of the two, and here the start of this statement.
		sweep: fill(remove(`ctid = ANY (ARRAY(SELECT ctid FROM {t} WHERE free_at <= now()
  ORDER BY free_at LIMIT $1::bigint FOR UPDATE SKIP LOCKED))`), ""),
	}
}

const readRow = `SELECT token, request_hash, status, status_code, response_headers, response_trailers, response_body,
  body_lost, reference, host_time, expires_at, free_at, clock_timestamp() FROM {t} WHERE ` + byKey

const upsertRow = `INSERT INTO {t} AS r (idempotency_key, endpoint, user_id, token, request_hash, status, created_at,
  completed_at, expires_at, free_at, status_code, response_headers, response_trailers, response_body, body_lost,
  reference, host_time)
SELECT $1::text, $2::text, $3::text, $4::text, $13::text, 'completed', ` + now + `, ` + now + `,
  ` + now + ` + $5::bigint * interval '1 microsecond', ` + now + ` + $5::bigint * interval '1 microsecond', $6::integer,
  $7::text::json, $8::text::json, $9::bytea, $10::boolean, $11::text, $12::text
ON CONFLICT (idempotency_key, endpoint, user_id) DO UPDATE SET status = 'completed',
  completed_at = EXCLUDED.completed_at, expires_at = EXCLUDED.expires_at, free_at = EXCLUDED.free_at,
  status_code = EXCLUDED.status_code, response_headers = EXCLUDED.response_headers,
  response_trailers = EXCLUDED.response_trailers, response_body = EXCLUDED.response_body,
  body_lost = EXCLUDED.body_lost, reference = EXCLUDED.reference, host_time = EXCLUDED.host_time
WHERE r.token = EXCLUDED.token AND r.status = 'in_progress'`

// micros is d in microseconds, rounded up, so that what is above zero stays so.
func micros(d time.Duration) int64 {
	us := d.Microseconds()
	if d > 0 && d%time.Microsecond != 0 {
		us++
	}
	return us
}

// both is lease and hold together, which must not overflow.
func both(lease, hold time.Duration) int64 { return micros(lease) + micros(hold) }

// columnsOf are the key's columns in the order of the statements.
func columnsOf(k idempotency.Key) (value, endpoint, user string) {
	return encodePart(k.Value), encodePart(k.Endpoint), encodePart(k.User)
}

// keyArgs are the first arguments of a statement, with room for more behind
// them. A shorter part of what they grow into serves another statement.
func keyArgs(k idempotency.Key, more int) []any {
	value, endpoint, user := columnsOf(k)
	return append(make([]any, 0, 3+more), value, endpoint, user)
}
