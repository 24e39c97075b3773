"""The client on the real stack: generator, evaluator (PTX interpreter), trainer, Valkey. No part is stood in for."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparsesmith.client import Client
from sparsesmith.runtime.ports import free_port
from sparsesmith.runtime.stack import Stack, StackOptions
from sparsesmith_proto.api import Budget, TuningOptions
from sparsesmith_proto.kernel import CompileFailed, EstimatedTiming, Passed
from tests.artifacts.answers import CSR_PROGRAM, make_matrix

pytestmark = [pytest.mark.stack, pytest.mark.timeout(600)]

ROOT = Path(__file__).resolve().parents[2]
MATRIX = make_matrix(200, 150, 0.05)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    environment = {
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "proto")]),
        "SPARSESMITH_EVALUATOR_DEVICE": "interpreter",
        "SPARSESMITH_EVALUATOR_COMPILE_WORKERS": "1",
        "SPARSESMITH_GENERATOR_POLICY_DIR": "no-policy",
        "SPARSESMITH_TRAINER_POLICY_DIR": "no-policy",
    }
    options = StackOptions(tmp_path_factory.mktemp("state"), port=free_port(), environment=environment)
    with Stack(options) as stack, Client(stack.url) as client:
        end = time.monotonic() + 120
        while not client.is_ready():
            assert time.monotonic() < end, stack.log_file("generator").read_text()[-3000:]
            time.sleep(0.2)
        yield client


def test_a_kernel_is_found_and_is_graded_again_as_correct(client: Client) -> None:
    kernel = client.tune(MATRIX, TuningOptions(budget=Budget(candidates=6, seconds=120)))
    assert kernel.report.device.kind == "interpreter"
    assert kernel.report.search.outcomes.get("passed", 0) >= 1
    answer = kernel.report.answer
    best = answer.best if answer.kind == "kernel" else answer.closest
    assert best is not None
    outcome = client.grade(best.candidate.program, MATRIX).evaluation.outcome
    assert isinstance(outcome, Passed)
    assert isinstance(outcome.timing, EstimatedTiming)


def test_a_program_of_ones_own_is_graded(client: Client) -> None:
    assert isinstance(client.grade(CSR_PROGRAM, MATRIX).evaluation.outcome, Passed)
    broken = client.grade(CSR_PROGRAM.replace("sum = 0", "sum = zero"), MATRIX).evaluation.outcome
    assert isinstance(broken, CompileFailed)
    assert "zero" in broken.log


def test_a_kernel_is_tuned_for_fixed_values(client: Client) -> None:
    ones = MATRIX.copy()
    ones.data[:] = 1
    options = TuningOptions(budget=Budget(candidates=6, seconds=120), values="fixed", search="families")
    report = client.tune(ones, options).report
    assert report.workload.values is not None
    assert report.search.outcomes.get("passed", 0) >= 1
