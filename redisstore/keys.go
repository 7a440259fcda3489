package redisstore

import (
	"math"
	"time"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/internal/wire"
)

// redisKey is where the record of key lies: the prefix, a hash tag, and the key
// in its readable form.
//
// The tag comes before any text of a user's and the prefix holds no brace, so
// the tag alone chooses the slot of a cluster. It is made of the key, to spread
// the keys over the slots.
func (s *Store) redisKey(key idempotency.Key) string {
	text := key.String()
	tag := hash(text)
	return s.prefix + "{" + string(tag[:]) + "}" + text
}

// hash returns the FNV-1a of text as 8 digits.
func hash(text string) (tag [8]byte) {
	const digits = "0123456789abcdef"
	h := uint32(2166136261)
	for i := range len(text) {
		h = (h ^ uint32(text[i])) * 16777619
	}
	for i := range tag {
		tag[i] = digits[h>>(28-4*i)&15]
	}
	return tag
}

// tempKey is where a large record lies for an instant, in the slot of its key.
// No Key has as many separators, so it is nobody's record.
func tempKey(redisKey, token string) string { return redisKey + "|new|" + token }

// longest is the longest lease, hold or TTL in milliseconds, 146 years: lease
// and hold are one expiry on the server, and together fit a time.Duration.
const longest = wire.MaxMilliseconds / 2

// millis returns d in milliseconds, rounded up, from 1 to longest.
func millis(d time.Duration) int64 {
	if d <= 0 {
		return 1
	}
	ms := int64(d / time.Millisecond)
	if d%time.Millisecond != 0 {
		ms++
	}
	return min(ms, longest)
}

// holdMillis is millis, but nothing for no hold.
func holdMillis(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return millis(d)
}

// duration is the inverse of millis, at least a millisecond: what is left of a
// record that exists is above zero.
func duration(ms int64) time.Duration {
	return time.Duration(min(max(ms, 1), wire.MaxMilliseconds)) * time.Millisecond
}

// forever is what is left of a record whose expiry somebody has taken away.
const forever = time.Duration(math.MaxInt64)
