"""The sandbox's parent survives whatever a kernel does to the device's process; the next kernel finds a clean one."""

import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from services.evaluator.checking.correctness import Correct
from services.evaluator.isolation.sandbox import DeviceProcess, SandboxedWorkbench, StageLimits
from services.evaluator.isolation.spares import SpareLimits
from services.evaluator.isolation.workbench import Built, FinalTimes
from sparsesmith.errors import LimitExceeded, Unavailable
from sparsesmith.matrix.pattern import Pattern, pattern_from_indices
from sparsesmith.operations import Problem
from sparsesmith.program.program import KernelProgram, parse_program
from sparsesmith_proto.kernel import Crashed, MeasuredTiming, Mismatch, TimedOut, Workload
from tests.evaluator.misbehaving_device import (
    BINARY,
    MAX_NNZ,
    MisbehavingFactory,
    PreloadedFactory,
    measured,
    program_text,
)

LIMITS = StageLimits(start_s=60, open_s=20, baselines_s=20, build_s=20, draw_s=20, check_s=1, time_s=1)


def make_pattern(num_rows: int = 16) -> Pattern:
    return pattern_from_indices(num_rows, num_rows, np.arange(num_rows), np.arange(num_rows))


def make_workload(pattern: Pattern) -> Workload:
    return Workload(pattern=pattern.digest, operation="spmv", element_type="float32")


def make_program(behaviour: str = "right") -> KernelProgram:
    return parse_program(program_text(behaviour), "spmv", "float32")


def check(workbench: SandboxedWorkbench, behaviour: str, kernel_id: str = "kernel") -> object:
    return workbench.check(kernel_id, make_program(behaviour), BINARY)


def child_pid(process: DeviceProcess) -> int:
    child = process._running_child()
    return int(child.description.versions["pid"])


@pytest.fixture(scope="module")
def shared_process() -> Iterator[DeviceProcess]:
    process = DeviceProcess(MisbehavingFactory(), LIMITS, spares=SpareLimits(most=4))
    yield process
    process.close()


@pytest.fixture
def workbench(shared_process: DeviceProcess) -> SandboxedWorkbench:
    pattern = make_pattern()
    return shared_process.open(Problem(make_workload(pattern), pattern))


def test_a_right_kernel_passes_with_five_inputs(workbench: SandboxedWorkbench) -> None:
    verdict = check(workbench, "right")
    assert isinstance(verdict, Correct)
    assert verdict.num_inputs == 5
    assert workbench.time("kernel") == measured(5)


def test_a_wrong_kernel_is_a_mismatch_and_keeps_its_process(workbench: SandboxedWorkbench) -> None:
    before = child_pid(workbench._process)
    verdict = check(workbench, "wrong")
    assert isinstance(verdict, Mismatch)
    assert "of 16 entries are wrong" in verdict.message
    assert child_pid(workbench._process) == before


@pytest.mark.parametrize(
    ("behaviour", "outcome", "words"),
    [
        ("die", Crashed, "ended by SIGKILL"),
        ("segfault", Crashed, "ended by SIGSEGV"),
        ("lose", Crashed, "an illegal memory access"),
        ("raise", Crashed, "RuntimeError: a defect of our own"),
        ("hang", TimedOut, "not done within 1 s"),
        ("overrun", Mismatch, "wrote outside its output"),
        ("overwrite", Mismatch, "changed one of its inputs"),
        ("corrupt", Mismatch, "into the inputs of other runs"),
    ],
)
def test_what_ends_the_process_is_an_outcome_and_the_next_kernel_gets_a_clean_one(
    workbench: SandboxedWorkbench, behaviour: str, outcome: type[Crashed | Mismatch | TimedOut], words: str
) -> None:
    before = child_pid(workbench._process)
    verdict = check(workbench, behaviour)
    assert isinstance(verdict, outcome)
    assert words in verdict.message
    assert isinstance(check(workbench, "right"), Correct)
    assert child_pid(workbench._process) != before


def test_a_kernel_that_does_nothing_when_repeated_is_found_after_timing(workbench: SandboxedWorkbench) -> None:
    assert isinstance(check(workbench, "lazy"), Correct)
    timing = workbench.time("kernel")
    assert isinstance(timing, Mismatch)
    assert "run again after timing" in timing.message


def test_finalists_are_loaded_again_after_another_kernel_ended_their_process(workbench: SandboxedWorkbench) -> None:
    assert isinstance(check(workbench, "right 3.5", "first"), Correct)
    assert isinstance(check(workbench, "die", "second"), Crashed)
    first = measured(3.5).model_copy(update={"is_final": True})
    assert workbench.retime(["first"], "library") == FinalTimes({"first": first}, measured(9))


def test_a_kernel_that_dies_while_it_is_timed_is_reported_as_crashed(workbench: SandboxedWorkbench) -> None:
    assert isinstance(check(workbench, "die_timing"), Correct)
    assert isinstance(workbench.time("kernel"), Crashed)


def test_a_workload_beyond_the_device_is_refused_and_the_process_goes_on(shared_process: DeviceProcess) -> None:
    large = make_pattern(MAX_NNZ + 1)
    with pytest.raises(LimitExceeded, match=f"nnz is {MAX_NNZ + 1}") as refusal:
        shared_process.open(Problem(make_workload(large), large)).baselines()
    assert refusal.value.field == "nnz"
    small = make_pattern()
    assert shared_process.open(Problem(make_workload(small), small)).baselines().default == "library"


def test_a_second_batch_on_the_same_workload_draws_anew_and_forgets_the_kernels(shared_process: DeviceProcess) -> None:
    pattern = make_pattern()
    first = shared_process.open(Problem(make_workload(pattern), pattern))
    assert isinstance(check(first, "right"), Correct)
    second = shared_process.open(Problem(make_workload(pattern), pattern))
    assert isinstance(check(second, "right"), Correct)
    assert isinstance(second.time("kernel"), MeasuredTiming)


@contextmanager
def opened(factory: MisbehavingFactory, limits: StageLimits) -> Iterator[SandboxedWorkbench]:
    pattern = make_pattern()
    process = DeviceProcess(factory, limits)
    try:
        yield process.open(Problem(make_workload(pattern), pattern))
    finally:
        process.close()


def test_inputs_that_take_longer_than_a_check_are_no_fault_of_the_kernel() -> None:
    with opened(MisbehavingFactory(hold_s=0.3), LIMITS) as workbench:
        assert isinstance(check(workbench, "right"), Correct)
        started = time.monotonic()
        assert isinstance(check(workbench, "right", "second"), Correct)
        assert time.monotonic() - started < 1
        assert isinstance(check(workbench, "die", "third"), Crashed)
        assert isinstance(check(workbench, "right", "fourth"), Correct)


def test_inputs_that_cannot_be_drawn_in_time_make_the_device_unavailable() -> None:
    limits = replace(LIMITS, draw_s=0.5)
    with (
        opened(MisbehavingFactory(hold_s=0.3), limits) as workbench,
        pytest.raises(Unavailable, match=r"drawing the inputs failed: draw: not done within 0.5 s"),
    ):
        check(workbench, "right")


@pytest.mark.parametrize("at_start", ["die", "raise"])
def test_a_device_that_does_not_start_is_unavailable(at_start: str) -> None:
    process = DeviceProcess(MisbehavingFactory(at_start), LIMITS)
    try:
        with pytest.raises(Unavailable, match="the device does not start"):
            process.start()
    finally:
        process.close()


def wait_for_spares(process: DeviceProcess) -> None:
    """Until every spare child is up, and warm where it is to be."""
    assert process._spares is not None
    process._spares.wait(60)


def test_the_second_kernel_that_ends_its_process_finds_the_next_one_with_its_inputs_drawn() -> None:
    pattern = make_pattern()
    process = DeviceProcess(MisbehavingFactory(), LIMITS, spares=SpareLimits(most=4))
    try:
        workbench = process.open(Problem(make_workload(pattern), pattern))
        assert isinstance(check(workbench, "right"), Correct)
        wait_for_spares(process)
        for kernel_id in ("first", "second"):
            assert isinstance(check(workbench, "die", kernel_id), Crashed)
            before = process.num_started
            child = process._running_child()
            assert process.num_started == before + 1
            assert (child.opening is workbench._opening) == child.has_drawn == (kernel_id == "second")
            assert isinstance(check(workbench, "right", f"after {kernel_id}"), Correct)
            wait_for_spares(process)
    finally:
        process.close()


def test_a_spare_child_that_was_warm_for_one_batch_draws_anew_for_the_next() -> None:
    pattern = make_pattern()
    process = DeviceProcess(MisbehavingFactory(), LIMITS, spares=SpareLimits(most=4))
    try:
        workbench = process.open(Problem(make_workload(pattern), pattern))
        assert isinstance(check(workbench, "die", "first"), Crashed)
        assert isinstance(check(workbench, "right", "second"), Correct)
        wait_for_spares(process)
        workbench = process.open(Problem(make_workload(pattern), pattern))
        assert isinstance(check(workbench, "die", "third"), Crashed)
        child = process._running_child()
        assert child.workload == workbench._opening.workload
        assert child.opening is not workbench._opening
        assert isinstance(check(workbench, "right", "fourth"), Correct)
    finally:
        process.close()


def test_a_batch_behind_one_whose_kernels_ended_children_begins_with_warm_ones() -> None:
    pattern, other = make_pattern(), make_pattern(24)
    process = DeviceProcess(MisbehavingFactory(), LIMITS, spares=SpareLimits(most=4))
    try:
        workbench = process.open(Problem(make_workload(pattern), pattern))
        for kernel_id in ("first", "second"):
            assert isinstance(check(workbench, "die", kernel_id), Crashed)
        assert isinstance(check(workbench, "right"), Correct)
        wait_for_spares(process)
        workbench = process.open(Problem(make_workload(other), other))
        workbench.build_ahead([make_program()], 1.0)
        wait_for_spares(process)
        assert isinstance(check(workbench, "die", "third"), Crashed)
        child = process._running_child()
        assert child.opening is workbench._opening and child.has_drawn
        assert isinstance(check(workbench, "right", "fourth"), Correct)
    finally:
        process.close()


def test_spares_are_as_many_as_the_batch_before_needed() -> None:
    pattern = make_pattern()
    process = DeviceProcess(MisbehavingFactory(), LIMITS, spares=SpareLimits(most=2))
    try:
        for num_dying, num_wanted in ((3, 1), (0, 2), (0, 1)):
            workbench = process.open(Problem(make_workload(pattern), pattern))
            assert process._demand.number == num_wanted
            for number in range(num_dying):
                assert isinstance(check(workbench, "die", f"{number}"), Crashed)
            assert isinstance(check(workbench, "right"), Correct)
            assert process._spares is not None and len(process._spares._coming) <= 2
    finally:
        process.close()


def test_a_spare_child_builds_formats_of_programs_that_are_still_to_come() -> None:
    pattern = make_pattern()
    process = DeviceProcess(MisbehavingFactory(), LIMITS, spares=SpareLimits(most=2))
    try:
        workbench = process.open(Problem(make_workload(pattern), pattern))
        programs = [make_program(f"right {number}.5") for number in range(3)]
        workbench.build_ahead(programs, 1.0)
        assert isinstance(workbench.build(programs[1]), Built)
        (ahead, _), _ = process._warmth.calls
        assert ahead.arguments[0] == (programs[0], programs[2])
    finally:
        process.close()


def test_no_child_is_left_when_a_process_with_spares_is_closed() -> None:
    pattern, others = make_pattern(), multiprocessing.active_children()
    process = DeviceProcess(MisbehavingFactory(), LIMITS, spares=SpareLimits(most=4))
    workbench = process.open(Problem(make_workload(pattern), pattern))
    assert isinstance(check(workbench, "die", "first"), Crashed)
    assert isinstance(check(workbench, "right", "second"), Correct)
    children = [child for child in multiprocessing.active_children() if child not in others]
    assert len(children) >= 2
    process.close()
    for child in children:
        child.join(10)
    assert not any(child.is_alive() for child in children)


@pytest.mark.skipif(sys.platform != "linux", reason="children are forked on Linux alone")
def test_a_child_that_is_forked_from_what_has_imported_its_device_grades_and_is_replaced_like_any_other() -> None:
    pattern = make_pattern()
    process = DeviceProcess(PreloadedFactory(), LIMITS, spares=SpareLimits(most=4))
    try:
        workbench = process.open(Problem(make_workload(pattern), pattern))
        assert isinstance(check(workbench, "right"), Correct)
        first = child_pid(process)
        status = Path(f"/proc/{first}/status").read_text(encoding="utf-8")
        assert f"PPid:\t{os.getpid()}\n" not in status
        assert isinstance(check(workbench, "lose", "lost"), Crashed)
        assert isinstance(check(workbench, "right", "after"), Correct)
        assert child_pid(process) != first
    finally:
        process.close()
