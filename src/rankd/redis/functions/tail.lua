-- Boards with exact_top: the sorted set holds the first exact_top players, and beside it
--   s  hash   bucket → records of all players: length of the id (one byte), id, value
--      value: 8 bytes of the number, big-endian and signed, then in the prefixed form the 8 bytes of the prefix
--      "n" → number of buckets, "p" → number of players
--   t  hash   how many players have a score in each step: fine steps by their number, coarse ones of 64 as "c<number>"
--
-- Each score rewrites its whole bucket, so buckets are kept small by linear hashing: as players are added, buckets are
-- split one after the other, and no other bucket changes.
--
-- Steps are those of a floating-point number with 9 bits behind the first: from 1,024 on, scores that differ by less
-- than a thousandth share a step. A step's number grows with the score.

local tail = {}

tail.PLAYERS_A_BUCKET = 8
tail.COARSE = 64 -- fine steps in a coarse one
tail.OCTAVE = 512 -- fine steps from a power of two to the next
tail.COARSE_MAX = 65 * 8 -- 2^64 is beyond every score
tail.ID_BYTES_MAX = 255

function tail.step(score)
  if score == 0 then
    return 0
  end
  local fraction, exponent = math.frexp(math.abs(score))
  local step = exponent * tail.OCTAVE + math.floor((fraction - 0.5) * 2 * tail.OCTAVE)
  return score > 0 and step or -step
end

-- The score of a value, as near as a double comes. `shape` is {scale, direction, origin, bytes of a value}: `origin` is
-- the score of the lowest key in the packed form, and scores go in `direction` as keys grow.
function tail.score(value, shape)
  local number = struct.unpack('>l', value)
  if shape.scale > 0 then
    return shape.origin + shape.direction * math.floor(number / shape.scale)
  end
  local key = number * 2048 + (string.byte(value, 9) * 256 + string.byte(value, 10)) -- rounded once, as in score_of_key
  return shape.direction > 0 and key or -key - 1
end

-- Returns the shape of an instance's values, equal to the writer's (read/tail.py).
function tail.shape(view)
  local high, low = view.lowest_high, view.lowest_low
  if view.desc then
    high, low = -1 - high, 2047 - low
  end
  return {
    scale = view.packed and view.step or 0,
    direction = view.desc and -1 or 1,
    origin = high * 2048 + low,
    bytes = view.packed and 8 or 16,
  }
end

-- The score that a writer computes for this key, by the same roundings: else a step could be off by one.
function tail.score_of_key(view, shape, high, low)
  if shape.scale > 0 then
    return shape.origin + shape.direction * ((high - view.lowest_high) * 2048 + (low - view.lowest_low))
  end
  local key = high * 2048 + low
  return shape.direction > 0 and key or -key - 1
end

-- Returns the name of a player's bucket among so many.
function tail.bucket(player, buckets)
  local hash = tonumber(string.sub(redis.sha1hex(player), 1, 8), 16)
  local _, exponent = math.frexp(buckets)
  local half = 2 ^ (exponent - 1) -- the largest power of two that is not above
  local at = hash % (2 * half)
  return string.format('%.0f', at < buckets and at or at - half)
end

-- Returns where a player's record begins in a bucket and its value; nil when there is none.
function tail.find(bucket, player, value_bytes)
  local record = string.char(#player) .. player
  local found = string.find(bucket, record, 1, true)
  local at = 1
  -- A match may span two records: it counts only at the beginning of one.
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
  local step = tail.step(tail.score(value, shape))
  changes[tostring(step)] = (changes[tostring(step)] or 0) + by
  local coarse = 'c' .. math.floor(step / tail.COARSE)
  changes[coarse] = (changes[coarse] or 0) + by
end

-- Splits buckets in turn until there are enough for so many players; returns how many there are then.
local function tail_grow(scores, buckets, players, value_bytes)
  while buckets * tail.PLAYERS_A_BUCKET < players do
    local _, exponent = math.frexp(buckets)
    local old, new = string.format('%.0f', buckets - 2 ^ (exponent - 1)), string.format('%.0f', buckets)
    buckets = buckets + 1
    local text, at, stays, goes = redis.call('HGET', scores, old) or '', 1, {}, {}
    while at <= #text do
      local id_bytes = string.byte(text, at)
      local record = string.sub(text, at, at + id_bytes + value_bytes)
      local list = tail.bucket(string.sub(record, 2, 1 + id_bytes), buckets) == new and goes or stays
      list[#list + 1] = record
      at = at + #record
    end
    if #goes > 0 then
      redis.call('HSET', scores, new, table.concat(goes))
      if #stays > 0 then
        redis.call('HSET', scores, old, table.concat(stays))
      else
        redis.call('HDEL', scores, old)
      end
    end
  end
  return buckets
end

-- Writes the kept scores of players, in and below the top; rows are {player, number, prefix, …}, gone {player, …}.
-- `expected` is about how many players there will be.
local function tail_write(scores, steps, expected, shape, rows, gone)
  local stored = redis.call('HMGET', scores, 'n', 'p')
  local buckets, players = tonumber(stored[1] or '0'), tonumber(stored[2] or '0')
  if buckets == 0 then
    buckets = math.max(1, math.ceil(expected / tail.PLAYERS_A_BUCKET))
  end
  buckets = tail_grow(scores, buckets, #rows / 3, shape.bytes) -- there will be at least so many players
  local texts, changes = {}, {}
  local function open(player)
    local name = tail.bucket(player, buckets)
    texts[name] = texts[name] or redis.call('HGET', scores, name) or ''
    return name
  end
  local function take_out(name, player)
    local at, value = tail.find(texts[name], player, shape.bytes)
    if at then
      tail_count(changes, value, shape, -1)
      texts[name] = tail.without(texts[name], at, player, shape.bytes)
      players = players - 1
    end
  end
  for index = 1, #rows, 3 do
    local name = open(rows[index])
    take_out(name, rows[index])
    local value = struct.pack('>l', tonumber(rows[index + 1])) .. rows[index + 2]
    tail_count(changes, value, shape, 1)
    texts[name] = texts[name] .. string.char(#rows[index]) .. rows[index] .. value
    players = players + 1
  end
  for _, player in ipairs(gone) do
    take_out(open(player), player)
  end
  for name, text in pairs(texts) do
    if text == '' then
      redis.call('HDEL', scores, name)
    else
      redis.call('HSET', scores, name, text)
    end
  end
  buckets = tail_grow(scores, buckets, players, shape.bytes)
  redis.call('HSET', scores, 'n', buckets, 'p', players)
  for step, by in pairs(changes) do
    if by ~= 0 and redis.call('HINCRBY', steps, step, by) <= 0 then
      redis.call('HDEL', steps, step)
    end
  end
end

-- Removes the entries behind the last of the top, which may be on another shard, from a sorted set.
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

-- Reads of players below the top, also for the other parts of the library.

-- Returns the coarse step of the best score of this shard: better steps are empty.
function tail.best_coarse(view, shape)
  local best = redis.call('ZRANGE', view.z, 0, 0, 'WITHSCORES')
  if not best[1] then -- its best are below the top
    return view.desc and tail.COARSE_MAX or -tail.COARSE_MAX - 1
  end
  local value = struct.pack('>l', tonumber(best[2])) .. string.sub(best[1], 1, 8)
  return math.floor(tail.step(tail.score(value, shape)) / tail.COARSE)
end

-- Returns a function from a score to the number of players in better steps, and in the same step.
function tail.counter(view)
  local steps, shape = read.key(view, 't'), tail.shape(view)
  local towards = view.desc and -1 or 1 -- where worse steps are
  local next_coarse = steps and tail.best_coarse(view, shape)
  local better_of, better, blocks = {}, 0, {}
  local function count_up_to(coarse)
    local names = {}
    for number = next_coarse, coarse, towards do
      names[#names + 1] = 'c' .. number
    end
    if #names > 0 then
      for _, count in ipairs(redis.call('HMGET', steps, unpack(names))) do
        better_of[next_coarse] = better
        better = better + tonumber(count or '0')
        next_coarse = next_coarse + towards
      end
    end
  end
  local function load_block(coarse)
    count_up_to(coarse)
    local names, block, before = {}, { better = {}, level = {} }, better_of[coarse] or 0
    for at = 0, tail.COARSE - 1 do
      names[#names + 1] = tostring(coarse * tail.COARSE + at)
    end
    local counts = redis.call('HMGET', steps, unpack(names))
    for at = 1, #names do
      local index = towards > 0 and at or #names + 1 - at
      local level = tonumber(counts[index] or '0')
      block.better[index - 1], block.level[index - 1] = before, level
      before = before + level
    end
    return block
  end
  return function(score)
    if not steps then
      return 0, 0
    end
    local step = tail.step(score)
    local coarse = math.floor(step / tail.COARSE)
    blocks[coarse] = blocks[coarse] or load_block(coarse)
    local at = step - coarse * tail.COARSE
    return blocks[coarse].better[at], blocks[coarse].level[at]
  end
end

-- Returns a function from a player, in or below the top, to the kept number and prefix and, where `counted`, the number
-- of players in better steps and in the same step; false for an absent player.
function read.kept_of_all(view, counted)
  local scores = read.key(view, 's')
  if not scores then
    return function()
      return false
    end
  end
  local shape, buckets = tail.shape(view), tonumber(redis.call('HGET', scores, 'n'))
  local count = counted and tail.counter(view)
  return function(player)
    local bucket = #player <= tail.ID_BYTES_MAX and redis.call('HGET', scores, tail.bucket(player, buckets))
    local at, value = tail.find(bucket or '', player, shape.bytes)
    if not at then
      return false
    end
    local better, level = 0, 0
    if count then
      better, level = count(tail.score(value, shape))
    end
    local number = struct.unpack('>l', value)
    return { read.bound(number), string.sub(value, 9), false, better, false, level }
  end
end

-- Returns a function that counts the players before a mark that names a step: none where no player is below the top.
function read.before_steps(view)
  local shape, count = tail.shape(view), view.exact_top > 0 and tail.counter(view)
  return function(head)
    if not count then
      return 0
    end
    local kind, high, low = struct.unpack('>Bi8I2i8', head)
    if view.desc then
      high, low = -1 - high, 2047 - low
    end
    local better, level = count(tail.score_of_key(view, shape, high, low))
    return kind == read.STEP and better or better + level
  end
end

-- Arguments: instance, the most steps there may be for them to be sent one by one
-- Reply: the number of players in the top, whether the steps are coarse, {step, number of players, …}.
local function tail_steps(keys, args)
  local reply, view = read.open(keys[1], args[1])
  if not view then
    return reply
  end
  local steps, sent = read.key(view, 't'), {}
  local is_coarse = steps and redis.call('HLEN', steps) > tonumber(args[2])
  if is_coarse then
    local names = {}
    for number = -tail.COARSE_MAX - 1, tail.COARSE_MAX do
      names[#names + 1] = 'c' .. number
    end
    for index, count in ipairs(redis.call('HMGET', steps, unpack(names))) do
      if count then
        sent[#sent + 1] = index - tail.COARSE_MAX - 2
        sent[#sent + 1] = tonumber(count)
      end
    end
  elseif steps then
    local found = redis.call('HGETALL', steps)
    for index = 1, #found, 2 do
      local step = tonumber(found[index])
      if step then
        sent[#sent + 1] = step
        sent[#sent + 1] = tonumber(found[index + 1])
      end
    end
  end
  reply[3], reply[4], reply[5] = view.total, is_coarse and 1 or 0, sent
  return reply
end

-- Arguments: instance, cursor of HSCAN, about how many buckets
-- Reply: the number of players in the top, the next cursor ("0" at the end), buckets of records.
local function tail_scan(keys, args)
  local reply, view = read.open(keys[1], args[1])
  if not view then
    return reply
  end
  local scores, buckets, cursor = read.key(view, 's'), {}, '0'
  if scores then
    local found = redis.call('HSCAN', scores, args[2], 'COUNT', args[3])
    cursor = found[1]
    for index = 1, #found[2], 2 do
      if tonumber(found[2][index]) then
        buckets[#buckets + 1] = found[2][index + 1]
      end
    end
  end
  reply[3], reply[4], reply[5] = view.total, cursor, buckets
  return reply
end

redis.register_function({ function_name = 'rankd_tail_steps', callback = tail_steps, flags = { 'no-writes' } })
redis.register_function({ function_name = 'rankd_tail_scan', callback = tail_scan, flags = { 'no-writes' } })
