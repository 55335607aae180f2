-- The projector's heartbeat. A paused projector that wakes does not overwrite its successor's, and none overwrites that of
-- another ledger.

local function write_beat(keys, args)
  local stored = redis.call('HMGET', keys[1], 'epoch', 'ledger')
  if stored[2] and stored[2] ~= args[4] then
    return {'other'}
  end
  if tonumber(args[1]) < tonumber(stored[1] or '0') then
    return {'fenced'}
  end
  redis.call('HSET', keys[1], 'epoch', args[1], 'time', args[2], 'positions', args[3], 'ledger', args[4],
    'mirrored', args[5])
  return {'applied'}
end

local function write_beat_read(keys)
  return redis.call('HMGET', keys[1], 'epoch', 'time', 'positions', 'ledger', 'mirrored')
end

redis.register_function{function_name = 'rankd_beat', callback = write_beat}
redis.register_function{function_name = 'rankd_read_beat', callback = write_beat_read, flags = {'no-writes'}}
