"""Evaluation jobs between generator and evaluators: both ends of the RQ queue.

A job that was accepted is answered: a worker's death is noticed by its missing heartbeat, and the job goes to another
worker or to the same one after its restart. Jobs are idempotent, so running one twice is harmless. A result belongs to the
job that asked for it by its id, however late it comes.
"""

import hashlib
import threading
import time
from dataclasses import dataclass
from typing import Any

from rq import Queue, Retry, worker_registration
from rq.exceptions import InvalidJobOperation, NoSuchJobError
from rq.executions import Execution
from rq.job import Job, JobStatus
from rq.registry import StartedJobRegistry
from rq.serializers import JSONSerializer
from rq.worker import SimpleWorker

from sparsesmith.errors import Conflict, NotFound, Unavailable
from sparsesmith.transport.connection import Redis, answering
from sparsesmith_proto.evaluation import EvaluationJob, EvaluationReport

QUEUE_NAME = "evaluations"
GRADE_FUNCTION = "services.evaluator.jobs.grade"
"""The only function that a worker calls, whatever a job names."""


_ENDED = {JobStatus.FINISHED, JobStatus.FAILED, JobStatus.CANCELED, JobStatus.STOPPED}


@dataclass(frozen=True)
class QueueLimits:
    """Times of the queue, in seconds."""

    job_grace_s: int = 300
    """Beyond a job's own budget: compiling, baselines, a large upload."""
    result_ttl_s: int = 24 * 3600
    failure_ttl_s: int = 7 * 24 * 3600
    max_attempts: int = 4
    """Times that a job is given to a worker before it counts as failed."""
    worker_ttl_s: int = 60
    maintenance_interval_s: int = 30
    heartbeat_ttl_s: int = 30
    """A worker that is silent this long has died; its job goes to another."""
    abandoned_check_s: float = 5.0
    """How often a waiting generator looks for jobs of dead workers."""


class EvaluationQueue:
    """The generator's end."""

    def __init__(self, connection: Redis, limits: QueueLimits | None = None) -> None:
        self._connection = connection
        self._limits = limits or QueueLimits()
        self._queue = Queue(QUEUE_NAME, connection=connection, serializer=JSONSerializer)

    def submit(self, job: EvaluationJob) -> None:
        """Queue a job. A second submission of the same id changes nothing. Raises Unavailable."""
        rq_id = _rq_id(job.job_id)
        with answering():
            if Job.exists(rq_id, self._connection):
                return
            self._queue.enqueue_call(
                GRADE_FUNCTION,
                args=(job.model_dump_json(),),
                job_id=rq_id,
                description=job.job_id,
                timeout=int(job.budget_s) + self._limits.job_grace_s,
                result_ttl=self._limits.result_ttl_s,
                failure_ttl=self._limits.failure_ttl_s,
                retry=Retry(max=self._limits.max_attempts - 1),
            )

    def wait(self, job_id: str, timeout_s: float) -> EvaluationReport | None:
        """The report, or None when it is not there in time.

        Raises NotFound for an unknown job, Conflict for a cancelled one, Unavailable where every attempt failed.
        """
        end = time.monotonic() + timeout_s
        next_check = 0.0
        while True:
            with answering():
                report = self._report(job_id)
                if report is not None:
                    return report
                left_s = end - time.monotonic()
                if left_s <= 0:
                    return None
                if time.monotonic() >= next_check:
                    self.requeue_abandoned()
                    next_check = time.monotonic() + self._limits.abandoned_check_s
            time.sleep(min(0.02, left_s))

    def position(self, job_id: str) -> int:
        """Jobs ahead of this one; 0 once a worker has it. Raises NotFound."""
        with answering():
            return self._fetch(job_id).get_position() or 0

    def cancel(self, job_id: str) -> None:
        """Take a job out of the queue; one that a worker already has runs to its end. Unknown jobs are ignored."""
        with answering():
            try:
                self._fetch(job_id).cancel()
            except (NotFound, InvalidJobOperation):
                return

    def depth(self) -> int:
        """Jobs that wait for a worker."""
        with answering():
            return len(self._queue)

    def requeue_abandoned(self) -> None:
        """Give the jobs of workers whose heartbeat stopped to others."""
        StartedJobRegistry(QUEUE_NAME, connection=self._connection, serializer=JSONSerializer).cleanup()

    def _report(self, job_id: str) -> EvaluationReport | None:
        # The status alone is a few bytes; the job itself holds every candidate.
        status = self._connection.hget(Job.key_for(_rq_id(job_id)), "status")
        if status is not None and JobStatus(bytes(status).decode()) not in _ENDED:
            return None
        job = self._fetch(job_id)
        match job.get_status(refresh=False):
            case JobStatus.FINISHED:
                return EvaluationReport.model_validate_json(str(job.return_value()))
            case JobStatus.FAILED:
                last = (job.exc_info or "no reason was recorded").strip().splitlines()[-1]
                raise Unavailable(f"evaluation {job_id} failed on every attempt: {last}", field="job_id", value=job_id)
            case JobStatus.CANCELED | JobStatus.STOPPED:
                raise Conflict(f"evaluation {job_id} was cancelled", field="job_id", value=job_id)
            case _:
                return None

    def _fetch(self, job_id: str) -> Job:
        try:
            return Job.fetch(_rq_id(job_id), connection=self._connection, serializer=JSONSerializer)
        except NoSuchJobError as error:
            raise NotFound(f"no evaluation {job_id} is queued", field="job_id", value=job_id) from error


class ForbiddenFunction(Exception):
    """A job names a function other than the one that evaluators run."""


class EvaluationWorker(SimpleWorker):
    """An RQ worker that never forks: the process that talks to Redis never touches CUDA, its sandbox child does.

    While a job runs a thread keeps the heartbeat, so that a killed worker is noticed within `heartbeat_ttl_s`.
    """

    def __init__(self, *arguments: Any, limits: QueueLimits, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._limits = limits

    def get_heartbeat_ttl(self, job: Job) -> int:
        return self._limits.heartbeat_ttl_s

    def execute_job(self, job: Job, queue: Queue) -> None:
        if job.func_name != GRADE_FUNCTION:
            self._refuse(job, queue)
            return
        done = threading.Event()
        execution = self.prepare_execution(job)
        pulse = threading.Thread(target=self._keep_heartbeat, args=(job, execution, done), daemon=True)
        pulse.start()
        try:
            self.perform_job(job, queue)
        finally:
            done.set()
            pulse.join()
        self.set_state("idle")

    def _refuse(self, job: Job, queue: Queue) -> None:
        job.retries_left = 0
        self.prepare_execution(job)
        self.handle_job_failure(job, queue, exc_string=f"{ForbiddenFunction.__name__}: {job.func_name} is not allowed")

    def _keep_heartbeat(self, job: Job, execution: Execution, done: threading.Event) -> None:
        while not done.wait(self._limits.heartbeat_ttl_s / 3):
            with self.connection.pipeline() as pipeline:
                self.heartbeat(self._limits.worker_ttl_s, pipeline=pipeline)
                execution.heartbeat(job.started_job_registry, self._limits.heartbeat_ttl_s, pipeline=pipeline)
                pipeline.execute()


def evaluation_worker(connection: Redis, name: str, limits: QueueLimits | None = None) -> EvaluationWorker:
    """The evaluator's end: a worker ready for `work()`. Names are unique among living workers."""
    limits = limits or QueueLimits()
    return EvaluationWorker(
        [Queue(QUEUE_NAME, connection=connection, serializer=JSONSerializer)],
        name=name,
        connection=connection,
        serializer=JSONSerializer,
        worker_ttl=limits.worker_ttl_s,
        maintenance_interval=limits.maintenance_interval_s,
        limits=limits,
    )


def _rq_id(job_id: str) -> str:
    """RQ allows fewer characters in an id than we do."""
    return hashlib.sha256(job_id.encode()).hexdigest()[:40]


def living_workers(connection: Redis) -> list[str]:
    """Names of the evaluators whose heartbeat is fresh. Raises Unavailable."""
    with answering():
        keys = worker_registration.get_keys(connection=connection)
        return sorted(key.rsplit(":", 1)[-1] for key in keys if connection.exists(key))
