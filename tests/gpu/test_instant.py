"""On a GPU: a kernel at once, from the choice to its one check, and the full protocol behind it in the same child."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from benchmarks.measure.instant import candidate_of, named_patterns
from services.evaluator.compiling.compiler import Compiler
from services.evaluator.isolation.sandbox import DeviceProcess, StageLimits
from services.evaluator.jobs import Grader
from services.evaluator.local import HeldMatrix
from services.evaluator.settings import EvaluatorSettings
from sparsesmith.formats.on_device.catalogue import FORMATS
from sparsesmith.operations import Problem
from sparsesmith.tuning.instant import choices
from sparsesmith.tuning.models import CostModels
from sparsesmith_proto.evaluation import EvaluationJob, InstantJob
from sparsesmith_proto.kernel import Checked, Mismatch, Passed
from tests.evaluator.grading_tools import make_candidate
from tests.gpu import programs
from tests.gpu.programs import make_device, make_pattern, make_workload

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).resolve().parents[2]
PATTERNS = named_patterns(2e5)
"""Large enough for the device to build formats."""


@pytest.fixture(scope="module")
def building(gpu: None) -> Iterator[DeviceProcess]:
    """A device that builds formats as one does by default: itself where a kernel is wanted at once."""
    device = partial(make_device, builds_formats=EvaluatorSettings().builds_formats)
    process = DeviceProcess(device, StageLimits(check_s=8, time_s=20))
    process.start()
    yield process
    process.close()


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    with Compiler(2) as compiler:
        compiler.warm_up("sm_90")
        yield compiler


@pytest.mark.parametrize("name", PATTERNS)
def test_the_models_choice_is_checked_at_once_and_passes_the_full_protocol(
    name: str, building: DeviceProcess, compiler: Compiler
) -> None:
    pattern = PATTERNS[name]
    workload = make_workload(pattern)
    cost = CostModels(ROOT / "models" / "cost-h200").expected("spmv")
    candidate = candidate_of(next(choices(Problem(workload, pattern), cost)), "lead")
    grader, held = Grader(building, compiler), HeldMatrix(pattern, None)
    report = grader.hand_out(InstantJob(job_id="now", workload=workload, candidate=candidate), held)
    assert isinstance(report.outcome, Checked), report.outcome
    assert {"upload", "format", "input", "compile_wait", "check"} <= report.stages_ms.keys()
    assert report.outcome.built_on == ("device" if report.outcome.storage_format in FORMATS else "host")
    (evaluation,) = grader.grade(
        EvaluationJob(job_id="later", workload=workload, candidates=(candidate,)), held
    ).evaluations
    assert isinstance(evaluation.outcome, Passed), evaluation.outcome


def test_a_wrong_kernel_is_not_handed_out(sandbox: DeviceProcess, compiler: Compiler) -> None:
    pattern = make_pattern()
    workload = make_workload(pattern)
    job = InstantJob(job_id="now", workload=workload, candidate=make_candidate(programs.ALL_BUT_ONE))
    assert isinstance(Grader(sandbox, compiler).hand_out(job, HeldMatrix(pattern, None)).outcome, Mismatch)
