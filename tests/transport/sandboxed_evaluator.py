"""An evaluation worker as its own process with real grading: compiler, sandbox, device processes that misbehave.

    python sandboxed_evaluator.py ADDRESS NAME FOLDER

FOLDER gets a file `JOB.NAME` when a job begins; the device is wedged while it holds `wedged`, and its memory has as
many errors as the file `errors.NAME` says.
"""

import os
import sys
from pathlib import Path

from services.evaluator import jobs
from services.evaluator.__main__ import DEVICE_GONE
from services.evaluator.compiling.compiler import Compiler
from services.evaluator.isolation.sandbox import DeviceProcess, StageLimits
from services.evaluator.jobs import Grader, GradingService
from services.evaluator.memory_errors import MemoryWatch
from sparsesmith.transport.accounts import Accounts
from sparsesmith.transport.connection import Redis, connect
from sparsesmith.transport.pattern_store import PatternStore
from sparsesmith.transport.quarantine import Quarantine
from sparsesmith.transport.queue import EvaluationWorker, evaluation_worker
from sparsesmith.transport.stream import RewardStream
from sparsesmith_proto.evaluation import EvaluationJob, EvaluationReport
from tests.evaluator.misbehaving_device import WEDGED, MisbehavingFactory
from tests.transport.messages import GPU
from tests.transport.quick_evaluator import LIMITS

START_S = 8.0
CHECK_S = 3.0


class ToldErrors:
    """Counters as a test tells them."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> dict[str, int]:
        return {"corrected": int(self._path.read_text()) if self._path.exists() else 0}


class NotedGrading(GradingService):
    """Says which jobs began."""

    def __init__(self, grader: Grader, connection: Redis, worker: EvaluationWorker, folder: Path) -> None:
        channels = PatternStore(connection), RewardStream(connection), Accounts(connection)
        quarantine = Quarantine(connection)

        def take_out(reason: str) -> None:
            worker.retire()
            quarantine.add(f"GPU-{worker.name}", worker.name, reason)

        memory = MemoryWatch(ToldErrors(folder / f"errors.{worker.name}"), take_out)
        super().__init__(grader, *channels, memory=memory)
        self._worker = worker
        self._folder = folder

    def grade(self, job: EvaluationJob) -> EvaluationReport:
        (self._folder / f"{job.job_id}.{self._worker.name}").touch()
        return super().grade(job)


def main(address: str, name: str, folder: str) -> int:
    os.environ[WEDGED] = str(Path(folder) / "wedged")
    limits = StageLimits(start_s=START_S, check_s=CHECK_S, time_s=CHECK_S)
    process = DeviceProcess(MisbehavingFactory(at_start="start_unless_wedged"), limits)
    connection = connect(address)
    with Compiler(1, timeout_s=120) as compiler:
        process.start()
        worker = evaluation_worker(connection, name, GPU, LIMITS)
        grader = Grader(process, compiler, must_stop=worker.must_stop, retire=worker.retire)
        jobs.install(NotedGrading(grader, connection, worker, Path(folder)))
        worker.work(logging_level="WARNING")
        process.close()
    return DEVICE_GONE if worker.is_retiring else 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
