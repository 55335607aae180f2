-- The common part of all reads: the head of a board shard, and the number of players before a mark, in logarithmic
-- time.
--
-- A reply begins with two values: the shard's head as one line ("" where the shard is missing), and the instance's
-- entry in `i` (false where the instance is empty). The values of each function follow, unless this shard has no player
-- in the instance.
--
-- Scores have 64 bits and Lua's numbers 53: a score travels as its high 53 bits and its low 11 bits.

local read = {}

read.TIE_MAX = 281474976710655 -- 2^48 - 1
read.POSITION = 112 -- "p", which only the fields of positions begin with
read.NUMBERS = 9007199254740992 -- 2^53: packed numbers are below, and not below its negative

-- Returns meta as one line of fields and values, and as a table; "" where the shard is missing.
function read.head(meta)
  local values, line, fields, present = redis.call('HGETALL', meta), {}, {}, false
  for index = 1, #values, 2 do
    local field = values[index]
    if field ~= 'state' then -- the only one that is no plain word
      fields[field] = values[index + 1]
      line[#line + 1] = field
      line[#line + 1] = values[index + 1]
      present = present or string.byte(field) == read.POSITION
    end
  end
  return present and table.concat(line, ' ') or '', fields
end

-- Returns the lowest key of a packed form that Lua's numbers cannot hold, from its eight bytes in the form itself: they
-- stand behind the mark of the array, three short texts and the mark of a 64-bit integer.
function read.exact_lowest(form)
  local at = 2
  for _ = 1, 3 do
    at = at + 1 + string.byte(form, at) - 0xa0
  end
  local high, low = struct.unpack('>i4I4', form, at + 1)
  return high * 2097152 + math.floor(low / 2048), low % 2048
end

-- Returns how many of these keys exist; meta is one of them. They are checked in one command, before any is read: while
-- a slot migrates, a missing key may be on the other server, and Redis reports that only for a command with several
-- keys.
function read.count_present(...)
  local count = redis.pcall('EXISTS', ...)
  if type(count) == 'table' then
    error({ err = 'TRYAGAIN keys of this shard are migrating to another server' })
  end
  return count
end

-- Returns the beginning of the reply, and the view of the instance; nil where the instance has nothing to read.
function read.open(meta, instance)
  local line, fields = read.head(meta)
  if line == '' or fields.version ~= LAYOUT_VERSION then
    return { line, false }, nil
  end
  local prefix = string.sub(meta, 1, -5) .. fields.generation .. ':'
  local standing = prefix .. 'z:' .. instance
  read.count_present(meta, prefix .. 'i', standing)
  local form = redis.call('HGET', prefix .. 'i', instance)
  if not form then
    return { line, false }, nil
  end
  local name, order, ties, lowest, tie_bits, _, _, _, exact_top = unpack(cmsgpack.unpack(form), 1, 9)
  local lowest_high, lowest_low = math.floor(lowest / 2048), lowest % 2048
  if math.abs(lowest) >= read.NUMBERS then
    lowest_high, lowest_low = read.exact_lowest(form)
  end
  local view = {
    meta = meta,
    prefix = prefix,
    instance = instance,
    z = standing,
    packed = name == 'packed',
    desc = order == 'desc',
    ties = ties,
    step = 2 ^ tie_bits,
    lowest_high = lowest_high,
    lowest_low = lowest_low,
    exact_top = exact_top or 0,
  }
  view.total = redis.call('ZCARD', view.z)
  -- A shard may have no player in the top and many below it.
  return { line, form }, (view.total > 0 or view.exact_top > 0) and view or nil
end

-- Returns another key of the instance, by its letter; false where there is no such key.
function read.key(view, letter)
  local key = view.prefix .. letter .. ':' .. view.instance
  return read.count_present(view.meta, key) == 2 and key
end

-- Bytewise, as sorted sets compare members: Lua's own `<` goes by the server's locale.
function read.is_less(a, b)
  local shorter = math.min(#a, #b)
  for index = 1, shorter do
    local x, y = string.byte(a, index), string.byte(b, index)
    if x ~= y then
      return x < y
    end
  end
  return #a < #b
end

function read.bound(number)
  return string.format('%.17g', number)
end

-- Returns the number of members of a sorted set before (number, rest); `most` is an upper bound, where known.
function read.before(key, number, rest, most)
  if number >= read.NUMBERS then
    return redis.call('ZCARD', key)
  end
  local bound = read.bound(number)
  local low = redis.call('ZCOUNT', key, '-inf', '(' .. bound)
  if rest == '' then
    return low
  end
  local high = most or low + redis.call('ZCOUNT', key, bound, bound)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if read.is_less(redis.call('ZRANGE', key, middle, middle)[1], rest) then
      low = middle + 1
    else
      high = middle
    end
  end
  return low
end

-- Marks: places between two keys of the standing order, occupied or not.
read.FIRST = 1 -- before all players with this score
read.LAST = 2 -- behind all players with this score
read.TIE = 3 -- behind all players with this score and tie field
read.AT = 4 -- just before this score, tie field and player
read.BEHIND = 5 -- just behind this score, tie field and player
read.STEP = 6 -- before all players in the step of this score, in or below the top (tail.lua)
read.STEP_END = 7 -- behind all players in that step

function read.packed_mark(view, kind, high, low, tie, player)
  local lowest = view.ties == 'player' and -read.NUMBERS or 0
  -- Counted from the lowest, so that what is just below it is not rounded to it.
  if (high - view.lowest_high - lowest / 2048) * 2048 + (low - view.lowest_low) < 0 then
    return lowest, ''
  end
  local key = (high - view.lowest_high) * 2048 + (low - view.lowest_low)
  if key >= read.NUMBERS / view.step then
    return read.NUMBERS, ''
  end
  local first = key * view.step
  if kind == read.FIRST then
    return first, ''
  end
  local last = first + view.step
  if kind == read.LAST then
    return last, ''
  end
  local field = tie
  if view.ties == 'player' then
    field = 0
  elseif view.ties ~= 'earliest' then
    field = view.step - 1 - tie
  end
  if field < 0 then
    return first, ''
  end
  if field >= view.step then
    return last, ''
  end
  if kind == read.TIE then
    return first + field + 1, ''
  end
  return first + field, kind == read.AT and player or player .. '\0'
end

function read.prefixed_mark(view, kind, high, low, tie, player)
  local field = tie
  if view.ties == 'player' then
    field = 0
  elseif view.ties ~= 'earliest' then
    field = read.TIE_MAX - tie
  end
  if kind == read.TIE then
    if field == read.TIE_MAX then
      kind = read.LAST
    else
      return high, struct.pack('>I2I6', low, field + 1)
    end
  end
  if kind == read.FIRST then
    return high, struct.pack('>I2', low)
  end
  if kind == read.LAST then
    if low == 2047 then
      return high + 1, ''
    end
    return high, struct.pack('>I2', low + 1)
  end
  local rest = struct.pack('>I2I6', low, field) .. player
  return high, kind == read.AT and rest or rest .. '\0'
end

-- Returns the number and the rest of a mark in this instance's form. A mark is two arguments: its head and its player.
function read.mark(view, head, player)
  local kind, high, low, tie = struct.unpack('>Bi8I2i8', head)
  if view.desc then
    high, low = -1 - high, 2047 - low
  end
  if view.packed then
    return read.packed_mark(view, kind, high, low, tie, player)
  end
  return read.prefixed_mark(view, kind, high, low, tie, player)
end

-- Returns the number of players before a mark; two marks have no score: '' before all players, 'end' behind all.
function read.before_mark(view, head, player)
  if head == '' then
    return 0
  end
  if head == 'end' then
    return view.total
  end
  return read.before(view.z, read.mark(view, head, player))
end

-- Returns the number and the rest of the mark before all players with the score of an entry.
function read.score_start(view, number, member)
  if view.packed then
    return math.floor(number / view.step) * view.step, ''
  end
  return number, string.sub(member, 1, 2)
end

-- Returns the number of players with a strictly better score; `place` is the number before the entry, nil if unknown.
function read.better(view, number, member, place)
  local start, rest = read.score_start(view, number, member)
  return read.before(view.z, start, rest, place)
end

-- Returns the number of distinct scores before a mark of `z`; false where distinct scores are not kept. Packed, their
-- numbers are without tie fields; prefixed, their members begin with the two bytes that scores differ in.
function read.distinct_before(view, number, rest)
  local distinct = read.key(view, 'd')
  local first = view.packed and math.ceil(number / view.step) or number
  return distinct and read.before(distinct, first, string.sub(rest, 1, 2))
end

function read.distinct_better(view, number, member)
  return read.distinct_before(view, read.score_start(view, number, member))
end

function read.player(view, member)
  return view.packed and member or string.sub(member, 9)
end

-- Returns the values of these fields of a hash, false for each missing one; false where there is no such hash.
function read.fields(key, fields)
  if not key then
    return false
  end
  local values = {}
  for first = 1, #fields, VALUES_A_CALL do
    local last = math.min(first + VALUES_A_CALL - 1, #fields)
    for index, value in ipairs(redis.call('HMGET', key, unpack(fields, first, last))) do
      values[first + index - 1] = value
    end
  end
  return values
end

-- Returns the captured place of a player. Places are in buckets, by a hash that the caller computes.
function read.captured(view, player, hash)
  local places = read.key(view, 'c')
  local buckets = places and tonumber(redis.call('HGET', places, 'n')) or 0
  local bucket = buckets > 0 and redis.call('HGET', places, read.bound(tonumber(hash) % buckets))
  return bucket and cmsgpack.unpack(bucket)[player] or false
end

-- Returns the events that carried the metadata of these players' scores; false where not requested.
function read.metadata(view, options, players)
  return string.find(options, 'm') and read.fields(read.key(view, 'm'), players) or false
end
