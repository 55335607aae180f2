-- Boards with exact_top: the sorted set holds the first so many, and beside it
--   s  hash   bucket → records of all players: length of the id (one byte), id, value; "n" → number of buckets
--      value: 8 bytes of the number, big-endian and signed, then in the prefixed form the 8 bytes of the prefix
--   t  hash   how many players have a score in each step: fine steps by their number, coarse ones of 64 as "c<number>"
--
-- Steps are those of a floating-point number with 9 bits behind the first: from 1,024 on, scores that differ by less than
-- a thousandth share a step. A step's number grows with the score.

local tail = {}

tail.COARSE = 64 -- fine steps in a coarse one
tail.OCTAVE = 512 -- fine steps from a power of two to the next
tail.COARSE_MAX = 65 * 8 -- 2^64 is beyond every score

function tail.step(score)
  if score == 0 then
    return 0
  end
  local fraction, exponent = math.frexp(math.abs(score))
  local step = exponent * tail.OCTAVE + math.floor((fraction - 0.5) * 2 * tail.OCTAVE)
  return score > 0 and step or -step
end

-- The score of a value, as near as a double comes. `origin` is the score of the lowest key in the packed form.
function tail.score(value, scale, direction, origin)
  local number = struct.unpack('>l', value)
  if scale > 0 then
    return origin + direction * math.floor(number / scale)
  end
  local key = number * 2048 + string.byte(value, 9) * 256 + string.byte(value, 10)
  return direction > 0 and key or -key - 1
end

-- Returns where a player's record begins in a bucket and its value; nil when there is none.
function tail.find(bucket, player, value_bytes)
  local record = string.char(#player) .. player
  local found = string.find(bucket, record, 1, true)
  local at = 1
  -- What was found may lie across records: only where one begins does it count.
  while found do
    while at < found do
      at = at + 1 + string.byte(bucket, at) + value_bytes
    end
    if at == found then
      local first = at + #record
      return at, string.sub(bucket, first, first + value_bytes - 1)
    end
    found = string.find(bucket, record, found + 1, true)
  end
  return nil
end

function tail.without(bucket, at, player, value_bytes)
  return string.sub(bucket, 1, at - 1) .. string.sub(bucket, at + 1 + #player + value_bytes)
end

local function tail_count(changes, value, shape, by)
  local step = tail.step(tail.score(value, shape.scale, shape.direction, shape.origin))
  changes[tostring(step)] = (changes[tostring(step)] or 0) + by
  local coarse = 'c' .. math.floor(step / tail.COARSE)
  changes[coarse] = (changes[coarse] or 0) + by
end

-- Writes what is kept of players, in and below the top. `shape` is {scale, direction, origin, bytes of a value}; rows are
-- {player, hash, number, prefix, …}, gone {player, hash, …}.
local function tail_write(scores, steps, buckets, shape, rows, gone)
  local stored = redis.call('HGET', scores, 'n')
  local count = tonumber(stored or buckets)
  local texts, changes = {}, {}
  local function open(hash)
    local name = string.format('%.0f', hash % count)
    texts[name] = texts[name] or redis.call('HGET', scores, name) or ''
    return name
  end
  local function take_out(name, player)
    local at, value = tail.find(texts[name], player, shape.bytes)
    if at then
      tail_count(changes, value, shape, -1)
      texts[name] = tail.without(texts[name], at, player, shape.bytes)
    end
  end
  for index = 1, #rows, 4 do
    local name = open(rows[index + 1])
    take_out(name, rows[index])
    local value = struct.pack('>l', tonumber(rows[index + 2])) .. rows[index + 3]
    tail_count(changes, value, shape, 1)
    texts[name] = texts[name] .. string.char(#rows[index]) .. rows[index] .. value
  end
  for index = 1, #gone, 2 do
    take_out(open(gone[index + 1]), gone[index])
  end
  if not stored then
    redis.call('HSET', scores, 'n', buckets)
  end
  for name, text in pairs(texts) do
    if text == '' then
      redis.call('HDEL', scores, name)
    else
      redis.call('HSET', scores, name, text)
    end
  end
  for step, by in pairs(changes) do
    if by ~= 0 and redis.call('HINCRBY', steps, step, by) <= 0 then
      redis.call('HDEL', steps, step)
    end
  end
end

-- Takes out of a sorted set whoever stands behind the last of the top, who may be on another shard.
local function tail_cut(standing, prefixes, number, member)
  local is_here = redis.call('ZSCORE', standing, member)
  redis.call('ZADD', standing, number, member)
  local first = redis.call('ZRANK', standing, member) + 1
  if not is_here then
    redis.call('ZREM', standing, member) -- it only showed where to cut
    first = first - 1
  end
  if prefixes then
    local players = {}
    for index, other in ipairs(redis.call('ZRANGE', standing, first, -1)) do
      players[index] = string.sub(other, 9)
    end
    for index = 1, #players, VALUES_A_CALL do
      redis.call('HDEL', prefixes, unpack(players, index, math.min(index + VALUES_A_CALL - 1, #players)))
    end
  end
  redis.call('ZREMRANGEBYRANK', standing, first, -1)
end

-- rankd_tail_find: ARGV instance, player, bucket hash, bytes of a value.
-- Reply: the value or false, whether the player is in the top.
local function tail_find(keys, args)
  local line, fields = read.head(keys[1])
  if line == '' or fields.version ~= LAYOUT_VERSION then
    return {line, false}
  end
  local prefix = string.sub(keys[1], 1, -5) .. fields.generation .. ':'
  local z, s, t = prefix .. 'z:' .. args[1], prefix .. 's:' .. args[1], prefix .. 't:' .. args[1]
  read.count_present(keys[1], prefix .. 'i', z, s, t)
  local form = redis.call('HGET', prefix .. 'i', args[1])
  if not form then
    return {line, false}
  end
  local buckets = tonumber(redis.call('HGET', s, 'n') or '1')
  local bucket = redis.call('HGET', s, string.format('%.0f', tonumber(args[3]) % buckets)) or ''
  local packed = cmsgpack.unpack(form)[1] == 'packed'
  local _, value = tail.find(bucket, args[2], packed and 8 or 16)
  if not value then
    return {line, form, false, 0}
  end
  local member = packed and args[2] or string.sub(value, 9) .. args[2]
  return {line, form, value, redis.call('ZSCORE', z, member) and 1 or 0}
end

-- rankd_tail_count: ARGV instance, value, scale, direction, origin.
-- Reply: how many are in the top, have a better step, have the same step; the step.
local function tail_count_better(keys, args)
  local line, fields = read.head(keys[1])
  if line == '' or fields.version ~= LAYOUT_VERSION then
    return {line, false}
  end
  local prefix = string.sub(keys[1], 1, -5) .. fields.generation .. ':'
  local z, s, t = prefix .. 'z:' .. args[1], prefix .. 's:' .. args[1], prefix .. 't:' .. args[1]
  read.count_present(keys[1], prefix .. 'i', z, s, t)
  local form = redis.call('HGET', prefix .. 'i', args[1])
  if not form then
    return {line, false}
  end
  local direction = tonumber(args[4])
  local step = tail.step(tail.score(args[2], tonumber(args[3]), direction, tonumber(args[5])))
  local coarse = math.floor(step / tail.COARSE)
  local better, wanted = 0, {}
  -- Keys grow as scores get worse: with direction 1 less is better, and better steps are those below.
  local first, last = coarse + 1, tail.COARSE_MAX
  local fine_first, fine_last = step + 1, (coarse + 1) * tail.COARSE - 1
  if direction > 0 then
    first, last = -tail.COARSE_MAX - 1, coarse - 1
    fine_first, fine_last = coarse * tail.COARSE, step - 1
  end
  for number = first, last do
    wanted[#wanted + 1] = 'c' .. number
  end
  for number = fine_first, fine_last do
    wanted[#wanted + 1] = tostring(number)
  end
  if #wanted > 0 then
    for _, count in ipairs(redis.call('HMGET', t, unpack(wanted))) do
      better = better + tonumber(count or '0')
    end
  end
  local level = tonumber(redis.call('HGET', t, tostring(step)) or '0')
  return {line, form, redis.call('ZCARD', z), better, level, step}
end

redis.register_function{function_name = 'rankd_tail_find', callback = tail_find, flags = {'no-writes'}}
redis.register_function{function_name = 'rankd_tail_count', callback = tail_count_better, flags = {'no-writes'}}
