"""Jobs whose worker died: each is given to another worker, once.

RQ's own maintenance is not used for this. Where two processes look at once it queues a job twice; it calls a job's
callbacks in the process that looks; it takes back jobs that ended meanwhile; and a job that a worker took from the
queue but never began stays lost for minutes.
"""

import time

import redis
from rq import Queue
from rq.job import Job, JobStatus
from rq.registry import StartedJobRegistry
from rq.utils import current_timestamp

from sparsesmith.transport.connection import Pipeline, Redis
from sparsesmith.transport.readable_jobs import Fault, read_job, set_aside

ENDED = frozenset({JobStatus.FINISHED, JobStatus.FAILED, JobStatus.CANCELED, JobStatus.STOPPED})
MAX_TRIES = 5
"""Of one transaction; what is lost to others' changes so often is left for the next look."""


class AbandonedJobs:
    """Looks at running jobs (RQ's started registry) and at those between queue and start (its intermediate list)."""

    def __init__(self, queue: Queue, *, taken_grace_s: float, failure_ttl_s: int) -> None:
        self._connection: Redis = queue.connection
        self._queue = queue
        self._failure_ttl_s = failure_ttl_s
        self._running_key = StartedJobRegistry(queue=queue).key
        self._taken_key = queue.intermediate_queue_key
        self._taken_grace_s = taken_grace_s
        self._taken_since: dict[bytes, float] = {}

    def recover(self) -> None:
        """Queue again what has lost its worker; what was tried too often has failed, what cannot be read is set
        aside."""
        expired = self._connection.zrangebyscore(self._running_key, 0, current_timestamp())
        for name in {_job_of(entry) for entry in expired} | self._taken_too_long():
            self._release(name)

    def _taken_too_long(self) -> set[bytes]:
        """Jobs that this process saw between queue and start for longer than the grace."""
        now = time.monotonic()
        taken = set(self._connection.lrange(self._taken_key, 0, -1))
        self._taken_since = {name: self._taken_since.get(name, now) for name in taken}
        return {name for name, since in self._taken_since.items() if now - since > self._taken_grace_s}

    def _release(self, name: bytes) -> None:
        with self._connection.pipeline(transaction=True) as pipeline:
            for _ in range(MAX_TRIES):
                try:
                    pipeline.watch(self._running_key, self._taken_key, self._queue.key, Job.key_for("").encode() + name)
                    fault = self._release_watched(name, pipeline)
                except redis.exceptions.WatchError:
                    continue
                if fault is not None:
                    set_aside(self._queue, name, fault, self._failure_ttl_s)
                return

    def _release_watched(self, name: bytes, pipeline: Pipeline) -> Fault | None:
        """What is wrong with a job that cannot be read and that no worker has."""
        now = current_timestamp()
        executions = {
            entry: score
            for entry, score in pipeline.zrange(self._running_key, 0, -1, withscores=True)
            if _job_of(entry) == name
        }
        expired = [entry for entry, score in executions.items() if score <= now]
        is_running = len(expired) < len(executions)
        is_waiting = pipeline.lpos(self._queue.key, name) is not None
        job = read_job(self._queue, name)
        pipeline.multi()
        if expired:
            pipeline.zrem(self._running_key, *expired)
        if not is_running:
            pipeline.lrem(self._taken_key, 0, name)
            if not is_waiting and isinstance(job, Job) and job.get_status(refresh=False) not in ENDED:
                self._try_again(job, pipeline)
        pipeline.execute()
        return job if isinstance(job, Fault) and not is_running else None

    def _try_again(self, job: Job, pipeline: Pipeline) -> None:
        if job.should_retry:
            job.retry(self._queue, pipeline)
        else:
            job.set_status(JobStatus.FAILED, pipeline=pipeline)
            job._handle_failure("every worker that had the job died", pipeline)


def _job_of(execution: bytes) -> bytes:
    """Its name, of an entry of the started registry."""
    return execution.partition(b":")[0]
