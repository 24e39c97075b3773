"""Jobs whose worker died: each is given to another worker, once.

RQ's own maintenance is not used for this. Where two processes look at once it queues a job twice; it calls a job's
callbacks in the process that looks; it takes back jobs that ended meanwhile; and a job that a worker took from the
queue but never began stays lost for minutes.
"""

import threading
import time

import redis
from rq import Queue
from rq.exceptions import NoSuchJobError
from rq.job import Job, JobStatus
from rq.registry import StartedJobRegistry
from rq.utils import current_timestamp, parse_composite_key

from sparsesmith.transport.connection import Pipeline, Redis

ENDED = frozenset({JobStatus.FINISHED, JobStatus.FAILED, JobStatus.CANCELED, JobStatus.STOPPED})
MAX_TRIES = 5
"""Of one transaction; what is lost to others' changes so often is left for the next look."""


class AbandonedJobs:
    """Looks at running jobs (RQ's started registry) and at those between queue and start (its intermediate list)."""

    def __init__(self, connection: Redis, queue: Queue, *, taken_grace_s: float, check_every_s: float) -> None:
        self._connection = connection
        self._queue = queue
        self._running_key = StartedJobRegistry(queue=queue).key
        self._taken_key = queue.intermediate_queue_key
        self._taken_grace_s = taken_grace_s
        self._check_every_s = check_every_s
        self._next_check = 0.0
        self._looking = threading.Lock()
        self._taken_since: dict[str, float] = {}

    def recover_if_due(self) -> None:
        """Recover, unless this process did so lately or does so now."""
        if time.monotonic() < self._next_check or not self._looking.acquire(blocking=False):
            return
        try:
            self._next_check = time.monotonic() + self._check_every_s
            self.recover()
        finally:
            self._looking.release()

    def recover(self) -> None:
        """Queue again what has lost its worker; what was tried too often has failed."""
        expired = self._connection.zrangebyscore(self._running_key, 0, current_timestamp())
        for job_id in {_job_id(entry) for entry in expired} | self._taken_too_long():
            self._release(job_id)

    def _taken_too_long(self) -> set[str]:
        """Jobs that this process saw between queue and start for longer than the grace."""
        now = time.monotonic()
        taken = {entry.decode() for entry in self._connection.lrange(self._taken_key, 0, -1)}
        self._taken_since = {job_id: self._taken_since.get(job_id, now) for job_id in taken}
        return {job_id for job_id, since in self._taken_since.items() if now - since > self._taken_grace_s}

    def _release(self, job_id: str) -> None:
        with self._connection.pipeline(transaction=True) as pipeline:
            for _ in range(MAX_TRIES):
                try:
                    pipeline.watch(self._running_key, self._taken_key, self._queue.key, Job.key_for(job_id))
                    self._release_watched(job_id, pipeline)
                    return
                except redis.exceptions.WatchError:
                    continue

    def _release_watched(self, job_id: str, pipeline: Pipeline) -> None:
        now = current_timestamp()
        executions = {
            entry: score
            for entry, score in pipeline.zrange(self._running_key, 0, -1, withscores=True)
            if _job_id(entry) == job_id
        }
        expired = [entry for entry, score in executions.items() if score <= now]
        is_running = len(expired) < len(executions)
        is_waiting = pipeline.lpos(self._queue.key, job_id) is not None
        job = self._job(job_id)
        pipeline.multi()
        if expired:
            pipeline.zrem(self._running_key, *expired)
        if not is_running:
            pipeline.lrem(self._taken_key, 0, job_id)
            if not is_waiting and job is not None and job.get_status(refresh=False) not in ENDED:
                self._try_again(job, pipeline)
        pipeline.execute()

    def _try_again(self, job: Job, pipeline: Pipeline) -> None:
        if job.should_retry:
            job.retry(self._queue, pipeline)
        else:
            job.set_status(JobStatus.FAILED, pipeline=pipeline)
            job._handle_failure("every worker that had the job died", pipeline)

    def _job(self, job_id: str) -> Job | None:
        try:
            return Job.fetch(job_id, connection=self._connection, serializer=self._queue.serializer)
        except NoSuchJobError:
            return None


def _job_id(execution: bytes) -> str:
    """Of an entry of the started registry."""
    return str(parse_composite_key(execution.decode())[0])
