"""An evaluation worker as its own process, whose grading is quick or, for jobs named `hold-...`, ends when it is told.

    python quick_evaluator.py ADDRESS NAME FOLDER [GPU]

FOLDER gets a file `JOB.NAME` when a job begins; a held job goes on when there is a file `release`.
"""

import sys
import time
from pathlib import Path

from services.evaluator import jobs
from services.evaluator.jobs import GradingService
from sparsesmith.errors import LimitExceeded
from sparsesmith.transport.connection import connect
from sparsesmith.transport.gpu_kinds import GpuKind
from sparsesmith.transport.queue import EvaluationWorker, QueueLimits, evaluation_worker
from sparsesmith_proto.evaluation import EvaluationJob, EvaluationReport
from sparsesmith_proto.kernel import DeviceDescription
from tests.transport.messages import DEVICE, device_named, report_for

LIMITS = QueueLimits(
    job_grace_s=1,
    max_attempts=3,
    worker_ttl_s=20,
    maintenance_interval_s=1,
    heartbeat_ttl_s=2,
    taken_grace_s=1.0,
    abandoned_check_s=0.3,
)


class Interrupted(Exception):
    """The worker told the job to stop."""


class QuickGrading(GradingService):
    """Answers at once what needs no device."""

    def __init__(self, worker: EvaluationWorker, folder: Path, device: DeviceDescription) -> None:
        self._worker = worker
        self._folder = folder
        self._device = device

    def grade(self, job: EvaluationJob) -> EvaluationReport:
        if job.job_id.startswith("hold-"):
            told = self._folder / f"{job.job_id}.telling"
            told.write_text(f"{self._worker.waited_s()} {self._worker.others_wait()}")
            told.rename(self._folder / f"{job.job_id}.waited")
        (self._folder / f"{job.job_id}.{self._worker.name}").touch()
        if job.job_id.startswith("fail-"):
            raise RuntimeError("the device is gone")
        if job.job_id.startswith("huge-"):
            with (self._folder / "attempts").open("a") as attempts:
                attempts.write("x")
            raise LimitExceeded("num_rows is 9: at most 5 on this device", field="num_rows", value=9, limit=5)
        while job.job_id.startswith("hold-") and not (self._folder / "release").exists():
            if self._worker.must_stop():
                raise Interrupted
            time.sleep(0.01)
        return report_for(job, self._device)


def main(address: str, name: str, folder: str, gpu: str = "") -> None:
    device = device_named(gpu) if gpu else DEVICE
    worker = evaluation_worker(connect(address), name, GpuKind.of(device), LIMITS)
    jobs.install(QuickGrading(worker, Path(folder), device))
    worker.work(logging_level="WARNING")


if __name__ == "__main__":
    main(*sys.argv[1:])
