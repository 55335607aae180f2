-- The projector says that it keeps up. A paused one that wakes does not overwrite what its successor says.

local function write_beat(keys, args)
  local epoch = tonumber(redis.call('HGET', keys[1], 'epoch') or '0')
  if tonumber(args[1]) < epoch then
    return {'fenced'}
  end
  redis.call('HSET', keys[1], 'epoch', args[1], 'time', args[2], 'positions', args[3])
  return {'applied'}
end

local function write_beat_read(keys)
  return redis.call('HMGET', keys[1], 'epoch', 'time', 'positions')
end

redis.register_function{function_name = 'rankd_beat', callback = write_beat}
redis.register_function{function_name = 'rankd_read_beat', callback = write_beat_read, flags = {'no-writes'}}
