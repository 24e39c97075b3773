"""What each key has used: requests of a minute, bytes and evaluators' seconds of a day. Kept in Redis, step by step, so
that whatever is killed, nothing that was used is forgotten.

Both ends are here: the generator counts requests and bytes, evaluators what they spent on a job.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from sparsesmith.errors import QuotaExceeded
from sparsesmith.transport.connection import Pipeline, Redis, answering
from sparsesmith_proto.keys import ApiKey

DAY_S = 24 * 3600
KEPT_S = 3 * DAY_S
"""How long a day's account is kept."""
MINUTE_S = 60
JOB_PAUSE_S = 5
"""When to ask again whether a job of the key has ended."""

_RESERVE = """
local used = tonumber(redis.call('HGET', KEYS[1], 'bytes') or 0)
if used + ARGV[1] > tonumber(ARGV[2]) then return used end
redis.call('HINCRBY', KEYS[1], 'bytes', ARGV[1])
redis.call('EXPIRE', KEYS[1], ARGV[3])
return -1
"""

_CHARGE = """
local owner = redis.call('HGET', KEYS[1], 'owner')
if not owner then return 0 end
local account = 'sparsesmith:account:' .. owner .. ':' .. ARGV[1]
redis.call('HINCRBYFLOAT', account, 'evaluator_seconds', ARGV[2])
redis.call('EXPIRE', account, ARGV[3])
return 1
"""


@dataclass(frozen=True)
class Used:
    """By a key, today and now."""

    unfinished_jobs: int
    evaluator_seconds: float
    num_bytes: int


class Accounts:
    """By key. Safe to share between threads and processes."""

    def __init__(self, connection: Redis, clock: Callable[[], float] = time.time) -> None:
        """`clock`: seconds since 1970; says which day it is."""
        self._connection = connection
        self._clock = clock
        self._reserve, self._charge = connection.register_script(_RESERVE), connection.register_script(_CHARGE)

    def used(self, key_id: str) -> Used:
        """Raises Unavailable."""
        with answering():
            return used(self._connection, key_id, self._clock())

    def count_request(self, key: ApiKey) -> None:
        """Raises QuotaExceeded for one too many within a minute, Unavailable."""
        minute, into_s = divmod(self._clock(), MINUTE_S)
        name = f"sparsesmith:requests:{key.key_id}:{int(minute)}"
        with answering(), self._connection.pipeline(transaction=True) as pipeline:
            count = pipeline.incr(name).expire(name, 2 * MINUTE_S).execute()[0]
        limit = key.quotas.requests_a_minute
        if count > limit:
            raise QuotaExceeded(
                f"this key has made {limit} requests within the minute: at most {limit}",
                field="requests_a_minute",
                value=count,
                limit=limit,
                retry_after_s=int(MINUTE_S - into_s) + 1,
            )

    def check_new_job(self, key: ApiKey) -> None:
        """Raises QuotaExceeded where the key may not ask for another job now, Unavailable."""
        check_new_job(key, self.used(key.key_id), self._clock())

    def reserve_bytes(self, key: ApiKey, num_bytes: int) -> str:
        """Count bytes of a body before they are read; the account that they are in. Raises QuotaExceeded where they are
        too many, Unavailable."""
        limit, now = key.quotas.bytes_a_day, self._clock()
        account = account_key(key.key_id, now)
        with answering():
            already = self._reserve([account], [num_bytes, limit, KEPT_S])
        if already >= 0:
            raise _used_up(now, "bytes_a_day", f"{already} bytes of bodies, and {num_bytes} more", already, limit)
        return account

    def give_back_bytes(self, account: str, num_bytes: int) -> None:
        """Reserved and not sent. Raises Unavailable."""
        with answering():
            self._connection.hincrby(account, "bytes", -num_bytes)

    def charge_seconds(self, evaluation_id: str, seconds: float) -> bool:
        """An evaluator worked so long for a job of the generator, whose id begins the evaluation's (`JOB.RUN-NUMBER`).

        False, and nothing counted, for a job that no key asked for. Raises Unavailable.
        """
        day = _day(self._clock())
        with answering():
            job_key = f"sparsesmith:job:{evaluation_id.partition('.')[0]}"
            return bool(self._charge([job_key], [day, f"{seconds:.6f}", KEPT_S]))


def check_new_job(key: ApiKey, standing: Used, now: float) -> None:
    """Raises QuotaExceeded where the key may not ask for another job now."""
    quotas = key.quotas
    if standing.unfinished_jobs >= quotas.unfinished_jobs:
        raise QuotaExceeded(
            f"{standing.unfinished_jobs} jobs of this key have not ended: at most {quotas.unfinished_jobs}; there is "
            "room when one of them ends",
            field="unfinished_jobs",
            value=standing.unfinished_jobs,
            limit=quotas.unfinished_jobs,
            retry_after_s=JOB_PAUSE_S,
        )
    spent, limit = standing.evaluator_seconds, quotas.evaluator_seconds_a_day
    if spent >= limit:
        raise _used_up(now, "evaluator_seconds_a_day", f"{spent:.0f} seconds of evaluators", f"{spent:.0f}", limit)


def used(connection: Redis | Pipeline, key_id: str, now: float) -> Used:
    """As it stands; a pipeline must have begun to watch."""
    account = connection.hgetall(account_key(key_id, now))
    return Used(
        unfinished_jobs=connection.zcard(unfinished_key(key_id)),
        evaluator_seconds=float(account.get(b"evaluator_seconds", 0)),
        num_bytes=int(account.get(b"bytes", 0)),
    )


def account_key(key_id: str, now: float) -> str:
    """Of the day: a hash of `bytes` and `evaluator_seconds`."""
    return f"sparsesmith:account:{key_id}:{_day(now)}"


def unfinished_key(key_id: str) -> str:
    """Jobs of a key that have not ended, by when they were accepted; `job_store` keeps it."""
    return f"sparsesmith:key:{key_id}:unfinished"


def _used_up(now: float, field: str, words: str, value: object, limit: float) -> QuotaExceeded:
    renews = (int(now) // DAY_S + 1) * DAY_S
    when = datetime.fromtimestamp(renews, UTC).isoformat(timespec="minutes")
    return QuotaExceeded(
        f"{words}: at most {_number(limit)} a day for this key; renewed at {when}",
        field=field,
        value=value,
        limit=_number(limit),
        retry_after_s=max(1, renews - int(now)),
    )


def _day(now: float) -> str:
    return datetime.fromtimestamp(now, UTC).date().isoformat()


def _number(value: float) -> str:
    return f"{value:.0f}" if float(value).is_integer() else f"{value:g}"
