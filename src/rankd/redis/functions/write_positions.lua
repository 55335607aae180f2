-- Positions: the meta hash of a shard, and the verdict on a write.

local function write_less(one, other) -- of whole numbers as texts, which may exceed 2^53
  if #one ~= #other then
    return #one < #other
  end
  return one < other
end

local function write_stored(verdict, meta)
  local answer = {verdict, '', ''}
  local fields = redis.call('HKEYS', meta)
  for _, field in ipairs(fields) do
    if field == 'generation' then
      answer[2] = redis.call('HGET', meta, field)
    elseif field == 'loading' then
      answer[3] = redis.call('HGET', meta, field)
    elseif string.find(field, '^p%d+$') then
      answer[#answer + 1] = field
      answer[#answer + 1] = redis.call('HGET', meta, field)
    end
  end
  return answer
end

-- Returns the worst verdict over all moves: fenced, then gap, then dup; nil when all of them continue from the stored
-- positions.
local function write_verdict(epoch, moves, stored, first)
  local found
  for index = 1, #moves, 3 do
    local position = stored[first + (index - 1) / 3]
    local stored_epoch, sequence = '0', '0'
    if position then
      stored_epoch, sequence = string.match(position, '^(%d+):(%d+)$')
    end
    if write_less(epoch, stored_epoch) then
      return 'fenced'
    end
    if write_less(sequence, moves[index + 1]) then
      found = 'gap'
    elseif write_less(moves[index + 1], sequence) and found ~= 'gap' then
      found = 'dup'
    end
  end
  return found
end

local function write_highest_epoch(meta)
  local highest = '0'
  for _, field in ipairs(redis.call('HKEYS', meta)) do
    if string.find(field, '^p%d+$') then
      local epoch = string.match(redis.call('HGET', meta, field), '^(%d+):')
      if write_less(highest, epoch) then
        highest = epoch
      end
    end
  end
  return highest
end
