-- Claims of gateways on common budgets. The rules are those of weir_spend::shared::model, call by call.
-- KEYS: the head, the hungers, the session of the gateway, and a hash for each item.
-- ARGV: operation, gateway, session, epoch, revision; then
--   open:  whether something was used (1), run of the server, grace in ms
--   claim: ttl in ms, whether needs of other gateways are looked for (1), and for each item: limit, used, held ("?": not known), need, comfort, whether more is wanted (1), seconds to keep
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local gateway, session, seen = ARGV[2], ARGV[3], tonumber(ARGV[5])
local head = redis.call('HMGET', KEYS[1], 'epoch', 'revision', 'run', 'grace_end')
local epoch, revision = head[1] or '', tonumber(head[2] or '0')
local HUNGER_MS, HUNGERS_MAX, PARTS, SESSION_MS = 2000, 256, 8, 3600000

local function text(number)
  return string.format('%.0f', number)
end

if ARGV[1] == 'open' then
  if epoch == '' or revision < seen or head[3] ~= ARGV[7] then
    local grace_end = now
    if ARGV[6] == '1' or ARGV[4] ~= '' or epoch ~= '' then
      grace_end = now + tonumber(ARGV[8])
    end
    epoch, revision = session, math.max(revision, seen)
    redis.call('HSET', KEYS[1], 'epoch', epoch, 'run', ARGV[7], 'grace_end', text(grace_end))
  end
  redis.call('SET', KEYS[3], session, 'PX', SESSION_MS)
  redis.call('HSET', KEYS[1], 'revision', text(revision + 1))
  return {'open', epoch, text(revision + 1)}
end

if epoch ~= ARGV[4] or revision < seen then
  return {'stale'}
end
local latest = redis.call('GET', KEYS[3])
if latest ~= session then
  return {'superseded', latest or ''}
end
local ttl, grace_end = tonumber(ARGV[6]), tonumber(head[4] or '0')
redis.call('PEXPIRE', KEYS[3], SESSION_MS + ttl)
redis.call('HSET', KEYS[1], 'revision', text(revision + 1))

local function field(value)
  local allowed, used, ending = string.match(value, '^(%d+) (%d+) (%d+)$')
  if not allowed then
    return 0, 0, true
  end
  allowed, used = tonumber(allowed), tonumber(used)
  local is_over = tonumber(ending) < now
  if is_over then
    allowed = used
  end
  return allowed, used, is_over
end

local function claim(key, at)
  local limit, used, held = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  local need, comfort = tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4])
  local elsewhere, idle_elsewhere, used_elsewhere, own, is_own_over = 0, 0, 0, nil, false
  local fields = redis.call('HGETALL', key)
  for index = 1, #fields, 2 do
    local allowed, spent, is_over = field(fields[index + 1])
    if fields[index] == gateway then
      own, is_own_over = allowed, is_over
    else
      elsewhere = elsewhere + allowed
      idle_elsewhere = idle_elsewhere + math.max(allowed - spent, 0)
      used_elsewhere = used_elsewhere + spent
    end
  end
  local most = math.max(limit - elsewhere, 0)
  if not held then
    -- It spends nothing of that yet.
    held = math.min(own or 0, most)
  elseif own and is_own_over then
    -- Others may have what it gave up by its silence.
    held = math.min(held, most)
  end
  local noted = math.max(held, used)
  -- All claims are above a budget that was lowered: the gateway lowers its own, and the next call notes that. Until it has the reply it may
  -- spend what is noted.
  local allowed = math.max(math.min(noted, most), used)
  local rest = math.max(limit - elsewhere - noted, 0)
  if ARGV[at + 5] == '1' then
    local idle = allowed - used
    local lack = math.max(need - idle, 0)
    local hunger = gateway .. ' ' .. key
    if now >= grace_end and lack <= rest then
      local grant = math.min(math.max(lack, math.floor(rest / PARTS), comfort - idle, 0), rest)
      noted, allowed, rest = noted + grant, allowed + grant, rest - grant
      redis.call('HDEL', KEYS[2], hunger)
    -- Others can help. A request that is too large for all makes none of them give anything back.
    elseif lack > rest and lack <= rest + idle_elsewhere and redis.call('HLEN', KEYS[2]) < HUNGERS_MAX then
      redis.call('HSET', KEYS[2], hunger, text(need) .. ' ' .. text(now + HUNGER_MS))
    end
  end
  redis.call('HSET', key, gateway, text(noted) .. ' ' .. text(used) .. ' ' .. text(now + ttl))
  redis.call('EXPIRE', key, ARGV[at + 6])
  return text(allowed) .. ' ' .. text(rest) .. ' ' .. text(idle_elsewhere) .. ' ' .. text(used_elsewhere)
end

local replies, hungers = {}, {}
for index = 4, #KEYS do
  replies[#replies + 1] = claim(KEYS[index], 8 + (index - 4) * 7)
end
-- Once in a look of each gateway: the server reads no more than HUNGERS_MAX entries, and not for each call.
local all = ARGV[7] == '1' and redis.call('HGETALL', KEYS[2]) or {}
for index = 1, #all, 2 do
  local need, ending = string.match(all[index + 1], '^(%d+) (%d+)$')
  local name, key = string.match(all[index], '^(%S+) (.*)$')
  if not need or not name or tonumber(ending) < now then
    redis.call('HDEL', KEYS[2], all[index])
  elseif name ~= gateway then
    hungers[#hungers + 1] = need .. ' ' .. key
  end
end
return {'claim', text(revision + 1), replies, hungers}
