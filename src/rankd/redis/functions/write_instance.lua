-- One operation of rankd_write: a write to one instance on this shard.
--
--  1 name            "<window>@<scope>"
--  2 scale           packed: 2^tie_bits; prefixed: 0
--  3 keys            indexes in KEYS of {z, h, d, n, c, m, s, t}; 0 where the instance has no such key, or it is not needed
--  4 described       index in ARGV of the instance's entry in `i`; 0: leave it, -1: the instance is empty
--  5 last            the last part of this instance's change; parts before it only describe what is not described yet
--  6 unlink          indexes in KEYS of keys to delete first: the instance was cleared, or its rows begin anew
--  7 rows            {number, player, number, player, …}, numbers as texts; each player at most once
--  8 prefixes        index in ARGV of the players' prefixes, 8 bytes each; 0 in the packed form
--  9 gone            {player, …} who were removed
-- 10 places gone     {player, bucket hash, …} whose captured places are forgotten
-- 11 metadata        {player, "<partition>:<sequence>", …}
-- 12 metadata gone   {player, …}
-- 13 captured        {} leave; {1} forget; {2, buckets, first, last, key, index, bucket, …}: the blobs of these buckets
--                    are ARGV[index], ARGV[index + 1], …; they gather in KEYS[key] from the first part to the last
-- 14 swap            {} or indexes as in 3: these keys are replaced by those written here, once all is written
-- 15 tail            {} or, on boards with exact_top, {players, direction, origin, rows, prefixes, gone, cut number,
--                    cut player, cut prefix}: about how many players this shard will have, rows are {player, number, …} of
--                    all players, in the top or not, prefixes and cut prefix indexes in ARGV or 0, gone {player, …}, cut
--                    the last of the top or ""

local WRITE_FIELDS = 15
local WRITE_Z, WRITE_H, WRITE_D, WRITE_N, WRITE_C, WRITE_M, WRITE_S, WRITE_T = 1, 2, 3, 4, 5, 6, 7, 8

-- Returns the error of a malformed operation; nil for a valid one.
local function write_problem(operation, keys, args)
  if type(operation) ~= 'table' or #operation ~= WRITE_FIELDS then
    return 'it has not ' .. WRITE_FIELDS .. ' parts'
  end
  if #operation[3] ~= 8 then
    return 'it names not eight keys'
  end
  for _, list in ipairs({operation[6], operation[3], operation[14]}) do
    for _, index in ipairs(list) do
      if index ~= 0 and not keys[index] then
        return 'key ' .. index .. ' is missing'
      end
    end
  end
  local rows = #operation[7]
  if rows % 2 ~= 0 or #operation[11] % 2 ~= 0 or #operation[10] % 2 ~= 0 then
    return 'a list has a wrong length'
  end
  if operation[2] == 0 and (operation[3][WRITE_H] == 0 or not args[operation[8]] or #args[operation[8]] ~= 4 * rows) then
    if rows > 0 or operation[3][WRITE_H] == 0 then
      return 'prefixes are missing'
    end
  end
  if operation[3][WRITE_Z] == 0 or (#operation[10] > 0 and operation[3][WRITE_C] == 0) or (operation[4] > 0 and not args[operation[4]]) then
    return 'an argument is missing'
  end
  local below = operation[15]
  if #below > 0 then
    if #below ~= 9 or #below[4] % 2 ~= 0 or operation[3][WRITE_S] == 0 or operation[3][WRITE_T] == 0 then
      return 'its tail is not one'
    end
    if operation[2] == 0 and #below[4] > 0 and (not args[below[5]] or #args[below[5]] ~= #below[4] * 4) then
      return 'prefixes of its tail are missing'
    end
    if operation[2] == 0 and below[8] ~= '' and not args[below[9]] then
      return 'the prefix of its cut is missing'
    end
  end
  local captured = operation[13]
  if captured[1] == 2 and (not keys[captured[5]] or (#captured > 6 and not args[captured[6] + #captured - 7])) then
    return 'a captured bucket is missing'
  end
  return nil
end

local function write_in_parts(command, key, values)
  for first = 1, #values, VALUES_A_CALL do
    redis.call(command, key, unpack(values, first, math.min(first + VALUES_A_CALL - 1, #values)))
  end
end

local function write_get_many(command, key, players)
  local answers = {}
  for first = 1, #players, VALUES_A_CALL do
    local last = math.min(first + VALUES_A_CALL - 1, #players)
    local some = redis.call(command, key, unpack(players, first, last))
    for index = 1, last - first + 1 do
      answers[first + index - 1] = some[index]
    end
  end
  return answers
end

local function write_players(rows)
  local players = {}
  for index = 2, #rows, 2 do
    players[#players + 1] = rows[index]
  end
  return players
end

-- Distinct scores. Packed: the score's part of the number. Prefixed: the two bytes before it that order scores which
-- share a number, then the number.

local function write_distinct_packed(number, scale)
  return string.format('%.0f', math.floor(tonumber(number) / scale))
end

local function write_distinct_prefixed(number, prefix)
  return string.sub(prefix, 1, 2) .. string.format('%.0f', tonumber(number))
end

local function write_distinct(keys, slots, scale, changes)
  local counts, distinct = keys[slots[WRITE_N]], keys[slots[WRITE_D]]
  for member, change in pairs(changes) do
    if change ~= 0 then
      local count = redis.call('HINCRBY', counts, member, change)
      if count <= 0 then
        redis.call('HDEL', counts, member)
        redis.call('ZREM', distinct, member)
      elseif count == change then
        local number = scale > 0 and member or string.sub(member, 3)
        redis.call('ZADD', distinct, number, member)
      end
    end
  end
end

local function write_count(changes, member, by)
  changes[member] = (changes[member] or 0) + by
end

local function write_packed(operation, keys)
  local slots, scale, rows, gone = operation[3], operation[2], operation[7], operation[9]
  local standing = keys[slots[WRITE_Z]]
  if slots[WRITE_D] ~= 0 then
    local changes = {}
    for _, players in ipairs({write_players(rows), gone}) do
      for _, old in ipairs(write_get_many('ZMSCORE', standing, players)) do
        if old then
          write_count(changes, write_distinct_packed(old, scale), -1)
        end
      end
    end
    for index = 1, #rows, 2 do
      write_count(changes, write_distinct_packed(rows[index], scale), 1)
    end
    write_distinct(keys, slots, scale, changes)
  end
  if #gone > 0 then
    write_in_parts('ZREM', standing, gone)
  end
  write_in_parts('ZADD', standing, rows)
end

local function write_prefixed(operation, keys, args)
  local slots, rows, gone = operation[3], operation[7], operation[9]
  local standing, prefixes = keys[slots[WRITE_Z]], keys[slots[WRITE_H]]
  local with_distinct = slots[WRITE_D] ~= 0
  local players = write_players(rows)
  local arrived = #rows > 0 and args[operation[8]] or ''
  local leaving, entries, fields, changes = {}, {}, {}, {}
  for index, old in ipairs(write_get_many('HMGET', prefixes, gone)) do
    if old then
      leaving[#leaving + 1] = old .. gone[index]
    end
  end
  local was = write_get_many('HMGET', prefixes, players)
  for index, player in ipairs(players) do
    local prefix = string.sub(arrived, 8 * index - 7, 8 * index)
    local old = was[index]
    entries[2 * index - 1] = rows[2 * index - 1]
    entries[2 * index] = prefix .. player
    if old ~= prefix then
      fields[#fields + 1] = player
      fields[#fields + 1] = prefix
      if old then
        leaving[#leaving + 1] = old .. player
      end
    elseif with_distinct then
      local number = redis.call('ZSCORE', standing, old .. player)
      if number then
        write_count(changes, write_distinct_prefixed(number, old), -1)
      end
    end
    if with_distinct then
      write_count(changes, write_distinct_prefixed(rows[2 * index - 1], prefix), 1)
    end
  end
  if with_distinct then
    for index, number in ipairs(write_get_many('ZMSCORE', standing, leaving)) do
      if number then
        write_count(changes, write_distinct_prefixed(number, leaving[index]), -1)
      end
    end
    write_distinct(keys, slots, 0, changes)
  end
  if #leaving > 0 then
    write_in_parts('ZREM', standing, leaving)
  end
  if #gone > 0 then
    write_in_parts('HDEL', prefixes, gone)
  end
  write_in_parts('ZADD', standing, entries)
  write_in_parts('HSET', prefixes, fields)
end

-- Captured places

local function write_forget_places(captured, gone)
  local buckets = tonumber(redis.call('HGET', captured, 'n') or '0')
  if buckets == 0 then
    return
  end
  for index = 1, #gone, 2 do
    local player, bucket = gone[index], string.format('%.0f', gone[index + 1] % buckets)
    local blob = redis.call('HGET', captured, bucket)
    if blob then
      local places = cmsgpack.unpack(blob)
      if places[player] then
        places[player] = nil
        if next(places) == nil then
          redis.call('HDEL', captured, bucket)
        else
          redis.call('HSET', captured, bucket, cmsgpack.pack(places))
        end
      end
    end
  end
end

local function write_captured(operation, keys, args)
  local captured = operation[13]
  local key = keys[operation[3][WRITE_C]]
  if captured[1] == 1 then
    redis.call('UNLINK', key)
  elseif captured[1] == 2 then
    local gathering = keys[captured[5]]
    if captured[3] == 1 then
      redis.call('UNLINK', gathering)
    end
    local values = {'n', captured[2]}
    for index = 7, #captured do
      values[#values + 1] = captured[index]
      values[#values + 1] = args[captured[6] + index - 7]
    end
    write_in_parts('HSET', gathering, values)
    if captured[4] == 1 then
      redis.call('RENAME', gathering, key)
    end
  end
end

local function write_tail(operation, keys, args)
  local slots, scale = operation[3], operation[2]
  local players, direction, origin, pairs_of, prefixes, gone, number, player, prefix = unpack(operation[15], 1, 9)
  local shape = {scale = scale, direction = direction, origin = tonumber(origin), bytes = scale > 0 and 8 or 16}
  local rows = {}
  for index = 1, #pairs_of, 2 do
    rows[#rows + 1] = pairs_of[index]
    rows[#rows + 1] = pairs_of[index + 1]
    rows[#rows + 1] = scale > 0 and '' or string.sub(args[prefixes], 4 * index - 3, 4 * index + 4)
  end
  tail_write(keys[slots[WRITE_S]], keys[slots[WRITE_T]], players, shape, rows, gone)
  if player ~= '' then
    local hash = scale == 0 and keys[slots[WRITE_H]]
    tail_cut(keys[slots[WRITE_Z]], hash, number, scale > 0 and player or args[prefix] .. player)
  end
end

local function write_operation(operation, keys, args)
  local slots = operation[3]
  for _, index in ipairs(operation[6]) do
    redis.call('UNLINK', keys[index])
  end
  if operation[2] > 0 then
    write_packed(operation, keys)
  else
    write_prefixed(operation, keys, args)
  end
  if #operation[15] > 0 then
    write_tail(operation, keys, args)
  end
  if #operation[14] > 0 then
    for slot, real in ipairs(operation[14]) do
      if real ~= 0 then
        if slots[slot] ~= 0 and redis.call('EXISTS', keys[slots[slot]]) == 1 then
          redis.call('RENAME', keys[slots[slot]], keys[real])
        else
          redis.call('UNLINK', keys[real])
        end
      end
    end
  end
  if #operation[10] > 0 then
    write_forget_places(keys[slots[WRITE_C]], operation[10])
  end
  write_captured(operation, keys, args)
  if #operation[12] > 0 then
    write_in_parts('HDEL', keys[slots[WRITE_M]], operation[12])
  end
  if #operation[11] > 0 then
    write_in_parts('HSET', keys[slots[WRITE_M]], operation[11])
  end
  if operation[4] == -1 then
    redis.call('HDEL', keys[2], operation[1])
  elseif operation[4] > 0 then
    redis.call(operation[5] and 'HSET' or 'HSETNX', keys[2], operation[1], args[operation[4]])
  end
end
