"""Matrices in Redis, kept while jobs need them and bounded in all.

Every entry is a hash under a key that says what it holds (a digest). It belongs to those who put it there: when the
last of them gives it back, it goes; otherwise some time after its last use. What is stored is counted, and beyond the
bound entries go that were not used for `keep_s` and that no unfinished job needs, the longest unused first; where that
is not enough, what is new is refused.

What an earlier release stored is counted when it is next used, and only its age removes it. A sum that is no number is
counted anew; a size that is none counts as nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from sparsesmith.errors import Unavailable
from sparsesmith.transport.connection import Redis, answering
from sparsesmith.transport.packed_arrays import Field

EXPIRIES = "sparsesmith:shelf:expiries"
SIZES = "sparsesmith:shelf:sizes"
TOTAL = "sparsesmith:shelf:bytes"
UNFINISHED = "sparsesmith:jobs:unfinished"
USERS = "sparsesmith:shelf:users:"
EARLIER_RELEASE = "an earlier release"
"""User of an entry whose users nobody wrote down."""
RESERVED_S = 600
"""An entry that was announced and never came is not counted any longer."""
ENTRY_BYTES = 512
"""Of an entry beside its content, in Redis and in the books."""

_LIBRARY = """
local expiries, sizes, total, unfinished = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local now = tonumber(redis.call('TIME')[1])

local function whole(text)
  return text and string.match(text, '^%-?%d+$') and tonumber(text)
end

local function size_of(entry)
  return whole(redis.call('HGET', sizes, entry)) or 0
end

local function forget(entry)
  redis.call('DECRBY', total, size_of(entry))
  redis.call('HDEL', sizes, entry)
  redis.call('ZREM', expiries, entry)
end

local function count(entry, size, seconds)
  redis.call('INCRBY', total, size - size_of(entry))
  redis.call('HSET', sizes, entry, size)
  redis.call('ZADD', expiries, now + seconds, entry)
end

local function settle()
  if redis.call('EXISTS', total) == 1 and not whole(redis.call('GET', total)) then
    local sum = 0
    for _, size in ipairs(redis.call('HVALS', sizes)) do sum = sum + (whole(size) or 0) end
    redis.call('SET', total, sum)
  end
  for _, entry in ipairs(redis.call('ZRANGEBYSCORE', expiries, '-inf', now)) do forget(entry) end
end

local function drop(entry)
  redis.call('DEL', entry, 'sparsesmith:shelf:users:' .. entry)
  forget(entry)
end

local function is_needed(entry)
  for _, user in ipairs(redis.call('SMEMBERS', 'sparsesmith:shelf:users:' .. entry)) do
    if redis.call('ZSCORE', unfinished, user) then return true end
  end
  return false
end

local function use(entry, user, seconds)
  local users = 'sparsesmith:shelf:users:' .. entry
  if redis.call('EXISTS', users) == 0 then redis.call('SADD', users, ARGV[4]) end
  if user ~= '' then redis.call('SADD', users, user) end
  redis.call('EXPIRE', entry, seconds)
  redis.call('EXPIRE', users, seconds)
  local size = whole(redis.call('HGET', sizes, entry))
  if not size then
    size = 0
    for _, field in ipairs(redis.call('HKEYS', entry)) do size = size + redis.call('HSTRLEN', entry, field) end
  end
  count(entry, size, seconds)
end
"""

_USE = (
    _LIBRARY
    + """
local entry, user, seconds = ARGV[1], ARGV[2], tonumber(ARGV[3])
settle()
if redis.call('EXISTS', entry) == 0 then
  if redis.call('HGET', sizes, entry) then forget(entry) end
  return 0
end
use(entry, user, seconds)
return 1
"""
)

_RESERVE = (
    _LIBRARY
    + """
local entry, size, bound, ttl, keep, reserved = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]),
  tonumber(ARGV[5]), tonumber(ARGV[6])
settle()
local stored = tonumber(redis.call('GET', total) or 0)
if stored + size > bound then
  for _, old in ipairs(redis.call('ZRANGEBYSCORE', expiries, '-inf', now + ttl - keep)) do
    if redis.call('EXISTS', old) == 1 and not is_needed(old) then drop(old) end
    stored = tonumber(redis.call('GET', total) or 0)
    if stored + size <= bound then break end
  end
end
if stored + size > bound then return stored end
count(entry, size, reserved)
return -1
"""
)

_RELEASE = (
    _LIBRARY
    + """
local entry, user = ARGV[1], ARGV[2]
settle()
local users = 'sparsesmith:shelf:users:' .. entry
if redis.call('SREM', users, user) == 1 and redis.call('SCARD', users) == 0 then
  drop(entry)
  return 1
end
return 0
"""
)


@dataclass(frozen=True)
class ShelfLimits:
    """How much is stored, and how long."""

    max_bytes: int = 8 * 2**30
    """Of all entries together."""
    ttl_s: int = 7 * 24 * 3600
    """After its last use."""
    keep_s: int = 25 * 3600
    """After its last use an entry stays this long though room is needed: as long as an ended job is remembered."""


class Shelf:
    """Safe to share between threads and processes: every step is one transaction of the server."""

    def __init__(self, connection: Redis, limits: ShelfLimits) -> None:
        self._connection = connection
        self._limits = limits
        self._use, self._reserve, self._release = map(connection.register_script, (_USE, _RESERVE, _RELEASE))

    def use(self, entry: str, user: str = "") -> bool:
        """Extend an entry's life, and enter a user; whether it is there. Raises Unavailable."""
        with answering():
            return bool(self._use(_BOOKS, [entry, user, self._limits.ttl_s, EARLIER_RELEASE]))

    def put(self, entry: str, fields: Mapping[str, Field | str], user: str) -> None:
        """Store an entry for a user. Raises Unavailable, also where there is no room for it."""
        size = sum(len(content) for content in fields.values()) + ENTRY_BYTES
        self._make_room(entry, size)
        with answering(), self._connection.pipeline(transaction=True) as pipeline:
            pipeline.delete(entry)
            pipeline.hset(entry, mapping=fields)
            pipeline.sadd(USERS + entry, user)
            pipeline.expire(entry, self._limits.ttl_s)
            pipeline.expire(USERS + entry, self._limits.ttl_s)
            pipeline.execute()
        self.use(entry, user)

    def release(self, entry: str, user: str) -> bool:
        """The user is done with it; whether it went. Raises Unavailable."""
        with answering():
            return bool(self._release(_BOOKS, [entry, user]))

    def drop(self, entry: str) -> None:
        """It is damaged. Raises Unavailable."""
        with answering():
            self._connection.delete(entry, USERS + entry)
        self.use(entry)

    def num_bytes(self) -> int:
        """Stored or announced now. Raises Unavailable."""
        with answering():
            total = bytes(self._connection.get(TOTAL) or b"0")
        # What is no number is counted anew at the next use.
        return int(total) if total.removeprefix(b"-").isdigit() else 0

    def _make_room(self, entry: str, size: int) -> None:
        limits = self._limits
        with answering():
            stored = self._reserve(_BOOKS, [entry, size, limits.max_bytes, limits.ttl_s, limits.keep_s, RESERVED_S])
        if stored >= 0:
            raise Unavailable(
                f"matrices of {stored} bytes are stored, and {size} more would be beyond {limits.max_bytes}: try again "
                "when others have ended",
                field="max_stored_bytes",
                value=stored + size,
                limit=limits.max_bytes,
            )


_BOOKS = [EXPIRIES, SIZES, TOTAL, UNFINISHED]
