-- The spending of rate limits, over all API processes. A key holds the time at which its bucket is full again, in ms.

local function write_rates(keys, args)
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local owed = {}
  for index, key in ipairs(keys) do
    local full = math.max(now, tonumber(redis.call('GET', key) or '0')) + tonumber(args[index])
    if full > now then
      redis.call('SET', key, string.format('%.0f', full), 'PX', math.ceil(full - now) + 1000)
    end
    owed[index] = math.ceil(full - now)
  end
  return owed
end

redis.register_function{function_name = 'rankd_rates', callback = write_rates}
