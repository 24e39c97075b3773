"""Kinds of GPU in one fleet: which there are, and who may take a job.

Every evaluator takes from two lists: the common one, of jobs that any kind may grade, and that of its kind, of jobs
that name it. Times of two kinds cannot be compared, so a search belongs to the kind that takes the first of its jobs:
all others go to that kind, however they were queued.

    sparsesmith:gpus         hash: queue of a kind -> what it is, as its evaluators tell
    sparsesmith:search:ID    hash: `queue`, of the kind that has the search; `answered`, once a report is on its way
    sparsesmith:bell         stream of one entry: something was queued

Where a kind leaves before any report of a search was on its way, the search goes to whoever takes its next job.
Afterwards its jobs wait for the kind, and whoever waits for them gives up in time.

Not protected against: evaluators of releases before this one, which take from the common list whatever the search is.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from pydantic import TypeAdapter, ValidationError
from rq.job import Job
from rq.worker_registration import WORKERS_BY_QUEUE_KEY

from sparsesmith.transport.connection import Pipeline, Redis, answering, text_of
from sparsesmith_proto.evaluation import EvaluationJob, InstantJob
from sparsesmith_proto.kernel import DeviceDescription, DeviceKind

QUEUE_NAME = "evaluations"
"""Of jobs that any kind may grade."""
GPU_FIELD = "gpu"
"""Named by Unavailable where a kind has left the fleet."""
GPUS = "sparsesmith:gpus"
SEARCH = "sparsesmith:search:"
BELL = "sparsesmith:bell"
_KEY = "rq:queue:"
SEARCH_TTL_S = 2 * 3600
"""After the last of its jobs was taken; a search takes an hour at most."""

SMALL_RATIO = 4
"""A job goes before waiting ones of at least this many times its work..."""
MAX_OVERTAKEN = 4
"""...each of which lets so many others pass, and no more..."""
MAX_LOOK = 256
"""...among this many at the end of the queue."""
RULE = (SMALL_RATIO, MAX_OVERTAKEN)
BEFORE_ALL = -1
"""In the place of a job's work: it goes before all that wait, however many passed these, and does not count as one."""

_READ_JOBS = """
local function field(name, of)
  local key = 'rq:job:' .. name
  if redis.call('TYPE', key).ok ~= 'hash' then return nil end
  return redis.call('HGET', key, of) or nil
end
local function number(name, of) return tonumber(field(name, of) or nil) end
local function meta(name)  -- Third parties write jobs, too: nothing long is read.
  local key = 'rq:job:' .. name
  if redis.call('TYPE', key).ok ~= 'hash' or redis.call('HSTRLEN', key, 'meta') > 1024 then return {} end
  local read, found = pcall(cjson.decode, field(name, 'meta') or '{}')
  return read and type(found) == 'table' and found or {}
end
local function lives(queue)
  for _, worker in ipairs(redis.call('SMEMBERS', 'rq:workers:' .. queue)) do
    if redis.call('EXISTS', worker) == 1 then return true end
  end
  return false
end
"""

OVERTAKE = (
    _READ_JOBS
    + """
local queue, job, work = KEYS[1], ARGV[1], tonumber(ARGV[2])
local ratio, most, look = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local now = redis.call('TIME')
redis.call('HSET', 'rq:job:' .. job, 'work', ARGV[2], 'submitted', string.format('%.3f', now[1] + now[2] / 1e6))
local waiting = redis.call('LRANGE', queue, -look, -1)
local place = #waiting
while place > 0 and waiting[place] ~= job do place = place - 1 end
local pivot, passed = nil, {}
if work < 0 then  -- To the front, behind its like.
  local ahead = 0
  pivot = redis.call('LINDEX', queue, ahead)
  while pivot and pivot ~= job and (number(pivot, 'work') or 0) < 0 do
    ahead = ahead + 1
    pivot = redis.call('LINDEX', queue, ahead)
  end
  if pivot == job then pivot = nil end
  place = 0
end
while place > 1 and work < math.huge do
  local name = waiting[place - 1]
  local ahead, known = 'rq:job:' .. name, number(name, 'work') or math.huge
  if redis.call('TYPE', ahead).ok ~= 'hash' or known < math.max(0, ratio * work) then break end
  if (number(name, 'overtaken') or 0) >= most then break end
  place = place - 1
  pivot = waiting[place]
  passed[#passed + 1] = ahead
end
if pivot then
  redis.call('LREM', queue, -1, job)
  redis.call('LINSERT', queue, 'BEFORE', pivot, job)
  for _, ahead in ipairs(passed) do redis.call('HINCRBY', ahead, 'overtaken', 1) end
end
redis.call('XADD', KEYS[2], 'MAXLEN', '1', '*', 'job', job)
"""
)
"""A job that was just queued goes before waiting ones of much more work, unless they let enough others pass already:
small jobs wait for few large ones, and a large one for a bounded number of small ones. A job of unknown work counts as
large. What has BEFORE_ALL keeps its order among its like."""

TAKE = (
    _READ_JOBS
    + """
local own, common = {name = ARGV[1], key = KEYS[1]}, {name = ARGV[2], key = KEYS[2]}
local ttl, ratio, most = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])

local function since(name)  -- A job without a time counts from when it was seen in front.
  local now = redis.call('TIME')
  local told = number(name, 'submitted')
  if told or not field(name, 'status') then return told or 0 end
  redis.call('HSET', 'rq:job:' .. name, 'submitted', string.format('%.3f', now[1] + now[2] / 1e6))
  return now[1] + now[2] / 1e6
end

local function next_one()  -- The older of the two in front, unless the younger may overtake it.
  local mine, any = redis.call('LINDEX', own.key, 0), redis.call('LINDEX', common.key, 0)
  if not mine then return any, common end
  if not any then return mine, own end
  local older, younger, of_older, of_younger = mine, any, own, common
  if since(any) < since(mine) then older, younger, of_older, of_younger = any, mine, common, own end
  local much, little = number(older, 'work') or math.huge, number(younger, 'work') or math.huge
  if little < 0 and much >= 0 then return younger, of_younger end
  if little < math.huge and much >= math.max(0, ratio * little) and (number(older, 'overtaken') or 0) < most then
    redis.call('HINCRBY', 'rq:job:' .. older, 'overtaken', 1)
    return younger, of_younger
  end
  return older, of_older
end

local function holder(name)  -- Queue of the kind that has the job's search; from now on ours where nobody has it.
  local told = meta(name)
  if told.gpu or type(told.search) ~= 'string' then return own.name end
  local key = 'sparsesmith:search:' .. told.search
  local has = redis.call('HGET', key, 'queue')
  if not has or (has ~= own.name and redis.call('HEXISTS', key, 'answered') == 0 and not lives(has)) then
    has = own.name
    redis.call('HSET', key, 'queue', has)
  end
  redis.call('EXPIRE', key, ttl)
  return has
end

while true do
  local name, of = next_one()
  if not name then return false end
  local has = holder(name)
  if has == own.name then
    redis.call('LMOVE', of.key, of.key .. ':intermediate', 'LEFT', 'RIGHT')
    return {of.name, name}
  end
  redis.call('LPOP', of.key)
  redis.call('HSET', 'rq:job:' .. name, 'origin', has)
  redis.call('SADD', 'rq:queues', 'rq:queue:' .. has)
  redis.call('RPUSH', 'rq:queue:' .. has, name)
  redis.call('XADD', KEYS[3], 'MAXLEN', '1', '*', 'job', name)
end
"""
)
"""The next job that an evaluator may take, on its way to it; what belongs to another kind goes to that kind's list."""

ANSWER = (
    _READ_JOBS
    + """
local told = meta(ARGV[1])
if told.gpu or type(told.search) ~= 'string' then return 1 end
local key = 'sparsesmith:search:' .. told.search
local has = redis.call('HGET', key, 'queue')
if has and has ~= ARGV[2] then return 0 end
redis.call('HSET', key, 'queue', ARGV[2], 'answered', 1)
redis.call('EXPIRE', key, tonumber(ARGV[3]))
return 1
"""
)
"""Ties a search to the kind whose report is about to be told. 0: another kind has it by now, the report is unwanted."""

RELEASE = (
    _READ_JOBS
    + """
if lives(ARGV[1]) then return 0 end
local waiting = redis.call('LRANGE', KEYS[1], 0, -1)
local moved = 0
for place = #waiting, 1, -1 do
  local name = waiting[place]
  local told = meta(name)
  local is_open = not told.gpu and type(told.search) == 'string'
  if is_open and redis.call('HEXISTS', 'sparsesmith:search:' .. told.search, 'answered') == 0 then
    redis.call('LREM', KEYS[1], 1, name)
    redis.call('HSET', 'rq:job:' .. name, 'origin', ARGV[2])
    redis.call('LPUSH', KEYS[2], name)
    moved = moved + 1
  end
end
if moved > 0 then redis.call('XADD', KEYS[3], 'MAXLEN', '1', '*', 'job', '') end
return moved
"""
)
"""Gives jobs that wait for a kind without an evaluator back to all, where nothing ties their search to it."""


@dataclass(frozen=True)
class GpuKind:
    """What requests may name, as its evaluators tell."""

    name: str
    """`NVIDIA H200`; see `DeviceDescription.gpu`."""
    device: str
    """Name of the device: the same, but for the interpreter's."""
    kind: DeviceKind
    architecture: str
    num_sms: int
    copy_bandwidth_gbs: float

    @classmethod
    def of(cls, device: DeviceDescription) -> "GpuKind":
        return cls(device.gpu, device.name, device.kind, device.architecture, device.num_sms, device.copy_bandwidth_gbs)

    @property
    def queue(self) -> str:
        return queue_of(self.name)


def queue_of(gpu: str | None) -> str:
    """Name of the queue of a kind, `evaluations.NVIDIA-H200`; the common one's for None."""
    return QUEUE_NAME if gpu is None else f"{QUEUE_NAME}.{re.sub('[^A-Za-z0-9_-]+', '-', gpu)}"


_KINDS = TypeAdapter(GpuKind)


class GpuKinds:
    """The kinds that a Redis knows. Safe to share between threads."""

    def __init__(self, connection: Redis) -> None:
        self._connection = connection
        self._release = connection.register_script(RELEASE)

    def tell(self, kind: GpuKind, pipeline: Pipeline | None = None) -> None:
        """That there is such a kind."""
        (pipeline or self._connection).hset(GPUS, kind.queue, json.dumps(asdict(kind)))

    def known(self) -> Mapping[str, GpuKind]:
        """Every kind that there ever was, by its queue. Raises Unavailable."""
        with answering():
            told = self._connection.hgetall(GPUS)
        kinds = {text_of(queue): _kind_of(text) for queue, text in sorted(told.items())}
        return {queue: kind for queue, kind in kinds.items() if queue is not None and kind is not None}

    def queues(self) -> Sequence[str]:
        """Those of kinds, also of such that a job named and nobody told of. Raises Unavailable."""
        with answering():
            used = {(text_of(key) or "").removeprefix(_KEY) for key in self._connection.smembers("rq:queues")}
        return sorted({name for name in used if name.startswith(f"{QUEUE_NAME}.")} | self.known().keys())

    def absent(self) -> Sequence[str]:
        """Queues of kinds that no evaluator with a fresh heartbeat has. Raises Unavailable."""
        return [queue for queue in self.queues() if not self._num_workers(queue)]

    def living(self) -> Mapping[GpuKind, int]:
        """Those that evaluators with a fresh heartbeat have, and how many evaluators. Raises Unavailable."""
        counts = {kind: self._num_workers(queue) for queue, kind in self.known().items()}
        return {kind: count for kind, count in counts.items() if count}

    def release_absent(self) -> None:
        """Gives what need not wait for a kind that has left to those that are there."""
        for queue in self.absent():
            keys = [_KEY + queue, _KEY + QUEUE_NAME, BELL]
            if self._connection.exists(keys[0]):
                self._release(keys=keys, args=[queue, QUEUE_NAME])

    def _num_workers(self, queue: str) -> int:
        with answering():
            workers = self._connection.smembers(WORKERS_BY_QUEUE_KEY % queue)
            return int(self._connection.exists(*workers)) if workers else 0


def _kind_of(text: bytes) -> GpuKind | None:
    """As evaluators of any release tell it: what we do not know is left out. None for what tells of no kind: it costs
    the others nothing."""
    try:
        return _KINDS.validate_json(text)
    except ValidationError:
        return None


def meta_of(job: EvaluationJob | InstantJob) -> dict[str, str]:
    """What the lists look at, of an EvaluationJob or an InstantJob."""
    told = {"gpu": job.gpu, "search": job.search}
    return {name: value for name, value in told.items() if value is not None}


def is_wanted(connection: Redis, job: Job, queue: str) -> bool:
    """Whether a report by an evaluator of that queue's kind may be told; if so, the job's search stays with it."""
    script = connection.register_script(ANSWER)
    return bool(script(keys=[], args=[job.id, queue, SEARCH_TTL_S]))
