-- Definitions for all parts. Parts are joined into one chunk: names of `local` functions are unique over all parts
-- (those of the write side begin with write_, those of the read side with read_).

local LAYOUT_VERSION = '1'
local VALUES_A_CALL = 7000 -- unpack takes at most 7,999
