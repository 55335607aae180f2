-- What every read is made of: how a board shard stands, and how many stand before a mark, in logarithmic time.
--
-- A reply begins with two values: the shard's head as one line ("" where the shard is not there), and what field `i`
-- says of the instance (false where nobody stands in it). What follows is said at each function; nothing does where
-- nobody of this shard stands in the instance.
--
-- Scores have 64 bits and Lua's numbers 53: a score travels as its high 53 bits and its low 11 bits.

local read = {}

read.TIE_MAX = 281474976710655 -- 2^48 - 1
read.POSITION = 112 -- "p", which only the fields of positions begin with
read.NUMBERS = 9007199254740992 -- 2^53: packed numbers are below, and not below its negative

-- Returns meta as one line of fields and values, and as a table; "" where the shard is not there.
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

-- Returns how many of these keys exist; meta is one of them. They are looked for together, before any is read: while a
-- slot is on its way to another server, a key that is not here may be there, and Redis says so only of several at once.
function read.count_present(...)
  local count = redis.pcall('EXISTS', ...)
  if type(count) == 'table' then
    error({ err = 'TRYAGAIN keys of this shard are on their way to another server' })
  end
  return count
end

-- Returns the beginning of the reply, and the view of the instance: nil where there is nothing (more) to read.
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
  -- Of a shard, nobody may be in the top and many below it.
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

-- How many members of a sorted set stand before (number, rest); at most `most`, where the caller knows that.
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

-- Marks: places between two keys of the standing order, whether or not somebody stands there.
read.FIRST = 1 -- before everybody with this score
read.LAST = 2 -- behind everybody with this score
read.TIE = 3 -- behind everybody with this score and tie field
read.AT = 4 -- just before this score, tie field and player
read.BEHIND = 5 -- just behind this score, tie field and player
read.STEP = 6 -- before everybody whose score shares a step with this one, in or below the top (tail.lua)
read.STEP_END = 7 -- behind everybody whose score does

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

-- How many stand before a mark; two marks have no score: '' before everybody, 'end' behind everybody.
function read.before_mark(view, head, player)
  if head == '' then
    return 0
  end
  if head == 'end' then
    return view.total
  end
  return read.before(view.z, read.mark(view, head, player))
end

-- Returns where the score of an entry begins: the number and the rest of the mark before everybody with this score.
function read.score_start(view, number, member)
  if view.packed then
    return math.floor(number / view.step) * view.step, ''
  end
  return number, string.sub(member, 1, 2)
end

-- How many have a strictly better score than this entry; `place` is how many stand before it, nil where not known.
function read.better(view, number, member, place)
  local start, rest = read.score_start(view, number, member)
  return read.before(view.z, start, rest, place)
end

-- How many distinct scores stand before a mark of `z`; false where distinct scores are not kept. Packed, their numbers
-- are without tie fields; prefixed, their members begin with the two bytes that scores differ in.
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

-- Returns what a hash holds for each of these fields, false where nothing; false where there is no such hash.
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

-- Returns the captured place of a player: places lie in buckets, found by a hash that only the reader can make.
function read.captured(view, player, hash)
  local places = read.key(view, 'c')
  local buckets = places and tonumber(redis.call('HGET', places, 'n')) or 0
  local bucket = buckets > 0 and redis.call('HGET', places, read.bound(tonumber(hash) % buckets))
  return bucket and cmsgpack.unpack(bucket)[player] or false
end

-- Returns the events that the metadata of these players' scores came with, false where it was not asked for.
function read.metadata(view, options, players)
  return string.find(options, 'm') and read.fields(read.key(view, 'm'), players) or false
end
