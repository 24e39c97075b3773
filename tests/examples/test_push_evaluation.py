"""The script for third parties, run as they would: from outside, on a real Valkey, with a real evaluator's process."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparsesmith.runtime.embedded_valkey import EmbeddedValkey
from sparsesmith.runtime.processes import start, stop
from sparsesmith.transport.connection import connect
from sparsesmith.transport.queue import living_workers
from sparsesmith_proto.evaluation import EvaluationJob, EvaluationReport
from tests.transport.workers import ROOT, wait_until

pytestmark = [pytest.mark.stack, pytest.mark.timeout(600)]

EXAMPLES = ROOT / "examples"
SCRIPT = EXAMPLES / "push_evaluation.py"
KERNEL = EXAMPLES / "csr_rows.cu"
MATRIX = EXAMPLES / "jagmesh7.mtx"


@pytest.fixture(scope="module")
def address_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Of an embedded Valkey, as `sparsesmith up` leaves it; an evaluator serves its queue."""
    folder = tmp_path_factory.mktemp("state") / "valkey"
    valkey = EmbeddedValkey(folder)
    valkey.start()
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "proto")]),
        "SPARSESMITH_REDIS_URL": valkey.address,
        "SPARSESMITH_EVALUATOR_DEVICE": "interpreter",
        "SPARSESMITH_EVALUATOR_COMPILE_WORKERS": "1",
    }
    log = folder / "evaluator.log"
    evaluator = start([sys.executable, "-m", "services.evaluator"], log, environment)
    wait_until(lambda: living_workers(connect(valkey.address)) or evaluator.poll() is not None, 180)
    assert evaluator.poll() is None, log.read_text()
    yield folder / "address"
    stop(evaluator, 30)
    valkey.stop()


def push(address_file: Path, *words: str, kernel: Path = KERNEL) -> "subprocess.CompletedProcess[str]":
    """The script, where nothing of ours can be imported."""
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}
    command = [sys.executable, "-P", str(SCRIPT), address_file.read_text().strip(), str(kernel), str(MATRIX), *words]
    return subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True, check=False, timeout=400)


def test_a_program_that_is_right_passes_beside_the_librarys_routines(address_file: Path) -> None:
    ended = push(address_file)
    assert ended.returncode == 0, ended.stderr
    first, *others = ended.stdout.splitlines()
    assert first.startswith("passed on PTX interpreter: ") and first.endswith(" us estimated")
    assert {line.split(":")[0] for line in others} == {"plain_csr_scalar", "plain_csr_vector", "plain_coo_atomic"}


def test_the_whole_report_is_a_message_of_the_contract(address_file: Path) -> None:
    report = EvaluationReport.model_validate_json(push(address_file, "--json").stdout)
    (evaluation,) = report.evaluations
    assert evaluation.candidate.program == KERNEL.read_text() and evaluation.outcome.outcome == "passed"


def test_a_program_that_is_wrong_is_told_so(address_file: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.cu"
    wrong.write_text(KERNEL.read_text().replace("y[row] = sum", "y[row] = sum + 1"))
    ended = push(address_file, kernel=wrong)
    assert ended.returncode == 1 and ended.stdout.startswith("mismatch: ")


@pytest.mark.parametrize(
    ("budget_s", "reason"),
    [("5000", "budget_s\n  Input should be less than or equal to 3600"), ("100000", "timeout is 100300 s: 0 to 86400")],
)
def test_a_job_that_fails_ends_with_its_reason(budget_s: str, reason: str, address_file: Path) -> None:
    ended = push(address_file, "--budget", budget_s)
    assert ended.returncode == 2 and ended.stdout == ""
    assert reason in ended.stderr


def test_the_job_on_the_page_is_one(documented: dict[str, Any]) -> None:
    EvaluationJob.model_validate(documented)


@pytest.fixture
def documented() -> dict[str, Any]:
    """The job of docs/queue.md."""
    text = (ROOT / "docs" / "queue.md").read_text()
    found: dict[str, Any] = json.loads(text.split("```json\n")[1].split("```")[0])
    return found
