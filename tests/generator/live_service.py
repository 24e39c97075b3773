"""A generator that listens on a port, on a real Valkey, with evaluators as a test wants them."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from services.generator.channels import Channels
from services.generator.http.app import create_app
from services.generator.http.server import server_config
from services.generator.service import Service
from services.generator.settings import GeneratorSettings
from sparsesmith.errors import NotFound
from sparsesmith.transport.connection import connect
from sparsesmith.transport.gpu_kinds import GpuKind, GpuKinds
from sparsesmith.transport.job_store import JobStore
from sparsesmith.transport.shelf import ShelfLimits
from sparsesmith.transport.traces import Traces
from sparsesmith_proto.evaluation import EvaluationJob, EvaluationReport, FirstOutcome, InstantJob, InstantReport
from sparsesmith_proto.kernel import DeviceDescription, Outcome
from tests.generator.reports import instant_report_for, make_checked, make_passed, make_timing, report_for


class Evaluators:
    """A work queue whose every candidate has the same outcome, after `seconds`; held back while `held` is set."""

    def __init__(self, outcome: Outcome | None = None, seconds: float = 0.0) -> None:
        self.outcome = make_passed(make_timing(5)) if outcome is None else outcome
        self.seconds = seconds
        self.released = threading.Event()
        self.released.set()
        self.jobs: dict[str, tuple[EvaluationJob, float]] = {}
        self.cancelled: set[str] = set()
        self.instant_jobs: dict[str, InstantJob] = {}
        self.first_outcome: FirstOutcome = make_checked()
        """Of every kernel that is wanted at once."""
        self.outcomes_before: list[FirstOutcome] = []
        """Of the first of them, in turn, in its place."""

    def submit(self, job: EvaluationJob | InstantJob) -> None:
        if isinstance(job, InstantJob):
            self.instant_jobs.setdefault(job.job_id, job)
        else:
            self.jobs.setdefault(job.job_id, (job, time.monotonic()))

    def wait(self, job_id: str, timeout_s: float) -> EvaluationReport | None:
        if job_id not in self.jobs:
            raise NotFound(job_id)
        job, submitted = self.jobs[job_id]
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            if self.released.is_set() and time.monotonic() >= submitted + self.seconds:
                return report_for(job, self.outcome)
            time.sleep(0.005)
        return None

    def wait_instant(self, job_id: str, timeout_s: float) -> InstantReport | None:
        """Never held back."""
        outcome = self.outcomes_before.pop(0) if self.outcomes_before else self.first_outcome
        return instant_report_for(self.instant_jobs[job_id], outcome)

    def cancel(self, job_id: str) -> None:
        self.cancelled.add(job_id)


def announce(redis_url: str, *devices: DeviceDescription) -> None:
    """An evaluator with a fresh heartbeat for each."""
    connection = connect(redis_url)
    for number, device in enumerate(devices):
        kind = GpuKind.of(device)
        GpuKinds(connection).tell(kind)
        connection.hset(f"rq:worker:w{number}", "name", f"w{number}")
        connection.sadd(f"rq:workers:{kind.queue}", f"rq:worker:w{number}")


@contextmanager
def live_service(
    redis_url: str,
    evaluators: Evaluators,
    listen_port: int = 0,
    jobs: JobStore | None = None,
    traces: Traces | None = None,
    **settings: Any,
) -> Iterator[httpx.Client]:
    """A client of a service without a policy. Leaving stops the service as SIGTERM does. `jobs`, `traces`: instead of
    its own."""
    defaults = {"redis_url": redis_url, "policy_dir": None, "exchange_dir": Path(), "stop_grace_s": 2}
    chosen = GeneratorSettings(**{**defaults, **settings})
    channels = Channels(redis_url, ShelfLimits(max_bytes=chosen.max_stored_bytes))
    channels.evaluations = evaluators
    channels.jobs = jobs or channels.jobs
    service = Service(chosen, channels, traces)
    config = server_config(create_app(service), chosen, service.metrics)
    config.port = listen_port
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the service did not start"
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
            yield client
    finally:
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive(), "the service did not stop"
