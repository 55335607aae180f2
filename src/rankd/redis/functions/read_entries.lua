-- Entries of named players, and consecutive entries of the standing order.
--
-- Options are letters: `r` places, `b` how many have a better score, `d` how many distinct scores are better,
-- `p` captured places, `m` the events of metadata, `s` kept scores of players in and below the top.

-- Returns the members of players and their numbers as text, false where absent.
function read.members_of(view, players)
  if view.packed then
    if #players == 1 then
      return players, { redis.call('ZSCORE', view.z, players[1]) }
    end
    local numbers = {}
    for first = 1, #players, VALUES_A_CALL do
      local last = math.min(first + VALUES_A_CALL - 1, #players)
      for index, number in ipairs(redis.call('ZMSCORE', view.z, unpack(players, first, last))) do
        numbers[first + index - 1] = number
      end
    end
    return players, numbers
  end
  local members, numbers = {}, {}
  local prefixes = read.fields(read.key(view, 'h'), players)
  for index, player in ipairs(players) do
    local prefix = prefixes and prefixes[index]
    members[index] = prefix and prefix .. player
    numbers[index] = prefix and redis.call('ZSCORE', view.z, prefix .. player)
  end
  return members, numbers
end

-- Counts for many entries, each distinct score once.
function read.counted_once(count, view)
  local known = {}
  return function(number, member, place)
    local start, rest = read.score_start(view, number, member)
    local key = read.bound(start) .. '/' .. rest
    if known[key] == nil then
      known[key] = count(view, number, member, place)
    end
    return known[key]
  end
end

-- Arguments: instance, options, how many players, players …, for option `p` the bucket hash of each
-- Reply: total, then a list for each player (number, prefix, place from 0, better, distinct better), false where
-- absent, then captured places and metadata, each a list or false. For a player below the top, the list has no place,
-- the number of players in better steps and, as a sixth value, in the same step.
local function read_players(keys, args)
  local reply, view = read.open(keys[1], args[1])
  if not view then
    return reply
  end
  local options, count = args[2], tonumber(args[3])
  local players = {}
  for index = 1, count do
    players[index] = args[index + 3]
  end
  local members, numbers = read.members_of(view, players)
  local places = string.find(options, 'r')
  local better = string.find(options, 'b') and read.counted_once(read.better, view)
  local distinct = string.find(options, 'd') and read.counted_once(read.distinct_better, view)
  local below = view.exact_top > 0 and read.kept_of_all(view, places or better)
  local is_below = below and string.find(options, 's')
  local found = {}
  for index, member in ipairs(members) do
    local text = numbers[index]
    if text and not is_below then
      local number = tonumber(text)
      local place = places and redis.call('ZRANK', view.z, member)
      found[index] = {
        text,
        view.packed and '' or string.sub(member, 1, 8),
        place or false,
        better and better(number, member, place) or false,
        distinct and distinct(number, member) or false,
      }
    else
      found[index] = below and below(players[index])
    end
  end
  local captured = false
  if string.find(options, 'p') then
    captured = {}
    for index, player in ipairs(players) do
      captured[index] = numbers[index] and read.captured(view, player, args[3 + count + index])
    end
  end
  reply[3], reply[4], reply[5], reply[6] = view.total, found, captured, read.metadata(view, options, players)
  return reply
end

-- Returns the number of entries before the page's origin: an index, a mark or a player; nil where the player is absent.
function read.origin_of(view, kind, value, player)
  if kind == 'index' then
    return math.min(tonumber(value), view.total)
  end
  if kind == 'mark' then
    return read.before_mark(view, value, player)
  end
  local members = read.members_of(view, { value })
  return members[1] and (redis.call('ZRANK', view.z, members[1]) or nil)
end

-- Arguments: instance, options, entries before the origin, entries from it on, kind of origin, value, and the mark's
-- player
-- Reply: total, origin, index of the first entry, better and distinct better of the first entry (false where not asked
-- for or where there is no entry), member and number of each entry, metadata of each. The origin of an absent player is
-- false, and nothing follows it.
local function read_page(keys, args)
  local reply, view = read.open(keys[1], args[1])
  if not view then
    return reply
  end
  local options = args[2]
  local origin = read.origin_of(view, args[5], args[6], args[7])
  reply[3], reply[4] = view.total, origin or false
  if not origin then
    return reply
  end
  local start = math.max(0, origin - tonumber(args[3]))
  local stop = math.min(view.total, origin + tonumber(args[4])) -- not included
  local entries = {}
  if start < stop then
    entries = redis.call('ZRANGE', view.z, read.bound(start), read.bound(stop - 1), 'WITHSCORES')
  end
  local member, number = entries[1], tonumber(entries[2])
  reply[5] = start
  reply[6] = member and string.find(options, 'b') and read.better(view, number, member, start) or false
  reply[7] = member and string.find(options, 'd') and read.distinct_better(view, number, member) or false
  reply[8] = entries
  local players = {}
  if string.find(options, 'm') then
    for index = 1, #entries, 2 do
      players[#players + 1] = read.player(view, entries[index])
    end
  end
  reply[9] = read.metadata(view, options, players)
  return reply
end

redis.register_function({ function_name = 'rankd_read_players', callback = read_players, flags = { 'no-writes' } })
redis.register_function({ function_name = 'rankd_read_page', callback = read_page, flags = { 'no-writes' } })
