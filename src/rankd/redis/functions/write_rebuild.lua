-- Generations: a new one is loaded beside the live one and replaces it in one call; the old one is swept in steps.
--
-- In meta: `generation` is live; `loading` is "<generation>:<epoch>" while one is filled, and `loaded` the number of
-- calls that filled it so far; `stale` lists, separated by commas, those to be swept; `newest` is the highest number
-- ever used, so that a late call for an abandoned generation never meets another one of the same number. Each function
-- has KEYS[1] meta; keys of swept instances are not declared: they share its slot.

local WRITE_KINDS = {'z', 'h', 'd', 'n', 'c', 'm', 's', 't', 'z~', 'h~', 'd~', 'n~', 'c~', 's~', 't~'}

local function write_prefix(meta)
  return string.sub(meta, 1, #meta - #'meta')
end

local function write_stale_with(meta, generation)
  local stale = redis.call('HGET', meta, 'stale')
  if stale and stale ~= '' then
    return stale .. ',' .. generation
  end
  return generation
end

-- rankd_state: the stored state of a shard. Answer {generation, loading, {position field, value, …}, {name, described,
-- …}}.
local function write_state(keys)
  local version = redis.call('HGET', keys[1], 'version')
  if version and version ~= LAYOUT_VERSION then
    return redis.error_reply('RANKD this shard has layout ' .. version .. ', this call is for ' .. LAYOUT_VERSION)
  end
  local stored = write_stored('', keys[1])
  local positions = {}
  for index = 4, #stored do
    positions[#positions + 1] = stored[index]
  end
  local described = {}
  if stored[2] ~= '' then
    described = redis.call('HGETALL', write_prefix(keys[1]) .. stored[2] .. ':i')
  end
  return {stored[2], stored[3], positions, described}
end

-- rankd_begin: ARGV epoch. Answer {"applied", the new generation} or {"fenced"}.
local function write_begin(keys, args)
  local meta, epoch = keys[1], args[1]
  local version = redis.call('HGET', meta, 'version')
  if version and version ~= LAYOUT_VERSION then
    return redis.error_reply('RANKD this shard has layout ' .. version .. ', this call is for ' .. LAYOUT_VERSION)
  end
  local loading = redis.call('HGET', meta, 'loading')
  local abandoned, other
  if loading then
    abandoned, other = string.match(loading, '^(%d+):(%d+)$')
  end
  if write_less(epoch, write_highest_epoch(meta)) or (other and write_less(epoch, other)) then
    return {'fenced'}
  end
  local newest = tonumber(abandoned or '0')
  for _, named in ipairs(redis.call('HMGET', meta, 'generation', 'newest')) do
    newest = math.max(newest, tonumber(named or '0'))
  end
  local stale = redis.call('HGET', meta, 'stale') or ''
  for generation in string.gmatch(stale, '%d+') do
    newest = math.max(newest, tonumber(generation))
  end
  local generation = newest + 1
  while redis.call('EXISTS', write_prefix(meta) .. generation .. ':i') == 1 do
    generation = generation + 1 -- left by a shard whose meta was lost
  end
  if abandoned then
    redis.call('HSET', meta, 'stale', write_stale_with(meta, abandoned))
  end
  redis.call(
    'HSET', meta, 'version', LAYOUT_VERSION, 'loading', generation .. ':' .. epoch, 'loaded', 0, 'newest', generation
  )
  return {'applied', tostring(generation)}
end

-- rankd_finish: ARGV epoch, generation, time ms, forced ("1"), calls that loaded it, then partition, upto, …
-- Answer {"applied"} or as rankd_write; "gap" when a position would go back and it is not forced. A generation that is
-- live already stays unchanged, "applied": a caller that lost the answer retries, and others may have written since.
local function write_finish(keys, args)
  local meta, epoch, generation, time_ms, forced = keys[1], args[1], args[2], args[3], args[4]
  local live, loading, loaded = unpack(redis.call('HMGET', meta, 'generation', 'loading', 'loaded'))
  if live == generation then
    return {'applied'}
  end
  if loading ~= generation .. ':' .. epoch or loaded ~= args[5] then
    return write_stored('other', meta)
  end
  if write_less(epoch, write_highest_epoch(meta)) then
    return write_stored('fenced', meta)
  end
  local values = {'generation', generation, 'time', time_ms}
  for index = 6, #args, 2 do
    local field = 'p' .. args[index]
    local position = redis.call('HGET', meta, field)
    if position and forced ~= '1' and write_less(args[index + 1], string.match(position, ':(%d+)$')) then
      return write_stored('gap', meta)
    end
    values[#values + 1] = field
    values[#values + 1] = epoch .. ':' .. args[index + 1]
  end
  if live then
    values[#values + 1] = 'stale'
    values[#values + 1] = write_stale_with(meta, live)
  end
  redis.call('HDEL', meta, 'loading', 'loaded', 'cut')
  redis.call('HSET', meta, unpack(values))
  return {'applied'}
end

-- rankd_abandon: ARGV epoch, "loading", generation: what is being loaded becomes stale, if it is this one. Or ARGV
-- epoch, "board": everything of the shard does; a board that is dropped has no generation and no positions from here
-- on. Answer {"applied"}, or {"fenced"} for a board of a writer with a higher epoch.
local function write_abandon(keys, args)
  local meta, epoch, is_board = keys[1], args[1], args[2] == 'board'
  if is_board and write_less(epoch, write_highest_epoch(meta)) then
    return write_stored('fenced', meta)
  end
  local loading = redis.call('HGET', meta, 'loading')
  if loading then
    local generation, other = string.match(loading, '^(%d+):(%d+)$')
    -- Callers of an earlier version name no generation.
    if is_board or (other == epoch and (not args[3] or args[3] == generation)) then
      redis.call('HSET', meta, 'stale', write_stale_with(meta, generation))
      redis.call('HDEL', meta, 'loading', 'loaded')
    end
  end
  if is_board then
    local live = redis.call('HGET', meta, 'generation')
    if live then
      redis.call('HSET', meta, 'stale', write_stale_with(meta, live))
    end
    for _, field in ipairs(redis.call('HKEYS', meta)) do
      if field ~= 'stale' and field ~= 'version' then
        redis.call('HDEL', meta, field)
      end
    end
  end
  return {'applied'}
end

-- rankd_discard: KEYS 2 … of a superseded generation; ARGV that generation. They are removed, unless it is live or
-- being loaded. Answer the number of removed keys.
local function write_discard(keys, args)
  local live, loading = unpack(redis.call('HMGET', keys[1], 'generation', 'loading'))
  if live == args[1] or (loading and string.match(loading, '^%d+') == args[1]) then
    return 0
  end
  local removed = 0
  for index = 2, #keys do
    removed = removed + redis.call('UNLINK', keys[index])
  end
  return removed
end

-- rankd_sweep: ARGV the most instances to remove. Answer the number of stale generations left; 0 when all are swept.
local function write_sweep(keys, args)
  local meta = keys[1]
  local stale = redis.call('HGET', meta, 'stale')
  local generation = stale and string.match(stale, '%d+')
  if not generation then
    return 0
  end
  local base = write_prefix(meta) .. generation .. ':'
  local is_live = generation == redis.call('HGET', meta, 'generation') -- which is never swept
  local found = is_live and {} or redis.call('HSCAN', base .. 'i', '0', 'COUNT', args[1])[2]
  local names, swept = {}, math.min(#found / 2, 500)
  for index = 1, swept do
    local name = found[2 * index - 1]
    names[index] = name
    local unlinked = {}
    for slot, kind in ipairs(WRITE_KINDS) do
      unlinked[slot] = base .. kind .. ':' .. name
    end
    redis.call('UNLINK', unpack(unlinked))
  end
  if #names > 0 then
    redis.call('HDEL', base .. 'i', unpack(names))
  end
  local rest = {}
  for other in string.gmatch(stale, '%d+') do
    if other ~= generation or (not is_live and redis.call('EXISTS', base .. 'i') == 1) then
      rest[#rest + 1] = other
    end
  end
  if #rest > 0 then
    redis.call('HSET', meta, 'stale', table.concat(rest, ','))
  else
    redis.call('HDEL', meta, 'stale')
    if redis.call('HLEN', meta) == 1 and redis.call('HEXISTS', meta, 'version') == 1 then
      redis.call('UNLINK', meta) -- a dropped board
    end
  end
  return #rest
end

redis.register_function{function_name = 'rankd_state', callback = write_state, flags = {'no-writes'}}
redis.register_function{function_name = 'rankd_begin', callback = write_begin}
redis.register_function{function_name = 'rankd_finish', callback = write_finish}
redis.register_function{function_name = 'rankd_abandon', callback = write_abandon}
redis.register_function{function_name = 'rankd_discard', callback = write_discard}
redis.register_function{function_name = 'rankd_sweep', callback = write_sweep}
