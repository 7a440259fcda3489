// Package pgstore keeps claims and records in PostgreSQL.
package pgstore
