-- Reads of a whole board shard.

-- Arguments: instance
-- Reply: total.
local function read_total(keys, args)
  local reply, view = read.open(keys[1], args[1])
  reply[3] = view and view.total or 0
  return reply
end

-- Reply: the head only, with the shard's positions.
local function read_positions(keys)
  return { (read.head(keys[1])), false }
end

-- Reply: the windows and scopes that have players.
local function read_instances(keys)
  local line, fields = read.head(keys[1])
  if line == '' or fields.version ~= LAYOUT_VERSION then -- a shard that is being filled has no generation yet
    return { line, false }
  end
  local described = string.sub(keys[1], 1, -5) .. fields.generation .. ':i'
  read.count_present(keys[1], described)
  return { line, false, redis.call('HKEYS', described) }
end

redis.register_function({ function_name = 'rankd_read_total', callback = read_total, flags = { 'no-writes' } })
redis.register_function({ function_name = 'rankd_read_instances', callback = read_instances, flags = { 'no-writes' } })
redis.register_function({ function_name = 'rankd_read_positions', callback = read_positions, flags = { 'no-writes' } })
