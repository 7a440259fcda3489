// Package idempotency is net/http middleware that makes retried requests safe.
package idempotency
