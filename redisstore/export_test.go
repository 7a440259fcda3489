package redisstore

import "github.com/retrysafe/idempotency"

// RedisKey is where the record of key lies.
func (s *Store) RedisKey(key idempotency.Key) string { return s.redisKey(key) }
