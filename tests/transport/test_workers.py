"""Real worker processes that answer, die, stop and come back."""

import signal
import threading
import time
from functools import partial
from typing import Any

import pytest
from redis.connection import UnixDomainSocketConnection
from rq import Queue
from rq.job import Callback, Job, JobStatus
from rq.results import Result
from rq.serializers import JSONSerializer

from sparsesmith.errors import Conflict, LimitExceeded, NotFound, Unavailable
from sparsesmith.transport.connection import Redis, connect
from sparsesmith.transport.gpu_kinds import QUEUE_NAME, GpuKind
from sparsesmith.transport.queue import (
    GRADE_FUNCTION,
    EvaluationQueue,
    abandoned_jobs,
    evaluation_worker,
    living_workers,
)
from tests.transport.messages import DEVICE, make_job, report_for
from tests.transport.quick_evaluator import LIMITS
from tests.transport.workers import Workers, wait_until


@pytest.fixture
def queue(redis_connection: Redis) -> EvaluationQueue:
    return EvaluationQueue(redis_connection, LIMITS)


def has_begun(workers: Workers, name: str) -> bool:
    return name in workers.began("hold-1")


def began_or_ended(workers: Workers, queue: EvaluationQueue, name: str) -> bool:
    return has_begun(workers, name) or queue.wait("hold-1", 0.1) is not None


def error_of(job: Job) -> str:
    """Why a job failed."""
    result = job.latest_result()
    assert result is not None
    return str(result.exc_string)


def test_a_job_goes_to_a_worker_and_its_report_comes_back(queue: EvaluationQueue, workers: Workers) -> None:
    workers.start("a")
    queue.submit(make_job())
    assert queue.wait("job-1", timeout_s=30) == report_for(make_job())
    assert queue.wait("job-1", timeout_s=0) == report_for(make_job())
    assert queue.position("job-1") == 0


def test_a_report_that_expired_is_not_found(queue: EvaluationQueue, workers: Workers, redis_connection: Redis) -> None:
    workers.start("a")
    queue.submit(make_job())
    assert queue.wait("job-1", timeout_s=30) is not None
    redis_connection.delete(*redis_connection.keys("rq:results:*"))
    with pytest.raises(NotFound, match="no evaluation job-1 is queued"):
        queue.wait("job-1", timeout_s=0)


def test_a_waiting_generator_hears_of_the_report_at_once(queue: EvaluationQueue, workers: Workers) -> None:
    workers.start("a")
    queue.submit(make_job("hold-1"))
    wait_until(lambda: workers.began("hold-1"))
    released_at: list[float] = []

    def release() -> None:
        released_at.append(time.monotonic())
        workers.release()

    timer = threading.Timer(0.5, release)
    timer.start()
    assert queue.wait("hold-1", timeout_s=20) is not None
    assert time.monotonic() - released_at[0] < 10  # seconds, of the 20 that it may wait


def test_a_job_whose_worker_is_killed_is_graded_by_another(queue: EvaluationQueue, workers: Workers) -> None:
    workers.start("a")
    queue.submit(make_job("hold-1"))
    wait_until(lambda: workers.began("hold-1") == {"a"})
    workers.kill("a")
    workers.release()
    workers.start("b")
    assert queue.wait("hold-1", timeout_s=30) == report_for(make_job("hold-1"))
    assert workers.began("hold-1") == {"a", "b"}


def test_a_job_that_kills_every_worker_fails(queue: EvaluationQueue, workers: Workers) -> None:
    queue.submit(make_job("hold-1"))
    for name in ("a", "b", "c"):
        workers.start(name)
        wait_until(partial(began_or_ended, workers, queue, name))
        workers.kill(name)
    with pytest.raises(Unavailable, match="every worker that had the job died"):
        queue.wait("hold-1", timeout_s=30)


def test_a_job_that_raises_on_every_attempt_fails_with_its_reason(queue: EvaluationQueue, workers: Workers) -> None:
    workers.start("a")
    queue.submit(make_job("fail-1"))
    with pytest.raises(Unavailable, match="failed on every attempt: RuntimeError: the device is gone"):
        queue.wait("fail-1", timeout_s=30)
    queue.submit(make_job("good"))
    assert queue.wait("good", timeout_s=30) is not None


def test_a_job_beyond_the_device_fails_at_once_and_says_so(queue: EvaluationQueue, workers: Workers) -> None:
    workers.start("a")
    queue.submit(make_job("huge-1"))
    with pytest.raises(LimitExceeded) as refusal:
        queue.wait("huge-1", timeout_s=30)
    error = refusal.value
    assert error.message == "num_rows is 9: at most 5 on this device"
    assert (error.field, error.value, error.limit) == ("num_rows", "9", "5")
    assert (workers.folder / "attempts").read_text() == "x"


def test_many_who_look_for_abandoned_jobs_queue_each_once(
    queue: EvaluationQueue, workers: Workers, redis_connection: Redis
) -> None:
    workers.start("a")
    queue.submit(make_job("hold-1"))
    wait_until(lambda: workers.began("hold-1"))
    workers.kill("a")
    time.sleep(LIMITS.heartbeat_ttl_s + 1)
    waiting = Queue(QUEUE_NAME, connection=redis_connection, serializer=JSONSerializer)
    lookers = [threading.Thread(target=abandoned_jobs(waiting, LIMITS).recover) for _ in range(8)]
    for looker in lookers:
        looker.start()
    for looker in lookers:
        looker.join()
    assert queue.depth() == 1
    workers.release()
    workers.start("b")
    assert queue.wait("hold-1", timeout_s=30) is not None


def test_a_job_that_was_taken_and_never_begun_is_queued_again(
    queue: EvaluationQueue, workers: Workers, redis_connection: Redis
) -> None:
    queue.submit(make_job())
    redis_connection.lmove(f"rq:queue:{QUEUE_NAME}", f"rq:queue:{QUEUE_NAME}:intermediate")  # As a worker, then killed.
    assert queue.depth() == 0
    workers.start("a")
    assert queue.wait("job-1", timeout_s=30) == report_for(make_job())
    assert redis_connection.llen(f"rq:queue:{QUEUE_NAME}:intermediate") == 0


def test_a_worker_that_is_told_to_stop_gives_its_job_back_at_no_attempt(
    queue: EvaluationQueue, workers: Workers, redis_connection: Redis
) -> None:
    queue.submit(make_job("hold-1"))
    for name in ("a", "b", "c", "d"):  # More often than there are attempts.
        workers.start(name)
        wait_until(partial(has_begun, workers, name))
        workers.send(name, signal.SIGTERM)
        assert workers.wait_for_end(name) == 0
        assert queue.depth() == 1
    assert living_workers(redis_connection) == []
    workers.release()
    workers.start("e")
    assert queue.wait("hold-1", timeout_s=30) is not None


def test_an_idle_worker_stops_when_told(workers: Workers, redis_connection: Redis) -> None:
    workers.start("a")
    wait_until(lambda: redis_connection.hget("rq:worker:a", "state") == b"idle")
    assert living_workers(redis_connection) == ["a"]
    workers.send("a", signal.SIGTERM)
    assert workers.wait_for_end("a") == 0
    assert living_workers(redis_connection) == []


def test_a_worker_that_is_told_in_the_middle_of_a_call_hears_the_answer_and_stops(
    redis_url: str, redis_connection: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = evaluation_worker(connect(redis_url), "a", GpuKind.of(DEVICE), LIMITS)
    happened: list[str] = []
    hear = UnixDomainSocketConnection.read_response

    def told_before_it_hears(connection: UnixDomainSocketConnection, *arguments: Any, **options: Any) -> Any:
        if worker.get_state() != "idle" or happened:
            return hear(connection, *arguments, **options)
        happened.append("told")
        signal.raise_signal(signal.SIGTERM)
        answer = hear(connection, *arguments, **options)
        happened.append("heard")
        return answer

    monkeypatch.setattr(UnixDomainSocketConnection, "read_response", told_before_it_hears)
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    try:
        worker.work(logging_level="WARNING")
    finally:
        for number, handler in zip((signal.SIGTERM, signal.SIGINT), before, strict=True):
            signal.signal(number, handler)
    assert happened == ["told", "heard"]
    assert living_workers(redis_connection) == []


def test_a_worker_stops_a_job_that_is_cancelled_and_goes_on(queue: EvaluationQueue, workers: Workers) -> None:
    workers.start("a")
    queue.submit(make_job("hold-1"))
    wait_until(lambda: workers.began("hold-1"))
    queue.cancel("hold-1")
    queue.submit(make_job("next"))
    assert queue.wait("next", timeout_s=30) is not None
    with pytest.raises(Conflict, match="was cancelled"):
        queue.wait("hold-1", timeout_s=0)
    assert "job hold-1 ends" in workers.log("a")
    assert "Traceback" not in workers.log("a")


def test_a_worker_knows_how_long_its_job_waited_and_whether_others_do(queue: EvaluationQueue, workers: Workers) -> None:
    queue.submit(make_job("hold-1"))
    time.sleep(1.5)
    workers.start("a")
    wait_until(lambda: (workers.folder / "hold-1.waited").exists())
    waited_s, others_wait = (workers.folder / "hold-1.waited").read_text().split()
    assert 1.5 < float(waited_s) < 60
    assert others_wait == "False"
    queue.submit(make_job("hold-2"))
    queue.submit(make_job("hold-3"))
    workers.release()
    wait_until(lambda: (workers.folder / "hold-2.waited").exists())
    assert (workers.folder / "hold-2.waited").read_text().split()[1] == "True"


def test_a_worker_that_seemed_dead_disturbs_nothing_when_it_wakes(
    queue: EvaluationQueue, workers: Workers, redis_connection: Redis
) -> None:
    workers.start("a")
    queue.submit(make_job("hold-1"))
    wait_until(lambda: workers.began("hold-1") == {"a"})
    workers.send("a", signal.SIGSTOP)
    workers.start("b")
    wait_until(lambda: queue.wait("hold-1", 0.2) or workers.began("hold-1") == {"a", "b"})
    workers.send("a", signal.SIGCONT)  # It finds its job taken and leaves it.
    queue.submit(make_job("next"))
    assert queue.wait("next", timeout_s=30) is not None
    workers.release()
    assert queue.wait("hold-1", timeout_s=30) == report_for(make_job("hold-1"))
    assert queue.depth() == 0


def test_a_second_report_of_a_worker_that_seemed_dead_is_not_told(
    queue: EvaluationQueue, workers: Workers, redis_connection: Redis
) -> None:
    workers.start("a")
    queue.submit(make_job("hold-1"))
    wait_until(lambda: workers.began("hold-1") == {"a"})
    workers.send("a", signal.SIGSTOP)
    workers.start("b")
    wait_until(lambda: queue.wait("hold-1", 0.2) or workers.began("hold-1") == {"a", "b"})
    workers.release()
    assert queue.wait("hold-1", timeout_s=30) is not None
    workers.send("a", signal.SIGCONT)  # It has its report, too.
    wait_until(lambda: "it has ended elsewhere" in workers.log("a"))
    (results,) = redis_connection.keys("rq:results:*")
    kinds = [Result.Type(int(fields[b"type"])) for _, fields in redis_connection.xrange(results)]
    assert kinds.count(Result.Type.SUCCESSFUL) == 1


def test_a_job_that_ended_while_it_waited_again_is_not_run(
    queue: EvaluationQueue, workers: Workers, redis_connection: Redis
) -> None:
    workers.start("a")
    queue.submit(make_job("one"))
    assert queue.wait("one", timeout_s=30) is not None
    (rq_id,) = (key.decode().removeprefix("rq:job:") for key in redis_connection.keys("rq:job:*"))
    (workers.folder / "one.a").unlink()
    redis_connection.rpush(f"rq:queue:{QUEUE_NAME}", rq_id)
    queue.submit(make_job("two"))
    assert queue.wait("two", timeout_s=30) is not None
    assert workers.began("one") == set()
    assert queue.wait("one", timeout_s=0) == report_for(make_job("one"))


@pytest.mark.parametrize(
    ("function", "arguments", "reason"),
    [
        ("os.system", ["touch PLACE"], "function 'os.system' is not allowed"),
        ("services.evaluator.jobs.install", ["x"], "function 'services.evaluator.jobs.install' is not allowed"),
        (GRADE_FUNCTION, [1], "its arguments are not one text"),
        (GRADE_FUNCTION, ["{}", "more"], "its arguments are not one text"),
    ],
)
def test_a_job_for_another_function_is_refused_and_never_run(
    function: str, arguments: list[object], reason: str, workers: Workers, redis_connection: Redis
) -> None:
    place = workers.folder / "was-run"
    told = [str(argument).replace("PLACE", str(place)) if argument != 1 else argument for argument in arguments]
    queue = Queue(QUEUE_NAME, connection=redis_connection, serializer=JSONSerializer)
    job = queue.enqueue_call(function, args=told)
    workers.start("a")
    wait_until(lambda: job.get_status() == JobStatus.FAILED)
    assert not place.exists()
    assert f"refused: {reason}" in error_of(job)
    assert_it_still_works(EvaluationQueue(redis_connection, LIMITS))


def test_a_job_that_names_a_callback_is_refused(workers: Workers, redis_connection: Redis) -> None:
    queue = Queue(QUEUE_NAME, connection=redis_connection, serializer=JSONSerializer)
    job = queue.enqueue_call(GRADE_FUNCTION, args=[make_job().model_dump_json()], on_success=Callback("os.getcwd"))
    workers.start("a")
    wait_until(lambda: job.get_status() == JobStatus.FAILED)
    assert "refused: it names a callback" in error_of(job)


def test_a_job_in_an_unknown_coding_is_refused(workers: Workers, redis_connection: Redis) -> None:
    job = Queue(QUEUE_NAME, connection=redis_connection).enqueue("os.getcwd")  # Pickled.
    workers.start("a")
    wait_until(lambda: redis_connection.hget(job.key, "status") == b"failed")
    assert_it_still_works(EvaluationQueue(redis_connection, LIMITS))


def assert_it_still_works(queue: EvaluationQueue) -> None:
    queue.submit(make_job("good"))
    assert queue.wait("good", timeout_s=30) == report_for(make_job("good"))


def test_a_killed_worker_is_not_called_living_for_long(workers: Workers, redis_connection: Redis) -> None:
    workers.start("a")
    wait_until(lambda: living_workers(redis_connection) == ["a"])
    lifetime_s = redis_connection.ttl(Job.key_for("a").replace(":job:", ":worker:"))
    assert 0 < lifetime_s <= LIMITS.worker_ttl_s + 60
