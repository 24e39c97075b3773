"""Two kinds of GPU at one queue, by real worker processes that come, go and are killed."""

import random
import signal
import time
from collections.abc import Iterable
from dataclasses import replace

import pytest

from sparsesmith.errors import Unavailable
from sparsesmith.transport.connection import Redis
from sparsesmith.transport.gpu_kinds import GPUS, MAX_OVERTAKEN, QUEUE_NAME, GpuKind, GpuKinds, queue_of
from sparsesmith.transport.queue import EvaluationQueue, rq_id_of
from tests.transport.messages import DEVICE, PROBED, device_named, make_job
from tests.transport.quick_evaluator import LIMITS
from tests.transport.workers import Workers, wait_until

PATIENCE_S = 2.0
H200, L40S = "NVIDIA H200", "NVIDIA L40S"


@pytest.fixture
def queue(redis_connection: Redis) -> EvaluationQueue:
    return EvaluationQueue(redis_connection, LIMITS)


@pytest.fixture
def impatient(redis_connection: Redis) -> EvaluationQueue:
    """Gives a kind of GPU that has left up soon."""
    return EvaluationQueue(redis_connection, replace(LIMITS, gpu_patience_s=PATIENCE_S))


@pytest.fixture
def kinds(redis_connection: Redis) -> GpuKinds:
    return GpuKinds(redis_connection)


def graded_by(queue: EvaluationQueue, job_id: str, timeout_s: float = 60) -> str:
    report = queue.wait(job_id, timeout_s)
    assert report is not None, job_id
    return report.device.gpu


def started(workers: Workers, kinds: GpuKinds, **names: str) -> None:
    """Workers by name, each with its GPU; all of them there."""
    for name, gpu in names.items():
        workers.start(name, gpu)
    wait_until(lambda: {kind.name for kind in kinds.living()} >= set(names.values()))
    wait_until(lambda: sum(kinds.living().values()) >= len(names))


def test_a_queue_is_named_as_kubernetes_labels_a_gpu() -> None:
    assert queue_of("NVIDIA H200") == "evaluations.NVIDIA-H200"
    assert queue_of("NVIDIA A100-SXM4-80GB") == "evaluations.NVIDIA-A100-SXM4-80GB"
    assert queue_of(None) == "evaluations"


def test_interpreters_of_two_generations_are_two_kinds() -> None:
    other = DEVICE.model_copy(update={"architecture": "sm_80"})
    assert [GpuKind.of(each).name for each in (DEVICE, other)] == ["PTX interpreter sm_90", "PTX interpreter sm_80"]
    assert GpuKind.of(device_named(H200)).name == H200


def test_kinds_are_there_while_an_evaluator_has_a_heartbeat(workers: Workers, kinds: GpuKinds) -> None:
    assert kinds.living() == {}
    started(workers, kinds, a=H200, b=H200, c=L40S)
    assert {kind.name: count for kind, count in kinds.living().items()} == {H200: 2, L40S: 1}
    workers.send("c", signal.SIGTERM)
    workers.wait_for_end("c")
    assert [kind.name for kind in kinds.living()] == [H200]
    assert {kind.name for kind in kinds.known().values()} == {H200, L40S}


def test_what_a_later_release_tells_of_a_kind_is_passed_over(redis_connection: Redis, kinds: GpuKinds) -> None:
    kinds.tell(GpuKind.of(DEVICE))
    (queue, text) = next(iter(redis_connection.hgetall(GPUS).items()))
    redis_connection.hset(GPUS, queue, text.replace(b"{", b'{"memory_gb": 141, ', 1))
    assert list(kinds.known().values()) == [GpuKind.of(DEVICE)]


def test_a_job_that_names_a_kind_waits_for_that_kind(
    queue: EvaluationQueue, workers: Workers, kinds: GpuKinds, redis_connection: Redis
) -> None:
    started(workers, kinds, a=L40S)
    queue.submit(make_job("named", gpu=H200))
    queue.submit(make_job("any"))
    assert graded_by(queue, "any") == L40S
    assert queue.wait("named", 0.5) is None
    assert (queue.depth(), queue.depth(queue_of(H200)), queue.depth(queue_of(L40S))) == (1, 1, 0)
    assert redis_connection.llen(f"rq:queue:{QUEUE_NAME}.NVIDIA-H200") == 1
    assert queue.position("named") == 0
    workers.start("b", H200)
    assert graded_by(queue, "named") == H200
    assert workers.began("named") == {"b"}


def test_jobs_of_one_search_are_graded_on_one_kind(queue: EvaluationQueue, workers: Workers, kinds: GpuKinds) -> None:
    started(workers, kinds, a=H200, b=L40S, c=H200, d=L40S)
    searches = [f"search-{number}" for number in range(24)]
    names = [(search, f"{search}.{number}") for number in range(4) for search in searches]
    for search, name in names:
        queue.submit(make_job(name, search=search))
    found: dict[str, set[str]] = {}
    for search, name in names:
        found.setdefault(search, set()).add(graded_by(queue, name))
    assert all(len(gpus) == 1 for gpus in found.values()), found
    assert {gpu for gpus in found.values() for gpu in gpus} == {H200, L40S}


def test_a_search_whose_kind_left_before_any_report_goes_to_another(
    queue: EvaluationQueue, workers: Workers, kinds: GpuKinds
) -> None:
    started(workers, kinds, a=H200)
    queue.submit(make_job("hold-1", search="one"))
    wait_until(lambda: workers.began("hold-1"))
    started(workers, kinds, b=L40S)
    queue.submit(make_job("second", search="one"))
    assert queue.wait("second", 1) is None  # It waits for the kind that has the search.
    assert rq_id_of("second").encode() in kinds._connection.lrange(f"rq:queue:{queue_of(H200)}", 0, -1)
    workers.release()
    workers.kill("a")
    forget(workers, kinds, H200)
    assert graded_by(queue, "second") == L40S
    assert graded_by(queue, "hold-1") == L40S


def forget(workers: Workers, kinds: GpuKinds, gpu: str) -> None:
    """A killed worker's last sign of life runs out."""
    connection = kinds._connection
    for key in connection.smembers(f"rq:workers:{queue_of(gpu)}"):
        connection.delete(key)
    wait_until(lambda: all(kind.name != gpu for kind in kinds.living()))


def test_a_search_with_a_report_stays_and_is_told_when_its_kind_is_gone(
    queue: EvaluationQueue, impatient: EvaluationQueue, workers: Workers, kinds: GpuKinds
) -> None:
    started(workers, kinds, a=H200)
    queue.submit(make_job("first", search="one"))
    assert graded_by(queue, "first") == H200
    workers.send("a", signal.SIGTERM)
    workers.wait_for_end("a")
    started(workers, kinds, b=L40S)
    queue.submit(make_job("second", search="one"))
    with pytest.raises(Unavailable, match="no evaluator has NVIDIA H200 any more") as refusal:
        impatient.wait("second", 30)
    assert (refusal.value.field, refusal.value.value, refusal.value.limit) == ("gpu", H200, L40S)
    assert queue.depth() == 0
    assert workers.began("second") == set()


def test_a_job_that_names_a_kind_that_left_is_told_and_taken_out(
    queue: EvaluationQueue, impatient: EvaluationQueue, workers: Workers, kinds: GpuKinds
) -> None:
    started(workers, kinds, a=H200, b=L40S)
    workers.send("a", signal.SIGTERM)
    workers.wait_for_end("a")
    queue.submit(make_job("named", gpu=H200))
    began = time.monotonic()
    with pytest.raises(Unavailable, match="no evaluator has NVIDIA H200 any more"):
        impatient.wait("named", 30)
    assert time.monotonic() - began >= PATIENCE_S
    assert queue.depth() == 0


def test_a_kind_that_comes_back_in_time_goes_on(queue: EvaluationQueue, workers: Workers, kinds: GpuKinds) -> None:
    started(workers, kinds, a=H200)
    workers.send("a", signal.SIGTERM)
    workers.wait_for_end("a")
    queue.submit(make_job("named", gpu=H200))
    assert queue.wait("named", 1) is None
    workers.start("b", H200)
    assert graded_by(queue, "named") == H200


def test_a_killed_worker_s_named_job_goes_to_its_kind(
    queue: EvaluationQueue, workers: Workers, kinds: GpuKinds
) -> None:
    started(workers, kinds, a=H200, b=L40S)
    queue.submit(make_job("hold-1", gpu=H200))
    wait_until(lambda: workers.began("hold-1") == {"a"})
    workers.kill("a")
    workers.release()
    workers.start("c", H200)
    assert graded_by(queue, "hold-1") == H200
    assert workers.began("hold-1") == {"a", "c"}


def test_a_report_of_a_kind_that_lost_the_search_is_not_told(
    queue: EvaluationQueue, workers: Workers, kinds: GpuKinds, redis_connection: Redis
) -> None:
    started(workers, kinds, a=H200)
    queue.submit(make_job("hold-1", search="one"))
    wait_until(lambda: workers.began("hold-1") == {"a"})
    redis_connection.hset("sparsesmith:search:one", "queue", queue_of(L40S))
    workers.release()
    wait_until(lambda: "belongs to another kind" in workers.log("a"))
    assert not redis_connection.exists(f"rq:results:{rq_id_of('hold-1')}")
    assert redis_connection.hget("sparsesmith:search:one", "answered") is None


def test_of_two_lists_the_older_job_is_first_and_small_ones_overtake(
    queue: EvaluationQueue, workers: Workers, kinds: GpuKinds
) -> None:
    started(workers, kinds, a=H200)
    queue.submit(make_job("hold-1", work=1))
    wait_until(lambda: workers.began("hold-1"))
    submitted = [("any-1", None, 8), ("named-1", H200, 8), ("any-2", None, 8), ("named-small", H200, 1)]
    for name, gpu, work in submitted:
        queue.submit(make_job(name, gpu=gpu, work=work))
    workers.release()
    for name, _, _ in submitted:
        assert graded_by(queue, name) == H200
    assert in_order(workers, ["named-small", "any-1", "named-1", "any-2"])


def test_of_two_lists_a_probe_is_first_and_again_first_whatever_was_overtaken(
    queue: EvaluationQueue, workers: Workers, kinds: GpuKinds
) -> None:
    started(workers, kinds, a=H200)
    queue.submit(make_job("hold-1", work=1))
    wait_until(lambda: workers.began("hold-1"))
    queue.submit(make_job("any", work=8))
    probes = [f"probe-{number}" for number in range(2 * MAX_OVERTAKEN)]
    for name in probes:
        queue.submit(make_job(name, candidates=(PROBED,), gpu=H200))
    workers.release()
    for name in (*probes, "any"):
        assert graded_by(queue, name) == H200
    assert in_order(workers, [*probes, "any"])


def in_order(workers: Workers, names: Iterable[str]) -> bool:
    times = [(workers.folder / f"{name}.a").stat().st_mtime_ns for name in names]
    return times == sorted(times)


@pytest.mark.parametrize(
    "meta",
    [b"\xff no JSON", b"[" * 1024, b'{"search": 1, "gpu": null}', b'{"search": "' + b"s" * 2**20 + b'"}'],
    ids=["no text", "deep", "no name", "long"],
)
def test_a_job_of_third_parties_is_taken_by_any_kind(
    meta: bytes, queue: EvaluationQueue, workers: Workers, kinds: GpuKinds, redis_connection: Redis
) -> None:
    started(workers, kinds, a=H200)
    queue.submit(make_job("guest"))
    name = rq_id_of("guest")
    assert graded_by(queue, "guest") == H200
    redis_connection.delete(f"rq:results:{name}")
    redis_connection.hdel(f"rq:job:{name}", "meta", "submitted", "work")
    redis_connection.hset(f"rq:job:{name}", "meta", meta)
    redis_connection.hset(f"rq:job:{name}", "status", "queued")
    redis_connection.rpush(f"rq:queue:{QUEUE_NAME}", name)  # Nobody rings.
    assert graded_by(queue, "guest") == H200
    assert not redis_connection.keys("sparsesmith:search:*")


@pytest.mark.stack
def test_nothing_is_lost_mixed_or_answered_twice_while_workers_of_two_kinds_are_killed(
    queue: EvaluationQueue, workers: Workers, kinds: GpuKinds, redis_connection: Redis
) -> None:
    chosen = random.Random(5)
    gpus = {f"w{number}": (H200, L40S)[number % 2] for number in range(4)}
    started(workers, kinds, **gpus)
    jobs: dict[str, tuple[str | None, str | None]] = {}
    for number in range(120):
        named = chosen.choice((None, None, H200, L40S))
        search = f"search-{number // 4}" if named is None else None
        jobs[f"job-{number}"] = (named, search)
        queue.submit(make_job(f"job-{number}", gpu=named, search=search))
        if number % 10 == 9:
            name = chosen.choice(sorted(gpus))
            workers.kill(name)
            gpus[f"{name}x"] = gpus.pop(name)
            workers.start(f"{name}x", gpus[f"{name}x"])
    by_search: dict[str, set[str]] = {}
    for name, (named, search) in jobs.items():
        gpu = graded_by(queue, name, 120)
        assert named in (None, gpu)
        if search is not None:
            by_search.setdefault(search, set()).add(gpu)
    assert all(len(found) == 1 for found in by_search.values()), by_search
    assert queue.depth() == queue.num_running() == 0
    results = [redis_connection.xrange(f"rq:results:{rq_id_of(name)}") for name in jobs]
    assert all(sum(int(fields[b"type"]) == 1 for _, fields in kept) == 1 for kept in results)
