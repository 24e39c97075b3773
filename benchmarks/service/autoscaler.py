"""A loop that plays the autoscaler against the real queue: workers of two kinds of GPU are started, told to stop and
killed while jobs come in waves, some for one kind and some of searches that belong to the kind that takes them first;
each job must be answered, once, and by a kind that may.

    python -m benchmarks.service.autoscaler                 1,000 events; writes benchmarks/results/cpu/autoscaler.json
    python -m benchmarks.service.autoscaler --events 60

How many workers there should be is asked as deploy/k8s/scaling.yaml asks (a test compares the two), many times a second
and without patience, which is harsher than KEDA. The queue is the product's on an embedded Valkey, and so are the
workers, each a process; only what a job computes is left out: it takes its time and reports.

Ends with 1, and no result file, where a job was lost, failed, has more than one result or one of a wrong kind, or a
search has results of two kinds.
"""

import argparse
import json
import math
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from rq.results import Result

from benchmarks.origin import RESULTS, machine, source_commit
from services.evaluator import jobs
from services.evaluator.jobs import GradingService
from sparsesmith.errors import SparsesmithError
from sparsesmith.runtime.embedded_valkey import EmbeddedValkey
from sparsesmith.transport.connection import Redis, connect
from sparsesmith.transport.gpu_kinds import QUEUE_NAME, GpuKind, queue_of
from sparsesmith.transport.queue import EvaluationQueue, EvaluationWorker, QueueLimits, evaluation_worker, rq_id_of
from sparsesmith_proto.evaluation import EvaluationJob, EvaluationReport
from sparsesmith_proto.kernel import (
    Baselines,
    BaselineTiming,
    Candidate,
    DeviceDescription,
    EstimatedTiming,
    Evaluation,
    Rejected,
    UserWritten,
    Workload,
)

LEAST, MOST = 1, 8
"""Workers."""
GPUS = ("NVIDIA H200", "NVIDIA L40S")
MOST_OF_A_KIND = MOST // len(GPUS)
NAMED_SHARE = 0.4
"""Of the jobs: those that name a kind. The others belong to searches..."""
SEARCH_JOBS = 6
"""...of so many jobs each."""
LIMITS = QueueLimits(
    job_grace_s=60, worker_ttl_s=60, maintenance_interval_s=5, heartbeat_ttl_s=10, taken_grace_s=5, abandoned_check_s=1
)
"""As in service, but that a dead worker is noticed sooner."""
WAVE = 24
"""Jobs that come at once when none waits any more."""
KILLED_SHARE = 0.2
"""Of the looks at which the number is not right."""
SUBMITTED_TWICE_SHARE = 0.1
"""Of the jobs: their generator did not hear that the queue took them."""
JOB_S = (0.01, 0.2)
LOOK_S = 0.02
ANSWER_S = 300.0
"""Longest wait for one answer at the end."""
BEGUN = "autoscaler:begun"


def wanted(*, waiting: int, busy: int, least: int = LEAST, most: int = MOST) -> int:
    """Workers that there should be: those at work, and one more for each two jobs that wait."""
    return min(most, max(least, math.ceil(busy + waiting / 2)))


class Interrupted(Exception):
    """The worker is told to stop."""


class TimedGrading(GradingService):
    """Takes its time, looks meanwhile whether it should stop, and reports."""

    def __init__(self, worker: EvaluationWorker, connection: Redis, device: DeviceDescription) -> None:
        self._worker = worker
        self._redis = connection
        self._device = device

    def grade(self, job: EvaluationJob) -> EvaluationReport:
        self._redis.hincrby(BEGUN, job.job_id)
        end = time.monotonic() + random.Random(job.job_id).uniform(*JOB_S)
        while time.monotonic() < end:
            if self._worker.must_stop():
                raise Interrupted
            time.sleep(0.005)
        return report_of(job, self._device)


def device_of(gpu: str) -> DeviceDescription:
    return DeviceDescription(kind="cuda", name=gpu, architecture="sm_90", num_sms=1, copy_bandwidth_gbs=1, versions={})


def report_of(job: EvaluationJob, device: DeviceDescription) -> EvaluationReport:
    timing = EstimatedTiming(median_us=10, traffic_model="none")
    routine = BaselineTiming(routine="plain", timing=timing, preparation_ms=0)
    return EvaluationReport(
        job_id=job.job_id,
        device=device,
        baselines=Baselines(default="plain", routines=(routine,)),
        evaluations=tuple(Evaluation(candidate=each, outcome=Rejected(message="not read")) for each in job.candidates),
        csr_bytes=0,
        seconds=0,
    )


def job_numbered(number: int, chosen: random.Random) -> EvaluationJob:
    """For a kind, or of a search."""
    candidate = Candidate(candidate_id="c", program="none", origin=UserWritten())
    workload = Workload(pattern="0" * 64, operation="spmv", element_type="float32")
    gpu = chosen.choice(GPUS) if chosen.random() < NAMED_SHARE else None
    search = f"search-{number // SEARCH_JOBS}" if gpu is None else None
    return EvaluationJob(
        job_id=f"job-{number}", workload=workload, candidates=(candidate,), budget_s=60, gpu=gpu, search=search
    )


def work(address: str, name: str, gpu: str) -> None:
    """A worker process, until SIGTERM."""
    connection, device = connect(address), device_of(gpu)
    worker = evaluation_worker(connection, name, GpuKind.of(device), LIMITS)
    jobs.install(TimedGrading(worker, connection, device))
    worker.work(logging_level="CRITICAL")


@dataclass
class Workers:
    """Processes with one kind of GPU; `events` counts what was done to them."""

    address: str
    chosen: random.Random
    gpu: str
    events: Counter[str] = field(default_factory=Counter)
    most: int = 0
    _serving: list[BaseProcess] = field(default_factory=list)
    _leaving: list[BaseProcess] = field(default_factory=list)

    def __post_init__(self) -> None:
        # One process imports everything once and forks each worker: a start takes a tenth of a second.
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["services.evaluator.jobs", "sparsesmith.transport.queue"])

    def __len__(self) -> int:
        self._serving = [each for each in self._serving if each.is_alive()]
        self._leaving = [each for each in self._leaving if each.is_alive()]
        return len(self._serving)

    @property
    def num_events(self) -> int:
        return self.events.total()

    def start(self) -> None:
        name = f"worker-{self.gpu.split()[-1]}-{self.num_events}"
        process = self._context.Process(target=work, args=(self.address, name, self.gpu), daemon=True)
        process.start()
        self._serving.append(process)
        self.events["started"] += 1
        self.most = max(self.most, len(self))

    def stop(self) -> None:
        """Tells one to end in order."""
        self._leaving.append(self._one(signal.SIGTERM))
        self.events["stopped"] += 1

    def kill(self) -> None:
        self._one(signal.SIGKILL).join(10)
        self.events["killed"] += 1

    def _one(self, number: signal.Signals) -> BaseProcess:
        process = self._serving.pop(self.chosen.randrange(len(self._serving)))
        assert process.pid is not None
        os.kill(process.pid, number)
        return process

    def end(self) -> None:
        for process in (*self._serving, *self._leaving):
            process.kill()
            process.join(10)


def scaled(num_events: int, seed: int, folder: Path) -> dict[str, Any]:
    """Plays until there were so many events, then lets the queue drain; what became of the jobs."""
    valkey = EmbeddedValkey(folder)
    valkey.start()
    try:
        with closing(connect(valkey.address)) as connection:
            return _scaled(num_events, random.Random(seed), valkey.address, connection)
    finally:
        valkey.stop()


def _scaled(num_events: int, chosen: random.Random, address: str, connection: Redis) -> dict[str, Any]:
    queue, submitted = EvaluationQueue(connection, LIMITS), list[EvaluationJob]()
    pools = [Workers(address, chosen, gpu) for gpu in GPUS]
    began = time.monotonic()
    try:
        while sum(pool.num_events for pool in pools) < num_events:
            if queue.depth() == 0:
                submitted += _submit_wave(queue, len(submitted), chosen)
            for pool in pools:
                _scale(pool, _wanted_of(queue, pool.gpu))
            time.sleep(LOOK_S)
        for pool in pools:
            while len(pool) < LEAST:
                pool.start()
        ends = [_end_of(queue, job) for job in submitted]
    finally:
        for pool in pools:
            pool.end()
    results = [_num_answers(connection, job.job_id) for job in submitted]
    begun = [int(connection.hget(BEGUN, job.job_id) or 0) for job in submitted]
    return {
        "kinds": list(GPUS),
        "events": dict(sorted(sum((pool.events for pool in pools), Counter()).items())),
        "jobs": len(submitted),
        "named": sum(job.gpu is not None for job in submitted),
        "ended": dict(sorted(Counter(end for end, _ in ends).items())),
        "answered_once": sum(count == 1 for count in results),
        "answered_twice": sum(count > 1 for count in results),
        "begun_again": sum(count > 1 for count in begun),
        **_kinds_of(submitted, [gpu for _, gpu in ends]),
        "most_workers": sum(pool.most for pool in pools),
        "seconds": round(time.monotonic() - began, 1),
    }


def _kinds_of(submitted: Sequence[EvaluationJob], graded_on: Sequence[str | None]) -> dict[str, int]:
    """How often a kind graded that should not."""
    of_search: dict[str, set[str | None]] = {}
    for job, gpu in zip(submitted, graded_on, strict=True):
        if job.search is not None:
            of_search.setdefault(job.search, set()).add(gpu)
    pairs = zip(submitted, graded_on, strict=True)
    return {
        "searches": len(of_search),
        "searches_on_two_kinds": sum(len(gpus) > 1 for gpus in of_search.values()),
        "on_a_wrong_kind": sum(job.gpu not in (None, gpu) for job, gpu in pairs),
    }


def _wanted_of(queue: EvaluationQueue, gpu: str) -> int:
    """As each kind's ScaledObject asks: what all share counts for every kind."""
    shared, shared_busy = queue.depth(QUEUE_NAME), queue.num_running(QUEUE_NAME)
    waiting, busy = queue.depth(queue_of(gpu)), queue.num_running(queue_of(gpu))
    return wanted(waiting=shared + waiting, busy=shared_busy + busy, most=MOST_OF_A_KIND)


def _submit_wave(queue: EvaluationQueue, first: int, chosen: random.Random) -> list[EvaluationJob]:
    wave = [job_numbered(first + number, chosen) for number in range(chosen.randint(1, WAVE))]
    for job in wave:
        for _ in range(2 if chosen.random() < SUBMITTED_TWICE_SHARE else 1):
            queue.submit(job)
    return wave


def _scale(workers: Workers, target: int) -> None:
    """One event at most."""
    if len(workers) == target:
        return
    if len(workers) and workers.chosen.random() < KILLED_SHARE:
        workers.kill()
    elif len(workers) < target:
        workers.start()
    else:
        workers.stop()


def _end_of(queue: EvaluationQueue, job: EvaluationJob) -> tuple[str, str | None]:
    """How it ended, and on which kind of GPU."""
    try:
        report = queue.wait(job.job_id, ANSWER_S)
    except SparsesmithError as error:
        print(f"{job.job_id}: {error.message}", file=sys.stderr)
        return "failed", None
    return ("lost", None) if report is None else ("answered", report.device.gpu)


def _num_answers(connection: Redis, job_id: str) -> int:
    """Reports in RQ's stream of a job's results, which also tells that it was tried again."""
    kept = connection.xrange(f"rq:results:{rq_id_of(job_id)}")
    return sum(int(fields[b"type"]) == Result.Type.SUCCESSFUL.value for _, fields in kept)


def is_right(result: dict[str, Any]) -> bool:
    """Whether every job was answered, once, and by a kind that may."""
    is_answered = result["ended"] == {"answered": result["jobs"]} and result["answered_once"] == result["jobs"]
    return bool(is_answered and result["searches_on_two_kinds"] == result["on_a_wrong_kind"] == 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    load_before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="ss-scale-") as folder:
        found = scaled(options.events, options.seed, Path(folder))
    result = {
        "kind": "autoscaler",
        "commit": source_commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "command": f"python -m benchmarks.service.autoscaler --events {options.events} --seed {options.seed}",
        "load_average": {"before": load_before, "after": os.getloadavg()[0]},
        **found,
    }
    print(json.dumps(result, indent=1))
    if not is_right(result):
        return 1
    folder_out = options.out / "cpu"
    folder_out.mkdir(parents=True, exist_ok=True)
    (folder_out / "autoscaler.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
