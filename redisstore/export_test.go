package redisstore

import "github.com/retrysafe/idempotency"

// RedisKey is where the record of key lies.
func (s *Store) RedisKey(key idempotency.Key) string { return s.redisKey(key) }

// Waiters is how many wait for key.
func (s *Store) Waiters(key idempotency.Key) int {
	s.waits.mu.Lock()
	defer s.waits.mu.Unlock()
	if w := s.waits.byKey[s.redisKey(key)]; w != nil {
		return w.waiters
	}
	return 0
}
