-- rankd_write: rows of several instances and the positions they reach, all or nothing.
--
-- KEYS   1 meta, 2 the `i` hash of the generation, then every key that an operation names by its index
-- ARGV   1 the head in MessagePack, then operations and what they name by index
--   head       {layout, generation, epoch, time ms, moves, cut, cuts, token, operations, mode}
--              moves: {partition, after, upto, …} as texts; cut … cuts: which part of one write this is, from 1, or the
--              number of this call since the rebuild began; token: the same for all parts; operations: {index in ARGV, …}; mode: 0 live, 1 a new
--              generation is filled, 2 rows gather beside live ones: no position moves, only the epoch is checked
--   operation  {name, scale, keys, described, last, unlink, rows, prefixes, gone, places gone, metadata, metadata gone,
--              captured, swap, tail}; write_instance.lua says what each means
-- Answer {"applied"}, or {"dup" | "gap" | "fenced" | "other", generation, loading, positions as field, value, …}:
-- nothing was written, and this is what is stored. "other": another generation is live, or another one is being loaded.
-- An error ("RANKD …") means a malformed or foreign call; nothing was written either.
--
-- Everything is decoded and checked before the first write, since Redis does not roll back. Positions are written last.

local WRITE_LIVE, WRITE_LOADING, WRITE_BESIDE = 0, 1, 2

local function write_checked_head(keys, args)
  local head = cmsgpack.unpack(args[1])
  if type(head) ~= 'table' or #head ~= 10 then
    return nil, 'RANKD the head of this call is not one'
  end
  if head[1] ~= LAYOUT_VERSION then
    return nil, 'RANKD this call is for layout ' .. tostring(head[1]) .. ', here is ' .. LAYOUT_VERSION
  end
  if #head[5] % 3 ~= 0 or (#head[5] == 0 and head[10] ~= WRITE_LOADING) then
    return nil, 'RANKD moves are partition, after and upto'
  end
  if #keys < 2 then
    return nil, 'RANKD an argument is missing'
  end
  return head
end

local function write_apply(keys, args)
  local head, problem = write_checked_head(keys, args)
  if not head then
    return redis.error_reply(problem)
  end
  local generation, epoch, moves, cut, cuts, token = head[2], head[3], head[5], head[6], head[7], head[8]
  local mode = head[10]
  local operations = {}
  for number, index in ipairs(head[9]) do
    problem = 'its argument is missing'
    if args[index] then
      operations[number] = cmsgpack.unpack(args[index])
      problem = write_problem(operations[number], keys, args)
    end
    if problem then
      return redis.error_reply('RANKD operation ' .. number .. ': ' .. problem)
    end
  end

  local meta = keys[1]
  local fields = {'version', 'generation', 'cut', 'loading', 'loaded'}
  local fixed = #fields
  for index = 1, #moves, 3 do
    fields[#fields + 1] = 'p' .. moves[index]
  end
  local stored = redis.call('HMGET', meta, unpack(fields))
  if stored[1] and stored[1] ~= LAYOUT_VERSION then
    return redis.error_reply('RANKD this shard has layout ' .. stored[1] .. ', this call is for ' .. LAYOUT_VERSION)
  end
  if mode == WRITE_LOADING then
    local loaded = tonumber(stored[5] or '0')
    -- The same call may come twice; a missing one was lost with a master whose replica had not received it.
    if stored[4] ~= generation .. ':' .. epoch or (loaded ~= cut - 1 and loaded ~= cut) then
      return write_stored('other', meta)
    end
  else
    if stored[2] and stored[2] ~= generation then
      return write_stored('other', meta)
    end
    local verdict = write_verdict(epoch, moves, stored, fixed + 1)
    if mode == WRITE_BESIDE and verdict ~= 'fenced' then
      verdict = nil
    elseif not verdict and cut > 1 and stored[3] ~= token .. ':' .. (cut - 1) then
      verdict = 'gap' -- the part before this one is not here
    end
    if verdict then
      return write_stored(verdict, meta)
    end
    local done = mode == WRITE_LIVE and string.match(stored[3] or '', '^' .. token .. ':(%d+)$')
    if done and tonumber(done) >= cut then
      return {'applied'} -- a part that comes again: what took another's place must not do so twice
    end
  end

  for _, operation in ipairs(operations) do
    write_operation(operation, keys, args)
  end
  if mode == WRITE_LOADING then
    redis.call('HSET', meta, 'loaded', cut)
  end
  if mode ~= WRITE_LIVE then
    return {'applied'}
  end

  local values = {'version', LAYOUT_VERSION, 'generation', generation}
  if cut < cuts then
    values[#values + 1] = 'cut'
    values[#values + 1] = token .. ':' .. cut
  else
    values[#values + 1] = 'time'
    values[#values + 1] = head[4]
    for index = 1, #moves, 3 do
      values[#values + 1] = 'p' .. moves[index]
      values[#values + 1] = epoch .. ':' .. moves[index + 2]
    end
    if stored[3] then
      redis.call('HDEL', meta, 'cut')
    end
  end
  redis.call('HSET', meta, unpack(values))
  return {'applied'}
end

redis.register_function{function_name = 'rankd_write', callback = write_apply}
