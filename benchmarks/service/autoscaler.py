"""A loop that plays the autoscaler against the real queue: workers are started, told to stop and killed while jobs come
in waves, and each job must be answered, once.

    python -m benchmarks.service.autoscaler                 1,000 events; writes benchmarks/results/cpu/autoscaler.json
    python -m benchmarks.service.autoscaler --events 60

How many workers there should be is asked as deploy/k8s/scaling.yaml asks (a test compares the two), many times a second
and without patience, which is harsher than KEDA. The queue is the product's on an embedded Valkey, and so are the
workers, each a process; only what a job computes is left out: it takes its time and reports.

Ends with 1, and no result file, where a job was lost, failed, or has more than one result.
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

    def __init__(self, worker: EvaluationWorker, connection: Redis) -> None:
        self._worker = worker
        self._redis = connection

    def grade(self, job: EvaluationJob) -> EvaluationReport:
        self._redis.hincrby(BEGUN, job.job_id)
        end = time.monotonic() + random.Random(job.job_id).uniform(*JOB_S)
        while time.monotonic() < end:
            if self._worker.must_stop():
                raise Interrupted
            time.sleep(0.005)
        return report_of(job)


def report_of(job: EvaluationJob) -> EvaluationReport:
    timing = EstimatedTiming(median_us=10, traffic_model="none")
    routine = BaselineTiming(routine="plain", timing=timing, preparation_ms=0)
    device = DeviceDescription(
        kind="interpreter", name="none", architecture="sm_90", num_sms=1, copy_bandwidth_gbs=1, versions={}
    )
    return EvaluationReport(
        job_id=job.job_id,
        device=device,
        baselines=Baselines(default="plain", routines=(routine,)),
        evaluations=tuple(Evaluation(candidate=each, outcome=Rejected(message="not read")) for each in job.candidates),
        csr_bytes=0,
        seconds=0,
    )


def job_named(job_id: str) -> EvaluationJob:
    candidate = Candidate(candidate_id="c", program="none", origin=UserWritten())
    workload = Workload(pattern="0" * 64, operation="spmv", element_type="float32")
    return EvaluationJob(job_id=job_id, workload=workload, candidates=(candidate,), budget_s=60)


def work(address: str, name: str) -> None:
    """A worker process, until SIGTERM."""
    connection = connect(address)
    worker = evaluation_worker(connection, name, LIMITS)
    jobs.install(TimedGrading(worker, connection))
    worker.work(logging_level="CRITICAL")


@dataclass
class Workers:
    """Processes; `events` counts what was done to them."""

    address: str
    chosen: random.Random
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
        name = f"worker-{self.num_events}"
        process = self._context.Process(target=work, args=(self.address, name), daemon=True)
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
    queue, workers, submitted = EvaluationQueue(connection, LIMITS), Workers(address, chosen), list[str]()
    began = time.monotonic()
    try:
        while workers.num_events < num_events:
            if queue.depth() == 0:
                submitted += _submit_wave(queue, len(submitted), chosen)
            _scale(workers, wanted(waiting=queue.depth(), busy=queue.num_running()))
            time.sleep(LOOK_S)
        while len(workers) < LEAST:
            workers.start()
        ends = Counter(_end_of(queue, job_id) for job_id in submitted)
    finally:
        workers.end()
    results = [_num_answers(connection, job_id) for job_id in submitted]
    begun = [int(connection.hget(BEGUN, job_id) or 0) for job_id in submitted]
    return {
        "events": dict(sorted(workers.events.items())),
        "jobs": len(submitted),
        "ended": dict(sorted(ends.items())),
        "answered_once": sum(count == 1 for count in results),
        "answered_twice": sum(count > 1 for count in results),
        "begun_again": sum(count > 1 for count in begun),
        "most_workers": workers.most,
        "seconds": round(time.monotonic() - began, 1),
    }


def _submit_wave(queue: EvaluationQueue, first: int, chosen: random.Random) -> list[str]:
    names = [f"job-{first + number}" for number in range(chosen.randint(1, WAVE))]
    for name in names:
        for _ in range(2 if chosen.random() < SUBMITTED_TWICE_SHARE else 1):
            queue.submit(job_named(name))
    return names


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


def _end_of(queue: EvaluationQueue, job_id: str) -> str:
    try:
        return "lost" if queue.wait(job_id, ANSWER_S) is None else "answered"
    except SparsesmithError as error:
        print(f"{job_id}: {error.message}", file=sys.stderr)
        return "failed"


def _num_answers(connection: Redis, job_id: str) -> int:
    """Reports in RQ's stream of a job's results, which also tells that it was tried again."""
    kept = connection.xrange(f"rq:results:{rq_id_of(job_id)}")
    return sum(int(fields[b"type"]) == Result.Type.SUCCESSFUL.value for _, fields in kept)


def is_right(result: dict[str, Any]) -> bool:
    """Whether every job was answered, once."""
    return bool(result["ended"] == {"answered": result["jobs"]} and result["answered_once"] == result["jobs"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ss-scale-") as folder:
        found = scaled(options.events, options.seed, Path(folder))
    result = {
        "kind": "autoscaler",
        "commit": source_commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "command": f"benchmarks.service.autoscaler --events {options.events} --seed {options.seed}",
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
