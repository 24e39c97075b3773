"""Evaluation jobs between generator and evaluators: both ends of the RQ queue.

A job that was accepted is answered: a worker's death is noticed by its missing heartbeat, and the job goes to another
worker or to the same one after its restart. Jobs are idempotent, so running one twice is harmless, and the first result
counts. A result belongs to the job that asked for it by its id, however late it comes.

Not protected against: whoever can write to Redis can queue jobs and forge results; evaluators run no other function.
"""

import hashlib
import json
import math
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import redis
from pydantic import ValidationError
from redis.backoff import ExponentialBackoff
from redis.retry import Retry as ConnectionRetry
from rq import Queue, Retry, worker_registration
from rq.exceptions import DequeueTimeout, DeserializationError, DuplicateJobError, StopRequested
from rq.executions import Execution
from rq.job import Job, JobStatus
from rq.registry import FailedJobRegistry, FinishedJobRegistry, StartedJobRegistry
from rq.results import Result
from rq.serializers import JSONSerializer
from rq.utils import now
from rq.worker import SimpleWorker, WorkerStatus

from sparsesmith.errors import Conflict, LimitExceeded, NotFound, SparsesmithError, Unavailable
from sparsesmith.transport.abandoned_jobs import ENDED, AbandonedJobs
from sparsesmith.transport.connection import Pipeline, Redis, answering
from sparsesmith.transport.gpu_kinds import (
    BEFORE_ALL,
    BELL,
    GPU_FIELD,
    MAX_LOOK,
    OVERTAKE,
    QUEUE_NAME,
    RULE,
    SEARCH_TTL_S,
    TAKE,
    GpuKind,
    GpuKinds,
    is_wanted,
    meta_of,
    queue_of,
)
from sparsesmith.transport.readable_jobs import Fault, note, read_job, read_status, set_aside, shown
from sparsesmith_proto.evaluation import EvaluationJob, EvaluationReport, InstantJob, InstantReport
from sparsesmith_proto.kernel import ProbeWritten

GRADE_FUNCTION = "services.evaluator.jobs.grade"
"""The only function that a worker calls, whatever a job names."""

PULSE_S = 2.0
"""A worker with a job shows that it lives, and looks whether the job is still its own, at least this often."""
MAX_REASON_CHARACTERS = 20_000
"""Of the traceback that a failed job keeps."""
WORKER_RETRIES = 60
"""A worker waits about a minute for a Redis that restarts, so that a job's result is not lost at its end."""

LISTEN_S = 0.25
"""An idle worker looks this often for jobs of those who do not ring, which are third parties and dying workers."""


@dataclass(frozen=True)
class QueueLimits:
    """Times of the queue, in seconds."""

    job_grace_s: int = 300
    """Beyond a job's own budget: compiling, baselines, a large upload."""
    result_ttl_s: int = 1800
    """How long a report can be fetched. It holds every candidate, so Redis keeps it in memory no longer than that."""
    failure_ttl_s: int = 24 * 3600
    max_attempts: int = 4
    """Times that a job is given to a worker before it has failed. One that stops and gives it back does not count."""
    worker_ttl_s: int = 60
    maintenance_interval_s: int = 30
    heartbeat_ttl_s: int = 30
    """A worker that is silent this long has died; its job goes to another."""
    taken_grace_s: float = 10.0
    """A job that a worker took and has not begun after this time goes to another."""
    abandoned_check_s: float = 5.0
    """How often a waiting generator looks for jobs of dead workers."""
    gpu_patience_s: float = 120.0
    """How long a job is kept for a kind of GPU that no evaluator has any more."""


class BoundedQueue(Queue):
    """An RQ queue whose worker takes what it can read and sets aside what it cannot."""

    failure_ttl_s = QueueLimits.failure_ttl_s
    must_stop: Callable[[], bool] | None = None
    """Whether the worker that takes from this queue is told to stop."""

    @classmethod
    def dequeue_any(
        cls, queues: Iterable[Queue], timeout: int | None, connection: Redis, *others: Any, **options: Any
    ) -> tuple[Job, Queue] | None:
        """RQ's, for the two queues that a worker of ours has: its kind's and the common one. Raises StopRequested
        between two calls of Redis where the worker is told to stop."""
        own, common = queues
        by_name = {own.name: own, common.name: common}
        take = connection.register_script(TAKE)
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            if isinstance(own, cls) and own.must_stop is not None and own.must_stop():
                raise StopRequested
            rung = _last_rung(connection)  # Before the look, so that nothing is missed that comes after it.
            while taken := take(keys=[own.key, common.key, BELL], args=[own.name, common.name, SEARCH_TTL_S, *RULE]):
                queue = by_name[taken[0].decode()]
                if (job := cls._readable(queue, taken[1])) is not None:
                    return job, queue
            if end is None:
                return None
            if (left_s := end - time.monotonic()) <= 0:
                raise DequeueTimeout(timeout, own.key)
            connection.xread({BELL: rung}, count=1, block=max(1, int(min(left_s, LISTEN_S) * 1000)))

    @classmethod
    def _readable(cls, queue: Queue, name: bytes) -> Job | None:
        match read_job(queue, name):
            case Job() as job:
                return job
            case Fault() as fault:
                queue.log.error("job %s is set aside: %s", shown(name), fault.reason)
                set_aside(queue, name, fault, cls.failure_ttl_s)
            case None:
                connection: Redis = queue.connection
                connection.lrem(queue.intermediate_queue_key, 1, name)
        return None


def _last_rung(connection: Redis) -> bytes:
    """When something was queued last, as the stream of it counts."""
    entries = connection.xrevrange(BELL, count=1)
    return bytes(entries[0][0]) if entries else b"0-0"


def _order_of(job: EvaluationJob | InstantJob) -> float:
    """The work that a job goes by. Probes of a policy version go before all: learning waits for the verdict."""
    if isinstance(job, EvaluationJob) and all(isinstance(each.origin, ProbeWritten) for each in job.candidates):
        return BEFORE_ALL
    return math.inf if job.work is None else job.work


class EvaluationQueue:
    """The generator's end. Safe to share between threads."""

    def __init__(self, connection: Redis, limits: QueueLimits | None = None) -> None:
        self._connection = connection
        self._limits = limits or QueueLimits()
        self._kinds = GpuKinds(connection)
        self._absences = Absences(self._kinds)
        self._abandoned = AllAbandoned(connection, self._limits, self._absences.look)
        self._overtake = connection.register_script(OVERTAKE)

    def submit(self, job: EvaluationJob | InstantJob) -> None:
        """Queue a job, for its kind of GPU where it names one. A second submission of the same id changes nothing.

        Raises Unavailable.
        """
        rq_id, queue = rq_id_of(job.job_id), _queue(self._connection, queue_of(job.gpu))
        with answering():
            if Job.exists(rq_id, self._connection):
                return
            try:
                self._enqueue(queue, rq_id, job)
            except DuplicateJobError:
                return
            self._overtake(keys=[queue.key, BELL], args=[rq_id, _order_of(job), *RULE, MAX_LOOK])

    def wait(self, job_id: str, timeout_s: float) -> EvaluationReport | None:
        """The report, or None when it is not there in time.

        Raises NotFound for an unknown job, Conflict for a cancelled one, LimitExceeded for one that is beyond the
        device, Unavailable where every attempt failed, or no evaluator has the kind of GPU any more that it is for.
        """
        text = self._wait(job_id, timeout_s)
        return None if text is None else EvaluationReport.model_validate_json(text)

    def wait_instant(self, job_id: str, timeout_s: float) -> InstantReport | None:
        """As `wait`, of an InstantJob."""
        text = self._wait(job_id, timeout_s)
        return None if text is None else InstantReport.model_validate_json(text)

    def _wait(self, job_id: str, timeout_s: float) -> str | None:
        """What the worker returned, as JSON."""
        end = time.monotonic() + timeout_s
        while True:
            with answering():
                report = self._report(job_id)
                left_s = end - time.monotonic()
                if report is not None or left_s <= 0:
                    return report
                self._abandoned.recover_if_due()
                self._give_up_where_absent(job_id)
                self._wait_for_result(job_id, min(left_s, self._limits.abandoned_check_s, 1.0))

    def position(self, job_id: str) -> int:
        """Jobs ahead of this one in its list; 0 once a worker has it. Raises NotFound, Unavailable."""
        with answering():
            if read_status(self._connection, rq_id_of(job_id)) is None:
                raise _not_queued(job_id)
            queue = _queue(self._connection, self._queue_of(job_id))
            return self._connection.lpos(queue.key, rq_id_of(job_id)) or 0

    def cancel(self, job_id: str) -> None:
        """Take a job out of the queue; a worker that has it stops at the next candidate. Ended and unknown jobs are
        left as they are. Raises Unavailable."""
        with answering():
            if read_status(self._connection, rq_id_of(job_id)) in {None, *ENDED}:
                return
            # RQ's own way keeps the job for ever, and fails where its worker has died.
            with self._connection.pipeline(transaction=True) as pipeline:
                pipeline.hset(Job.key_for(rq_id_of(job_id)), "status", JobStatus.CANCELED)
                pipeline.expire(Job.key_for(rq_id_of(job_id)), self._limits.result_ttl_s)
                for queue in _all_queues(self._connection):
                    pipeline.lrem(queue.key, 0, rq_id_of(job_id))
                pipeline.execute()

    def depth(self, queue: str | None = None) -> int:
        """Jobs that wait for a worker, in one queue (see `queue_of`) or all. Raises Unavailable."""
        with answering():
            return sum(len(each) for each in self._queues(queue))

    def num_running(self, queue: str | None = None) -> int:
        """Jobs that a worker has in hand, or had when it died a moment ago, out of one queue or all. Raises
        Unavailable."""
        with answering():
            return sum(int(self._connection.zcard(StartedJobRegistry(queue=each).key)) for each in self._queues(queue))

    def _queues(self, name: str | None) -> Sequence[Queue]:
        return _all_queues(self._connection) if name is None else [_queue(self._connection, name)]

    def _queue_of(self, job_id: str) -> str:
        """Name of the one that the job is in, or was taken from."""
        origin = self._connection.hget(Job.key_for(rq_id_of(job_id)), "origin")
        return QUEUE_NAME if origin is None else origin.decode()

    def _give_up_where_absent(self, job_id: str) -> None:
        """Withdraws a job whose kind of GPU has been away for too long. Raises Unavailable if so."""
        away = self._absences.longer_than(self._limits.gpu_patience_s)
        if not away or (queue := self._queue_of(job_id)) not in away:
            return
        self.cancel(job_id)
        known = self._kinds.known().get(queue)
        name = queue.removeprefix(f"{QUEUE_NAME}.") if known is None else known.name
        there = ", ".join(kind.name for kind in self._kinds.living()) or "none"
        waited = f"for {self._limits.gpu_patience_s:g} s"
        raise Unavailable(
            f"gpu: no evaluator has {name} any more, {waited} (there are: {there})",
            field=GPU_FIELD,
            value=name,
            limit=there,
        )

    def _enqueue(self, queue: Queue, rq_id: str, job: EvaluationJob | InstantJob) -> None:
        num_retries = self._limits.max_attempts - 1
        queue.enqueue_call(
            GRADE_FUNCTION,
            args=(job.model_dump_json(),),
            job_id=rq_id,
            description=job.job_id,
            timeout=int(job.budget_s) + self._limits.job_grace_s,
            result_ttl=self._limits.result_ttl_s,
            failure_ttl=self._limits.failure_ttl_s,
            meta=meta_of(job),
            retry=Retry(num_retries, enqueue_at_front=True) if num_retries else None,
            unique=True,
        )

    def _wait_for_result(self, job_id: str, timeout_s: float) -> None:
        """Until the job has a result, RQ's stream of which is written together with the state, or the time is over."""
        block_ms = max(1, int(timeout_s * 1000))
        if self._connection.xread({f"rq:results:{rq_id_of(job_id)}": "0-0"}, count=1, block=block_ms):
            # Only where a job is run again after it had a result does this come round more than once.
            time.sleep(min(0.02, timeout_s))

    def _report(self, job_id: str) -> str | None:
        # The job itself is not read: it holds every candidate.
        match read_status(self._connection, rq_id_of(job_id)):
            case None:
                raise _not_queued(job_id)
            case JobStatus.FINISHED:
                result = self._latest_result(job_id)
                if result is None or not isinstance(result.return_value, str):  # It expired after the status was read.
                    raise _not_queued(job_id)
                return result.return_value
            case JobStatus.FAILED:
                raise _failure(job_id, _last_line(self._latest_result(job_id)))
            case JobStatus.CANCELED | JobStatus.STOPPED:
                raise Conflict(f"evaluation {job_id} was cancelled", field="job_id", value=job_id)
            case _:
                return None

    def _latest_result(self, job_id: str) -> Result | None:
        return Result.fetch_latest(Job(rq_id_of(job_id), connection=self._connection), serializer=JSONSerializer)


class Patience(ExponentialBackoff):
    """Of a worker with a Redis that is away, between its tries."""

    def __init__(self, must_stop: Callable[[], bool]) -> None:
        super().__init__(cap=1.0, base=0.05)
        self._must_stop = must_stop

    def __deepcopy__(self, memo: dict[int, Any]) -> "Patience":
        """Itself: each connection of a pool gets a copy of what the pool has, and would get one of the worker."""
        return self

    def compute(self, failures: int) -> float:
        """Seconds. Raises StopRequested where the worker is to wait no longer, in its own thread."""
        if threading.current_thread() is threading.main_thread() and self._must_stop():
            raise StopRequested
        return super().compute(failures)


class EvaluationWorker(SimpleWorker):
    """An RQ worker that never forks: the process that talks to Redis never touches CUDA, its sandbox child does.

    Its connection becomes patient: it waits about a minute for a Redis that restarts, unless it is idle and told to
    stop.
    While a job runs a thread keeps the heartbeat, so that a killed worker is noticed within `heartbeat_ttl_s`.
    """

    max_connection_wait_time = 1.0
    """RQ's, seconds: what it sleeps beyond the connection's own patience, where no one could stop it."""
    _stop_requested = False

    def __init__(
        self,
        queues: Sequence[BoundedQueue],
        name: str,
        *,
        connection: Redis,
        gpu: GpuKind,
        limits: QueueLimits,
        **options: Any,
    ) -> None:
        connection.set_retry(
            ConnectionRetry(
                Patience(self._must_stop_idle), WORKER_RETRIES, supported_errors=(redis.exceptions.ConnectionError,)
            )
        )
        super().__init__(queues, name, connection=connection, **options)
        for queue in queues:
            queue.must_stop = self._must_stop_idle
        self._limits = limits
        self._gpu = gpu
        self._kinds = GpuKinds(self.connection)
        self._abandoned = AllAbandoned(self.connection, limits, self._kinds.release_absent)
        self._has_lost_job = False
        self._is_retiring = False
        self._job_key: str | None = None
        """Of the job in hand."""

    @property
    def is_retiring(self) -> bool:
        """Whether its device is gone."""
        return self._is_retiring

    def retire(self) -> None:
        """Ends this worker after the job in hand, which is another's to try if it fails: this one's device is gone."""
        self._is_retiring = True

    def must_stop(self) -> bool:
        """Whether the job in hand should end now: the worker is told to stop, the job was cancelled, or another worker
        has it."""
        return self._stop_requested or self._has_lost_job

    def others_wait(self) -> bool:
        """Whether there is a job that this worker could take next."""
        return any(self.connection.llen(queue.key) for queue in self.queues)

    def waited_s(self) -> float:
        """From submission of the job in hand to now, by the clock of Redis; 0 where that is not known."""
        submitted = None if self._job_key is None else self.connection.hget(self._job_key, "submitted")
        try:
            submitted_s = math.inf if submitted is None else float(submitted)
        except ValueError:
            return 0.0
        seconds, microseconds = self.connection.time()
        return max(0.0, seconds + microseconds / 1e6 - submitted_s)

    @property
    def shutdown_requested_date(self) -> datetime | None:
        """When this worker was told to stop."""
        return self._shutdown_requested_date

    def _shutdown(self) -> None:
        """RQ's is called in a signal handler and raises there, perhaps in the middle of a call to Redis, whose answer
        the next call then takes for its own, or where Python drops what is raised. This one makes a note of it, which
        an idle worker reads at the latest after LISTEN_S."""
        self._stop_requested = True

    def _must_stop_idle(self) -> bool:
        """With a job in hand the report is worth a wait for Redis."""
        return self._stop_requested and self.get_state() != WorkerStatus.BUSY

    def teardown(self) -> None:
        """RQ's, but without a wait for a Redis that is away."""
        with suppress(StopRequested):
            super().teardown()  # type: ignore[no-untyped-call]

    def get_heartbeat_ttl(self, job: Job) -> int:
        return self._limits.heartbeat_ttl_s

    def heartbeat(self, timeout: int | None = None, pipeline: Pipeline | None = None) -> None:
        """Registers anew each time: a Redis that lost its data learns of its workers and of their kinds of GPU."""
        super().heartbeat(timeout, pipeline=pipeline)
        worker_registration.register(self, pipeline)
        self._kinds.tell(self._gpu, pipeline)

    def clean_registries(self) -> None:
        """RQ's, but for the recovery of abandoned jobs, which is ours."""
        self._abandoned.recover()
        for queue in self.queues:
            FinishedJobRegistry(queue=queue).cleanup()
            FailedJobRegistry(queue=queue).cleanup()
            worker_registration.clean_worker_registry(queue)
        self.last_cleaned_at = now()  # type: ignore[assignment]  # RQ declares it as None.

    def execute_job(self, job: Job, queue: Queue) -> None:
        reason = _reason_to_refuse(job)
        if reason is not None:
            self._refuse(job, queue, reason)
        elif job.get_status(refresh=False) in ENDED:  # A worker that seemed dead finished it, or it was cancelled.
            self.connection.lrem(queue.intermediate_queue_key, 1, job.id)
        else:
            self._job_key = job.key
            execution = self.prepare_execution(job)
            with self._pulse(job, execution):
                self.perform_job(job, queue)
        self.set_state("idle")

    def prepare_job_execution(self, job: Job, remove_from_intermediate_queue: bool = True) -> None:
        """With two queues RQ would leave the job between queue and start: it takes otherwise than we do."""
        super().prepare_job_execution(job, remove_from_intermediate_queue=True)

    def handle_exception(self, job: Job, *exc_info: Any) -> None:
        """A job that was stopped did not fail; one that failed with an error of our own tree says enough in a line."""
        error = sys.exception()
        if self.must_stop():
            self.log.warning("job %s ends: %s", job.description, error)
        elif isinstance(error, SparsesmithError):
            self.log.warning("job %s failed: %s", job.description, error)
        else:
            super().handle_exception(job, *exc_info)

    def handle_job_success(self, job: Job, queue: Queue, started_job_registry: StartedJobRegistry) -> None:
        """The first report counts: not told is another one of a job that ended meanwhile, as this worker seemed dead,
        nor one of a search that another kind of GPU has by now."""
        has_ended = read_status(self.connection, job.id) in ENDED
        if not has_ended and is_wanted(self.connection, job, self._gpu.queue):
            super().handle_job_success(job, queue, started_job_registry)
            return
        reason = "it has ended elsewhere" if has_ended else "its search belongs to another kind of GPU"
        self.log.warning("job %s ends: %s", job.description, reason)
        with self.connection.pipeline() as pipeline:
            self.cleanup_execution(job, pipeline)
            pipeline.execute()

    def handle_job_failure(
        self, job: Job, queue: Queue, started_job_registry: StartedJobRegistry | None = None, exc_string: str = ""
    ) -> None:
        """A job that is no longer ours is left alone; one interrupted by our own stop is given back, at no attempt; one
        beyond the device would be so again."""
        if not self._owns(job):
            with self.connection.pipeline() as pipeline:
                self.cleanup_execution(job, pipeline)
                pipeline.execute()
        elif self._stop_requested:
            with self.connection.pipeline() as pipeline:
                self.cleanup_execution(job, pipeline)
                queue._enqueue_job(job, pipeline=pipeline, at_front=True)
                pipeline.execute()
        else:
            error = sys.exception()
            if isinstance(error, LimitExceeded):
                job.retries_left = 0
                exc_string += _told(error)
            elif isinstance(error, ValidationError):  # No job of any release: it will be none the next time.
                job.retries_left = 0
            super().handle_job_failure(job, queue, started_job_registry, exc_string[-MAX_REASON_CHARACTERS:])
        # Set no earlier: the job would be given back at no attempt, and could end every worker there is.
        self._stop_requested = self._stop_requested or self._is_retiring

    def _owns(self, job: Job) -> bool:
        """Whether the job goes on, and is registered as run by this worker."""
        execution = self.execution  # The pulse looks, too, while the job ends and takes it away.
        if execution is None or read_status(self.connection, job.id) in {None, *ENDED}:
            return False
        return self.connection.zscore(job.started_job_registry.key, execution.composite_key) is not None

    def _refuse(self, job: Job, queue: Queue, reason: str) -> None:
        with self.connection.pipeline() as pipeline:
            pipeline.lrem(queue.intermediate_queue_key, 1, job.id)
            job.set_status(JobStatus.FAILED, pipeline=pipeline)
            pipeline.hset(job.key, "retries_left", 0)
            pipeline.expire(job.key, self._limits.failure_ttl_s)
            Result.create_failure(job, self._limits.failure_ttl_s, f"refused: {reason}", pipeline=pipeline)
            note(job.id.encode(), Fault("call", reason), pipeline)
            pipeline.execute()
        self.log.error("job %s is refused: %s", job.id, reason)

    @contextmanager
    def _pulse(self, job: Job, execution: Execution) -> Iterator[None]:
        done = threading.Event()
        self._has_lost_job = False
        pulse = threading.Thread(target=self._keep_heartbeat, args=(job, execution, done), daemon=True)
        pulse.start()
        try:
            yield
        finally:
            done.set()
            pulse.join()

    def _keep_heartbeat(self, job: Job, execution: Execution, done: threading.Event) -> None:
        """Until the job is done, or hangs past its time limit in code that no signal reaches."""
        end = time.monotonic() + (job.timeout or 0) + self._limits.heartbeat_ttl_s
        while not done.wait(min(PULSE_S, self._limits.heartbeat_ttl_s / 3)) and time.monotonic() < end:
            try:
                with self.connection.pipeline() as pipeline:
                    self.heartbeat(self._limits.worker_ttl_s, pipeline=pipeline)
                    execution.heartbeat(job.started_job_registry, self._limits.heartbeat_ttl_s, pipeline=pipeline)
                    pipeline.execute()
                self._has_lost_job = not self._owns(job)
            except (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError) as error:
                self.log.warning("no heartbeat: Redis does not answer: %s", error)


def evaluation_worker(
    connection: Redis, name: str, gpu: GpuKind, limits: QueueLimits | None = None
) -> EvaluationWorker:
    """The evaluator's end: a worker ready for `work()`. Names are unique among living workers.

    The connection becomes the worker's own: see there.
    """
    limits = limits or QueueLimits()
    return EvaluationWorker(
        [_queue(connection, gpu.queue), _queue(connection, QUEUE_NAME)],
        name,
        gpu=gpu,
        connection=connection,
        queue_class=BoundedQueue,
        serializer=JSONSerializer,
        worker_ttl=limits.worker_ttl_s,
        maintenance_interval=limits.maintenance_interval_s,
        limits=limits,
    )


def living_workers(connection: Redis) -> list[str]:
    """Names of the evaluators whose heartbeat is fresh. Raises Unavailable."""
    with answering():
        keys = worker_registration.get_keys(connection=connection)
        return sorted(key.rsplit(":", 1)[-1] for key in keys if connection.exists(key))


def _queue(connection: Redis, name: str) -> BoundedQueue:
    return BoundedQueue(name, connection=connection, serializer=JSONSerializer)


def _all_queues(connection: Redis) -> Sequence[Queue]:
    """The common one and that of each kind of GPU."""
    return [_queue(connection, name) for name in (QUEUE_NAME, *GpuKinds(connection).queues())]


class AllAbandoned:
    """Looks for jobs of dead workers in all queues."""

    def __init__(self, connection: Redis, limits: QueueLimits, also: Callable[[], None]) -> None:
        """`also`: done at each look."""
        self._connection = connection
        self._limits = limits
        self._also = also
        self._by_queue: dict[str, AbandonedJobs] = {}
        self._next_look = 0.0
        self._looking = threading.Lock()

    def recover_if_due(self) -> None:
        """Recover, unless this process did so lately or does so now."""
        if time.monotonic() < self._next_look or not self._looking.acquire(blocking=False):
            return
        try:
            self._next_look = time.monotonic() + self._limits.abandoned_check_s
            self.recover()
        finally:
            self._looking.release()

    def recover(self) -> None:
        """See AbandonedJobs.recover."""
        for queue in _all_queues(self._connection):
            self._by_queue.setdefault(queue.name, abandoned_jobs(queue, self._limits)).recover()
        self._also()


class Absences:
    """Since when queues of kinds of GPU are without an evaluator, as this process saw it."""

    def __init__(self, kinds: GpuKinds) -> None:
        self._kinds = kinds
        self._since: Mapping[str, float] = {}

    def look(self) -> None:
        """Releases what need not wait for them, too."""
        now, absent = time.monotonic(), self._kinds.absent()
        self._since = {queue: self._since.get(queue, now) for queue in absent}
        if absent:
            self._kinds.release_absent()

    def longer_than(self, seconds: float) -> set[str]:
        """Names of the queues."""
        now = time.monotonic()
        return {queue for queue, since in self._since.items() if now - since >= seconds}


def abandoned_jobs(queue: Queue, limits: QueueLimits) -> AbandonedJobs:
    """Those of a queue, looked for within its limits."""
    return AbandonedJobs(
        queue,
        taken_grace_s=limits.taken_grace_s,
        failure_ttl_s=limits.failure_ttl_s,
    )


def _reason_to_refuse(job: Job) -> str | None:
    """None for a call of the allowed function on one text. RQ would also call or post to what else a job names."""
    try:
        function, instance, arguments, keywords = job.func_name, job.instance, job.args, job.kwargs
    except DeserializationError:
        return "it cannot be read"
    if function != GRADE_FUNCTION or instance is not None:
        return f"function {shown(str(function))!r} is not allowed"
    if keywords or not isinstance(arguments, list) or len(arguments) != 1 or not isinstance(arguments[0], str):
        return "its arguments are not one text"
    if any((job._success_callback_name, job._failure_callback_name, job._stopped_callback_name, job.webhooks)):
        return "it names a callback"
    return None


def _not_queued(job_id: str) -> NotFound:
    return NotFound(f"no evaluation {job_id} is queued", field="job_id", value=job_id)


def _last_line(failure: Result | None) -> str:
    """Of the traceback."""
    text = None if failure is None else failure.exc_string
    return text.strip().splitlines()[-1] if text else "no reason was recorded"


_BEYOND_THE_DEVICE = "beyond the device: "
"""How a line begins that follows the traceback."""


def _told(error: LimitExceeded) -> str:
    parts = {"message": error.message, "field": error.field, "value": error.value, "limit": error.limit}
    return f"{_BEYOND_THE_DEVICE}{json.dumps(parts)}\n"


def _failure(job_id: str, last_line: str) -> LimitExceeded | Unavailable:
    if last_line.startswith(_BEYOND_THE_DEVICE):
        return LimitExceeded(**json.loads(last_line.removeprefix(_BEYOND_THE_DEVICE)))
    reason = f"evaluation {job_id} failed on every attempt: {last_line}"
    return Unavailable(reason, field="job_id", value=job_id)


def rq_id_of(job_id: str) -> str:
    """RQ allows fewer characters in an id than we do."""
    return hashlib.sha256(job_id.encode()).hexdigest()[:40]
