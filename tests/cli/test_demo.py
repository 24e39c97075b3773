"""What the demo shows, against a real generator; evaluators answer with the test's estimates, as without a GPU."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from sparsesmith.cli.known import known_result
from sparsesmith.cli.local_stack import DEMO, demonstrate
from sparsesmith.client import Client
from sparsesmith.matrix.files import read_pattern
from sparsesmith_proto.evaluation import EvaluationReport
from sparsesmith_proto.kernel import Workload
from tests.generator.live_service import Evaluators, live_service
from tests.generator.reports import make_baselines, make_device, make_estimate, make_passed

ROOT = Path(__file__).resolve().parents[2]
MATRIX = ROOT / "examples" / "bcsstk13.mtx"


class Estimating(Evaluators):
    """Evaluators without a GPU."""

    def __init__(self) -> None:
        super().__init__(make_passed(make_estimate(5)), seconds=0.3)

    def wait(self, job_id: str, timeout_s: float) -> EvaluationReport | None:
        report = super().wait(job_id, timeout_s)
        device = make_device().model_copy(update={"kind": "interpreter", "name": "PTX interpreter"})
        changes = {"device": device, "baselines": make_baselines(make_estimate(10), make_estimate(12))}
        return None if report is None else report.model_copy(update=changes)


@pytest.fixture
def evaluators() -> Evaluators:
    return Estimating()


@pytest.fixture
def shown(redis_url: str, evaluators: Evaluators) -> Iterator[str]:
    """What the demo prints into a file."""
    with live_service(redis_url, evaluators) as http, Client(str(http.base_url)) as client:
        console = Console(width=80)
        with console.capture() as capture:
            demonstrate(console, client, MATRIX)
        yield capture.get()


def test_the_demo_ends_by_its_candidates_not_by_the_clock() -> None:
    """However busy the machine: two runs search the same."""
    assert (DEMO.search, DEMO.budget.candidates) == ("families", 24)
    assert DEMO.budget.seconds == type(DEMO.budget).model_fields["seconds"].metadata[1].le


def test_progress_then_the_verdict_then_the_kernel(shown: str) -> None:
    lines = shown.splitlines()
    verdict = next(number for number, line in enumerate(lines) if line.startswith("verdict "))
    program = next(number for number, line in enumerate(lines) if line.startswith("//@ format"))
    assert any(re.match(r"\[ +\d+ s\] graded \d+ of 24 candidates", line) for line in lines[:verdict])
    assert lines[verdict].startswith("verdict    ESTIMATED, for no GPU is here: a kernel, 2.00x faster than")
    assert lines[verdict + 1].startswith("break-even repaid after ")
    assert lines[verdict + 2].startswith("elsewhere  MEASURED on an NVIDIA H200 for this very question (bcsstk13)")
    assert verdict < program


def test_the_measured_result_is_that_of_the_question(shown: str) -> None:
    pattern = read_pattern(MATRIX, MATRIX.name)
    workload = Workload(pattern=pattern.digest, operation="spmv", element_type="float32")
    known = known_result(workload)
    assert known is not None
    assert known.describe() in shown
    assert known_result(workload.model_copy(update={"element_type": "float64"})) is None


def test_a_server_without_a_policy_says_so_and_the_demo_goes_on(shown: str) -> None:
    assert "policy     wrote nothing: search=sample needs a policy" in shown
