-- Counts, quantiles and histograms, and the samples by which a place is found among several shards.

-- Arguments: instance, options, then a head and a player for each mark
-- Reply: total, how many stand before each mark and, for option `d`, how many distinct scores (a list or false), without
-- marks that name steps.
local function read_counts(keys, args)
  local reply, view = read.open(keys[1], args[1])
  if not view then
    return reply
  end
  local counts = {}
  local distinct = string.find(args[2], 'd') and read.key(view, 'd') and {} or false
  local before_steps = read.before_steps(view)
  for index = 3, #args, 2 do
    if string.byte(args[index]) >= read.STEP then
      counts[#counts + 1] = before_steps(args[index])
    else
      local number, rest = read.mark(view, args[index], args[index + 1])
      counts[#counts + 1] = read.before(view.z, number, rest)
      if distinct then
        distinct[#distinct + 1] = read.distinct_before(view, number, rest)
      end
    end
  end
  reply[3], reply[4], reply[5] = view.total, counts, distinct
  return reply
end

-- Adds index, member and number of the entry at an index to a list.
function read.add_sample(view, samples, index)
  local entry = redis.call('ZRANGE', view.z, read.bound(index), read.bound(index), 'WITHSCORES')
  samples[#samples + 1] = index
  samples[#samples + 1] = entry[1]
  samples[#samples + 1] = entry[2]
end

-- Arguments: instance, parts per million …
-- Reply: total, samples: for each quantile the entry whose score it is.
local function read_quantiles(keys, args)
  local reply, view = read.open(keys[1], args[1])
  if not view or view.total == 0 then
    return reply
  end
  local samples = {}
  for index = 2, #args do
    local product = tonumber(args[index]) * view.total
    local rest = math.fmod(product, 1000000) -- exact, as a division of doubles would not be
    local wanted = math.max(1, (product - rest) / 1000000 + (rest > 0 and 1 or 0))
    read.add_sample(view, samples, view.desc and view.total - wanted or wanted - 1)
  end
  reply[3], reply[4] = view.total, samples
  return reply
end

-- Whole numbers of 72 bits as three limbs of 24, lowest first: enough for sums of 64-bit scores.

read.LIMB = 16777216 -- 2^24

function read.limbs_of(high, low)
  local raised = high + 4503599627370496 -- from -2^52 … 2^52 - 1 to 0 … 2^53 - 1
  return { (raised % 8192) * 2048 + low, math.floor(raised / 8192) % read.LIMB, math.floor(raised / 137438953472) }
end

function read.score_of_limbs(limbs)
  local raised = math.floor(limbs[1] / 2048) + limbs[2] * 8192 + limbs[3] * 137438953472
  return raised - 4503599627370496, limbs[1] % 2048
end

function read.add(a, b, sign)
  local sum, carry = {}, 0
  for index = 1, 3 do
    local value = a[index] + sign * b[index] + carry
    carry = math.floor(value / read.LIMB)
    sum[index] = value - carry * read.LIMB
  end
  return sum
end

function read.is_above(a, b)
  for index = 3, 1, -1 do
    if a[index] ~= b[index] then
      return a[index] > b[index]
    end
  end
  return false
end

-- Returns ceil(number / divisor).
function read.divided_up(number, divisor)
  local raised = read.add(number, { divisor - 1, 0, 0 }, 1)
  local quotient, rest = {}, 0
  for index = 3, 1, -1 do
    local value = rest * read.LIMB + raised[index]
    quotient[index] = math.floor(value / divisor)
    rest = value - quotient[index] * divisor
  end
  return quotient
end

-- Returns the score of an entry as its high 53 and low 11 bits.
function read.score_of(view, number, member)
  local high, low
  if view.packed then
    local key = math.floor(number / view.step)
    low = key % 2048 + view.lowest_low -- apart from the rest: all of it may need more bits than a number has
    high, low = view.lowest_high + math.floor(key / 2048) + math.floor(low / 2048), low % 2048
  else
    high, low = number, struct.unpack('>I2', member)
  end
  if view.desc then
    return -1 - high, 2047 - low
  end
  return high, low
end

-- Arguments: instance, buckets
-- Reply: total, samples of the first and the last entry, and how many scores are below each bucket's lowest score.
local function read_histogram(keys, args)
  local reply, view = read.open(keys[1], args[1])
  if not view or view.total == 0 then
    return reply
  end
  local samples = {}
  read.add_sample(view, samples, 0)
  read.add_sample(view, samples, view.total - 1)
  local first = read.limbs_of(read.score_of(view, tonumber(samples[3]), samples[2]))
  local last = read.limbs_of(read.score_of(view, tonumber(samples[6]), samples[5]))
  local lowest, highest = first, last
  if view.desc then
    lowest, highest = last, first
  end
  local range = read.add(read.add(highest, lowest, -1), { 1, 0, 0 }, 1)
  local width = read.divided_up(range, tonumber(args[2]))
  local below, low = {}, lowest
  while not read.is_above(low, highest) do
    local high_bits, low_bits = read.score_of_limbs(low)
    local kind = view.desc and read.LAST or read.FIRST
    local count = read.before_mark(view, struct.pack('>Bi8I2i8', kind, high_bits, low_bits, 0), '')
    below[#below + 1] = view.desc and view.total - count or count
    low = read.add(low, width, 1)
  end
  reply[3], reply[4], reply[5] = view.total, samples, below
  return reply
end

-- Adds samples at `count` indices spread evenly from low to high, both included, as far as there are entries.
function read.add_even(view, samples, low, high, count)
  low, high = math.max(0, math.floor(low)), math.min(view.total - 1, math.ceil(high))
  local known = -1
  for step = 0, count - 1 do
    local index = count == 1 and low or low + math.floor((high - low) * step / (count - 1))
    if index > known and index <= high then
      read.add_sample(view, samples, index)
      known = index
    end
  end
end

-- Arguments: instance, samples over all players, samples around each guess, then guesses: the index of an entry
-- ("i", index) or a share of all in parts per million ("f", parts). Around a guess is within a few times what chance
-- makes of players spread over shards.
-- Reply: total, samples.
local function read_samples(keys, args)
  local reply, view = read.open(keys[1], args[1])
  if not view then
    return reply
  end
  local samples = {}
  read.add_even(view, samples, 0, view.total - 1, tonumber(args[2]))
  for index = 4, #args, 2 do
    local guess = tonumber(args[index + 1])
    if args[index] == 'f' then
      guess = guess / 1000000 * view.total
    end
    if guess < view.total + 6 * math.sqrt(view.total) + 6 then
      local spread = 4 + 4 * math.sqrt(guess)
      read.add_even(view, samples, guess - spread, guess + spread, tonumber(args[3]))
    end
  end
  reply[3], reply[4] = view.total, samples
  return reply
end

-- Arguments: instance, samples for each pair, then pairs of marks: a head and a player, twice
-- Reply: total, samples: those between the marks of each pair, with the entries just before and behind them.
local function read_between(keys, args)
  local reply, view = read.open(keys[1], args[1])
  if not view then
    return reply
  end
  local samples = {}
  for index = 3, #args, 4 do
    local low = read.before_mark(view, args[index], args[index + 1])
    local high = read.before_mark(view, args[index + 2], args[index + 3])
    read.add_even(view, samples, low - 1, high, tonumber(args[2]))
  end
  reply[3], reply[4] = view.total, samples
  return reply
end

redis.register_function({ function_name = 'rankd_read_counts', callback = read_counts, flags = { 'no-writes' } })
redis.register_function({ function_name = 'rankd_read_quantiles', callback = read_quantiles, flags = { 'no-writes' } })
redis.register_function({ function_name = 'rankd_read_histogram', callback = read_histogram, flags = { 'no-writes' } })
redis.register_function({ function_name = 'rankd_read_samples', callback = read_samples, flags = { 'no-writes' } })
redis.register_function({ function_name = 'rankd_read_between', callback = read_between, flags = { 'no-writes' } })
