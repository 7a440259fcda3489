package redisstore

import "github.com/redis/go-redis/v9"

// The scripts. They compare strings and call plain commands, nothing that a
// Redis of 6.2 or a Valkey lacks. Their texts are constants: the server keeps
// every text it has ever seen.
//
// KEYS[1] is the key. A hint is published where ARGV names a channel; it is no
// part of the promise, so a refusal (no permission, say) does not fail the
// script. Time is the server's, and stands still while a script runs.

// lookScript reads a value and how long it lives in one instant, at the master: a
// client never sends a script to a replica. MULTI would do that too, but not on
// a server that is out of memory. ARGV: GETRANGE end.
var lookScript = redis.NewScript(`
return {redis.call('PTTL', KEYS[1]), redis.call('GETRANGE', KEYS[1], 0, ARGV[1])}
`)

// claimScript makes a claim live again for its own token, or takes a lapsed
// claim over. ARGV: claim prefix, value, lease ms, hold ms, GETRANGE end, claim
// prefix of the one to replace or "".
//
// 1: the claim is held. 0: there is neither.
//
// Neither the lease nor the hold of the own claim gets shorter. Where the value
// stays as it is only the time is set: a server out of memory allows that.
//
// Numbers go through tonumber: a hold has leading zeros, and arithmetic on such a
// text is octal in the Lua of miniredis.
var claimScript = redis.NewScript(`
local v = redis.call('GETRANGE', KEYS[1], 0, ARGV[5])
local left = redis.call('PTTL', KEYS[1])
local lease, hold = tonumber(ARGV[3]), tonumber(ARGV[4])
if string.sub(v, 1, #ARGV[1]) == ARGV[1] then
  local held = tonumber(string.sub(v, -13))
  lease = math.max(lease, left - held)
  if hold > held then
    redis.call('SET', KEYS[1], string.sub(v, 1, -14) .. ARGV[4], 'PX', string.format('%.0f', lease + hold))
  else
    redis.call('PEXPIRE', KEYS[1], string.format('%.0f', lease + held))
  end
  return 1
end
if ARGV[6] ~= '' and string.sub(v, 1, #ARGV[6]) == ARGV[6]
  and left >= 0 and left <= tonumber(string.sub(v, -13)) then
  redis.call('SET', KEYS[1], ARGV[2], 'PX', string.format('%.0f', lease + hold))
  return 1
end
return 0
`)

// extendScript sets the lease and the hold of a claim. ARGV: claim prefix, done
// prefix, GETRANGE end, hold ms, lease and hold ms.
//
// 1: extended. 2: completed by this token. 0: lost.
var extendScript = redis.NewScript(`
local v = redis.call('GETRANGE', KEYS[1], 0, ARGV[3])
local head = string.sub(v, 1, #ARGV[1])
if head == ARGV[1] then
  if string.sub(v, -13) == ARGV[4] then
    redis.call('PEXPIRE', KEYS[1], ARGV[5])
  else
    redis.call('SET', KEYS[1], string.sub(v, 1, -14) .. ARGV[4], 'PX', ARGV[5])
  end
  return 1
end
if head == ARGV[2] then return 2 end
return 0
`)

// completeScript makes a value the record. ARGV: claim prefix, done prefix,
// value, TTL ms, channel.
//
// 1: stored. 3: this token has completed it before. 0: lost.
var completeScript = redis.NewScript(`
local head = redis.call('GETRANGE', KEYS[1], 0, #ARGV[1] - 1)
if head == ARGV[1] or head == '' then
  redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[4])
  if ARGV[5] ~= '' then redis.pcall('PUBLISH', ARGV[5], KEYS[1]) end
  return 1
end
if head == ARGV[2] then return 3 end
return 0
`)

// promoteScript is completeScript for a value that lies under KEYS[2] already,
// so that a large one does not pass through Lua, which copies and hashes every
// string while the whole server waits. ARGV: claim prefix, done prefix, TTL ms,
// channel.
//
// -1: nothing lies there; send it again.
var promoteScript = redis.NewScript(`
local head = redis.call('GETRANGE', KEYS[1], 0, #ARGV[1] - 1)
if head == ARGV[1] or head == '' then
  if redis.call('EXISTS', KEYS[2]) == 0 then return -1 end
  redis.call('RENAME', KEYS[2], KEYS[1])
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
  if ARGV[4] ~= '' then redis.pcall('PUBLISH', ARGV[4], KEYS[1]) end
  return 1
end
redis.call('DEL', KEYS[2])
if head == ARGV[2] then return 3 end
return 0
`)

// releaseScript removes the claim of a token. ARGV: claim prefix, channel.
var releaseScript = redis.NewScript(`
if redis.call('GETRANGE', KEYS[1], 0, #ARGV[1] - 1) == ARGV[1] then
  redis.call('DEL', KEYS[1])
  if ARGV[2] ~= '' then redis.pcall('PUBLISH', ARGV[2], KEYS[1]) end
end
return 0
`)

// forgetScript removes whatever lies under the key. ARGV: channel.
var forgetScript = redis.NewScript(`
redis.call('DEL', KEYS[1])
if ARGV[1] ~= '' then redis.pcall('PUBLISH', ARGV[1], KEYS[1]) end
return 0
`)
