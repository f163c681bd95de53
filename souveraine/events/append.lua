-- Appends entries to one run's stream, exactly once and only for the holder of the newest fence.
-- KEYS: stream, meta hash. ARGV: fence, min_seq, ttl, ttl after the end, cap, writer, token, then kind, data ...
-- Returns the seqs of the entries in order. A second "end" is not written; the first one's seq is returned. Entries
-- before an "end" belong to it: of two who end a stream at once, only the first one's are written.
local stream, meta = KEYS[1], KEYS[2]
local fence, min_seq = tonumber(ARGV[1]), tonumber(ARGV[2])
local writer, token = 'w:' .. ARGV[6], ARGV[7]
local have = redis.call('HMGET', meta, 'fence', 'seq', 'end', 'ttl', writer)

local stored_fence = tonumber(have[1] or '-1')
if fence < stored_fence then
  return redis.error_reply('FENCED the run has fence ' .. stored_fence .. ', the writer ' .. fence)
end

local last = tonumber(have[2] or '-1')
if last < 0 then
  -- The hash is new; a stream that outlived it must not be given smaller ids.
  local newest = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)
  last = newest[1] and tonumber(string.match(newest[1][1], '^%d+')) or 0
end
if last < min_seq then
  -- Redis has lost entries: whoever ends the stream makes good for it (`log.has_gap`).
  if min_seq > 1 then redis.call('HSET', meta, 'gap', last + 1) end
  last = min_seq
end

-- The same token again: the reply to the first call was lost, so answer as the first call did.
local old_token, old_base = string.match(have[5] or '', '^(%S+) (%d+)$')
local is_repeat = old_token == token
if is_repeat then last = tonumber(old_base) end

local seqs, writes, base = {}, {}, last
local ended = tonumber(have[3] or '0')
local second_end = 0
if ended > 0 and ended <= last then
  for i = 8, #ARGV, 2 do
    if ARGV[i] == 'end' then second_end = i end
  end
end
for i = 8, #ARGV, 2 do
  local kind = ARGV[i]
  if i <= second_end or (kind == 'end' and ended > 0 and not (is_repeat and ended == last + 1)) then
    seqs[#seqs + 1] = ended
  else
    last = last + 1
    if kind == 'end' then ended = last end
    seqs[#seqs + 1] = last
    writes[#writes + 1] = { last, kind, ARGV[i + 1] }
  end
end
if is_repeat then return seqs end

local ttl = have[4] or ARGV[3]
if ended > 0 and not have[4] then ttl = ARGV[4] end
redis.call('HSET', meta, 'fence', ARGV[1], 'seq', last, writer, token .. ' ' .. base)
if ended > 0 then redis.call('HSET', meta, 'end', ended, 'ttl', ttl) end
for _, write in ipairs(writes) do
  redis.call('XADD', stream, 'MAXLEN', '~', ARGV[5], write[1] .. '-0', 'k', write[2], 'd', write[3])
end
redis.call('EXPIRE', stream, ttl)
redis.call('EXPIRE', meta, ttl)
return seqs
