"""Programs on a GPU behind the sandbox: the good pass, the bad get their outcome, and the next one a clean device."""

import re
import time

import pytest

from services.evaluator.isolation.sandbox import DeviceProcess
from sparsesmith.operations import Problem
from sparsesmith_proto.kernel import Crashed, MeasuredTiming, Mismatch, Passed, Rejected, TimedOut
from tests.gpu import programs
from tests.gpu.programs import csr_program, grade, make_pattern, make_workload

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize(
    "text",
    [
        programs.GOOD,
        programs.WARP_A_ROW,
        programs.SELL_16_BIT,
        programs.COO_TWO_LAUNCHES,
        programs.LARGE_SHARED,
        programs.ALL_SHARED,
        programs.SHARED_IN_TWO_SIZES,
    ],
    ids=[
        "thread a row",
        "warp a row",
        "16-bit sell",
        "two launches",
        "100 KiB of shared memory",
        "227 KiB of shared memory",
        "one kernel launched with 200 KiB and 64 KiB",
    ],
)
def test_a_good_program_passes_with_a_measured_time(text: str, sandbox: DeviceProcess) -> None:
    pattern = make_pattern()
    outcome = grade(text, workload := make_workload(pattern), sandbox.open(Problem(workload, pattern)))
    assert isinstance(outcome, Passed), outcome
    assert isinstance(outcome.timing, MeasuredTiming)
    assert 0.3 < outcome.timing.median_us < 500
    assert outcome.timing.low_us <= outcome.timing.median_us <= outcome.timing.high_us
    assert 0 < outcome.worst_error < 1e-5
    assert outcome.num_inputs == 5


def test_float64_is_held_to_its_own_precision(sandbox: DeviceProcess) -> None:
    pattern = make_pattern()
    workload = make_workload(pattern, element_type="float64")
    workbench = sandbox.open(Problem(workload, pattern))
    passed = grade(csr_program("y[row] = sum;", "float64"), workload, workbench)
    assert isinstance(passed, Passed), passed
    assert passed.worst_error < 1e-14
    assert isinstance(grade(csr_program("y[row] = (float)sum;", "float64"), workload, workbench), Mismatch)


@pytest.mark.parametrize("num_dense_cols", [1, 8, 33, 128])
def test_a_good_spmm_passes_at_any_width(num_dense_cols: int, sandbox: DeviceProcess) -> None:
    pattern = make_pattern(num_rows=700, num_cols=900)
    workload = make_workload(pattern, operation="spmm", num_dense_cols=num_dense_cols)
    outcome = grade(programs.SPMM, workload, sandbox.open(Problem(workload, pattern)))
    assert isinstance(outcome, Passed), outcome


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (programs.BEHIND_Y, "wrote outside its output"),
        (programs.BEFORE_Y, "wrote outside its output"),
        (programs.ZERO, "entries are wrong"),
        (programs.ALL_BUT_ONE, "not written or is NaN"),
        (programs.STALE, "entries are wrong"),
        (programs.NOT_CLEARED, "entries are wrong"),
        (programs.SLOPPY, "entries are wrong"),
    ],
    ids=[
        "behind y", "before y", "zeros", "one row left out", "stale output", "adds to what was there", "too imprecise",
    ],
)  # fmt: skip
def test_a_wrong_program_is_a_mismatch_that_says_why_and_the_next_passes(
    text: str, expected: str, sandbox: DeviceProcess
) -> None:
    pattern = make_pattern()
    workload = make_workload(pattern)
    workbench = sandbox.open(Problem(workload, pattern))
    outcome = grade(text, workload, workbench)
    assert isinstance(outcome, Mismatch), outcome
    assert expected in outcome.message
    assert isinstance(grade(programs.GOOD, workload, workbench), Passed)


@pytest.mark.parametrize(
    ("text", "argument"),
    [(programs.INTO_X, "x"), (programs.INTO_VALUES, "values")],
    ids=["into x", "into the values"],
)
def test_a_program_that_writes_to_its_inputs_is_rejected_before_it_runs(
    text: str, argument: str, sandbox: DeviceProcess
) -> None:
    pattern = make_pattern()
    workload = make_workload(pattern)
    workbench = sandbox.open(Problem(workload, pattern))
    outcome = grade(text, workload, workbench)
    assert isinstance(outcome, Rejected), outcome
    assert re.search(rf"the compiled program also writes to: {argument} \(line \d+\)$", outcome.message)
    assert isinstance(grade(programs.GOOD, workload, workbench), Passed)


@pytest.mark.parametrize(
    "text",
    [programs.WILD_POINTER, programs.MISALIGNED, programs.TRAP],
    ids=["wild pointer", "misaligned store", "trap"],
)
def test_a_program_that_destroys_the_context_is_a_crash_and_the_next_passes(text: str, sandbox: DeviceProcess) -> None:
    pattern = make_pattern()
    workload = make_workload(pattern)
    workbench = sandbox.open(Problem(workload, pattern))
    outcome = grade(text, workload, workbench)
    assert isinstance(outcome, Crashed), outcome
    assert isinstance(grade(programs.GOOD, workload, workbench), Passed)


def test_an_endless_program_is_killed_in_time_and_gives_the_gpu_back(sandbox: DeviceProcess) -> None:
    pattern = make_pattern()
    workload = make_workload(pattern)
    workbench = sandbox.open(Problem(workload, pattern))
    started = time.monotonic()
    outcome = grade(programs.ENDLESS, workload, workbench)
    assert isinstance(outcome, TimedOut), outcome
    assert time.monotonic() - started < 60
    after = grade(programs.GOOD, workload, workbench)
    assert isinstance(after, Passed), after
    assert isinstance(after.timing, MeasuredTiming)
    assert after.timing.median_us < 500


def test_a_program_that_keeps_state_between_launches_is_rejected(sandbox: DeviceProcess) -> None:
    pattern = make_pattern()
    workload = make_workload(pattern)
    outcome = grade(programs.REMEMBERS, workload, sandbox.open(Problem(workload, pattern)))
    assert isinstance(outcome, Rejected), outcome
    assert "outlive a launch" in outcome.message
