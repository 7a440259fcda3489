package pgstore

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// scan reads the one row of the statement read that there may be; nil when
// there is none.
func scan(rows pgx.Rows, err error) (*row, error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	if !rows.Next() {
		return nil, rows.Err()
	}
	c := cells{values: rows.RawValues(), fields: rows.FieldDescriptions(), types: rows.TypeMap()}
	r := &row{
		token:     c.text(0),
		hash:      c.text(1),
		status:    c.text(2),
		code:      c.number(3),
		header:    c.nullText(4),
		trailer:   c.nullText(5),
		body:      c.bytes(6),
		bodyLost:  c.flag(7),
		reference: c.text(8),
		hostTime:  c.nullText(9),
	}
	now := c.time(12)
	r.expires, r.free = c.time(10).Sub(now), c.time(11).Sub(now)
	rows.Close()
	if c.err == nil {
		c.err = rows.Err()
	}
	if c.err != nil {
		return nil, c.err
	}
	return r, nil
}

// cells are the values of a row as the server sent them. rows.Scan would do as
// well, but plans every column of every row anew, which costs as much as all
// the rest of reading an answer. What is not in the form that pgx asks for in
// its default mode is left to pgx.
type cells struct {
	values [][]byte
	fields []pgconn.FieldDescription
	types  *pgtype.Map
	err    error // the first
}

// nullText is a text that may be NULL.
type nullText struct {
	text  string
	valid bool
}

// nullNumber is a number that may be NULL.
type nullNumber struct {
	number int32
	valid  bool
}

func (c *cells) text(i int) (s string) {
	if v := c.values[i]; v != nil {
		switch c.fields[i].DataTypeOID {
		case pgtype.TextOID, pgtype.BPCharOID, pgtype.JSONOID: // the same in both formats
			return string(v)
		}
	}
	c.scan(i, &s)
	return s
}

func (c *cells) nullText(i int) nullText {
	if c.values[i] == nil {
		return nullText{}
	}
	return nullText{c.text(i), true}
}

// binary returns the value if it is in binary, and of that size.
func (c *cells) binary(i, size int) ([]byte, bool) {
	v := c.values[i]
	return v, c.fields[i].Format == pgtype.BinaryFormatCode && len(v) == size
}

// scan lets pgx read the value.
func (c *cells) scan(i int, to any) {
	err := c.types.Scan(c.fields[i].DataTypeOID, c.fields[i].Format, c.values[i], to)
	if c.err == nil {
		c.err = err
	}
}

func (c *cells) flag(i int) (b bool) {
	if v, ok := c.binary(i, 1); ok {
		return v[0] != 0
	}
	c.scan(i, &b)
	return b
}

func (c *cells) number(i int) nullNumber {
	if c.values[i] == nil {
		return nullNumber{}
	}
	if v, ok := c.binary(i, 4); ok {
		return nullNumber{int32(binary.BigEndian.Uint32(v)), true} //nolint:gosec // the bits of an int4
	}
	n := nullNumber{valid: true}
	c.scan(i, &n.number)
	return n
}

// bytes is a copy: the server's bytes lie in a buffer of the connection.
func (c *cells) bytes(i int) (b []byte) {
	v := c.values[i]
	if v == nil {
		return nil
	}
	if c.fields[i].Format == pgtype.BinaryFormatCode {
		return append(make([]byte, 0, len(v)), v...)
	}
	c.scan(i, &b)
	return b
}

// epoch is where PostgreSQL counts microseconds from: the year 2000.
const epoch = 946684800 * int64(time.Second/time.Microsecond)

func (c *cells) time(i int) (t time.Time) {
	if v, ok := c.binary(i, 8); ok {
		us := int64(binary.BigEndian.Uint64(v)) //nolint:gosec // the bits of an int8
		// The two ends stand for infinity, of which pgx makes an error.
		if us != math.MaxInt64 && us != math.MinInt64 {
			return time.UnixMicro(epoch + us)
		}
	}
	c.scan(i, &t)
	return t
}
