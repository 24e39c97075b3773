"""The correctness protocol, with kernels that are Python functions."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from services.evaluator.checking.correctness import Correct, HostSeal, MemoryDamaged, check, check_as_timed, judge
from services.evaluator.checking.draws import draw, system_generator
from services.evaluator.device import Draw, Ran, RunFailure, Starts
from sparsesmith.matrix.pattern import Pattern, pattern_from_scipy
from sparsesmith.operations import Problem
from sparsesmith_proto.kernel import EstimatedTiming, Mismatch, TimedOut, Workload

PATTERN = pattern_from_scipy(scipy.sparse.random(50, 30, 0.3, random_state=3))
DRAW_NAMES = ("mixed", "one_hot", "cancelling", "wide_range", "integers")

Multiply = Callable[[Pattern, Draw, Any], Any]
"""(pattern, draw, y at the start) -> y at the end."""


class PythonKernel:
    """A loaded kernel whose device code is a function; `replayed` is what it does once it was timed."""

    def __init__(self, multiply: Multiply, replayed: Multiply | None = None) -> None:
        self._multiply = multiply
        self._replayed = replayed or multiply

    def run(self, draw: Draw, start: Starts | None) -> Ran | RunFailure:
        nothing = {draw.output: np.full(draw.reference.shape, np.nan)}
        return self._run(self._multiply, draw, nothing if start is None else start)

    def time(self, draw: Draw, vouched_to_us: float = math.inf) -> EstimatedTiming:
        return EstimatedTiming(median_us=1, traffic_model="none")

    def time_on(self, draw: Draw) -> EstimatedTiming:
        return self.time(draw)

    def replay(self, draw: Draw, start: Starts) -> Ran | RunFailure:
        return self._run(self._replayed, draw, start)

    def close(self) -> None:
        pass

    def _run(self, multiply: Multiply, draw: Draw, start: Starts) -> Ran:
        output = multiply(PATTERN, draw, start[draw.output].astype(draw.dense.dtype))
        return Ran({draw.output: output}, guards_intact=True, inputs_intact=True)


def make_draws(num_dense_cols: int = 1) -> list[Draw]:
    workload = Workload(
        pattern=PATTERN.digest,
        operation="spmv" if num_dense_cols == 1 else "spmm",
        element_type="float32",
        num_dense_cols=num_dense_cols,
    )
    return [draw(name, Problem(workload, PATTERN), system_generator()) for name in DRAW_NAMES]


def right(pattern: Pattern, held: Draw, y: Any) -> Any:
    return pattern.to_scipy(held.values) @ held.dense


def adds_to_what_is_there(pattern: Pattern, held: Draw, y: Any) -> Any:
    return np.nan_to_num(y, nan=0.0) + right(pattern, held, y)


def leaves_a_row_out(pattern: Pattern, held: Draw, y: Any) -> Any:
    result = right(pattern, held, y)
    result[17] = y[17]
    return result


def writes_zeros(pattern: Pattern, held: Draw, y: Any) -> Any:
    return np.zeros_like(y)


def rounds_to_half_precision(pattern: Pattern, held: Draw, y: Any) -> Any:
    values = np.clip(held.values, -6e4, 6e4).astype(np.float16).astype(np.float32)
    return pattern.to_scipy(values) @ held.dense


def skips_the_last_nonzero(pattern: Pattern, held: Draw, y: Any) -> Any:
    values = held.values.copy()
    values[-1] = 0
    return pattern.to_scipy(values) @ held.dense


def keeps_what_looks_done(pattern: Pattern, held: Draw, y: Any) -> Any:
    return right(pattern, held, y) if np.isnan(y).any() else y


@pytest.mark.parametrize("num_dense_cols", [1, 4])
def test_a_right_kernel_is_correct_and_its_worst_error_is_that_of_rounding(num_dense_cols: int) -> None:
    verdict = check(PythonKernel(right), make_draws(num_dense_cols), 5)
    assert isinstance(verdict, Correct)
    assert verdict.num_inputs == 5
    assert 0 < verdict.worst_error < 1e-6


@pytest.mark.parametrize(
    "multiply",
    [
        adds_to_what_is_there,
        leaves_a_row_out,
        writes_zeros,
        rounds_to_half_precision,
        skips_the_last_nonzero,
        keeps_what_looks_done,
    ],
)
@pytest.mark.parametrize("num_dense_cols", [1, 4])
def test_a_kernel_with_a_usual_shortcut_is_a_mismatch(multiply: Multiply, num_dense_cols: int) -> None:
    assert isinstance(check(PythonKernel(multiply), make_draws(num_dense_cols), 5), Mismatch)


def test_a_mismatch_names_input_entry_value_expectation_and_extent() -> None:
    held = make_draws()[4]
    output = held.reference.astype(np.float32)
    output[17] += 1
    verdict = judge(Ran({held.output: output}, guards_intact=True, inputs_intact=True), held)
    assert isinstance(verdict, Mismatch)
    expected = held.reference[17]
    assert verdict.message.startswith(f"input integers: y[17] is {expected + 1:.9g}, expected {expected:.9g} within ")
    assert verdict.message.endswith("1 of 50 entries are wrong")


def test_an_entry_of_a_matrix_that_was_not_written_is_named_by_row_and_column() -> None:
    held = make_draws(4)[0]
    output = held.reference.astype(np.float32)
    output[3, 2] = np.nan
    verdict = judge(Ran({held.output: output}, guards_intact=True, inputs_intact=True), held)
    assert isinstance(verdict, Mismatch)
    assert "c[3, 2] was not written or is NaN" in verdict.message


def does_nothing(pattern: Pattern, held: Draw, y: Any) -> Any:
    return y


def remembers_its_input(pattern: Pattern, held: Draw, y: Any) -> Any:
    unchanged = REMEMBERED.get("x") == held.dense.tobytes()
    REMEMBERED["x"] = held.dense.tobytes()
    return y if unchanged else right(pattern, held, y)


REMEMBERED: dict[str, bytes] = {}


@pytest.mark.parametrize("replayed", [does_nothing, remembers_its_input, adds_to_what_is_there])
def test_a_kernel_that_is_right_only_while_it_is_checked_is_found_as_it_was_timed(replayed: Multiply) -> None:
    timed, other = make_draws()[:2]
    REMEMBERED["x"] = timed.dense.tobytes()
    kernel = PythonKernel(right, replayed)
    assert isinstance(check(kernel, [timed, other], 2), Correct)
    verdict = check_as_timed(kernel, timed, other, system_generator())
    assert isinstance(verdict, Mismatch)
    assert verdict.message.startswith("run again after timing: ")


def test_a_kernel_that_works_every_time_is_correct_as_it_was_timed() -> None:
    timed, other = make_draws()[:2]
    assert isinstance(check_as_timed(PythonKernel(right), timed, other, system_generator()), Correct)


@pytest.mark.parametrize(("guards_intact", "inputs_intact"), [(False, True), (True, False)])
def test_a_write_outside_the_output_is_damage_even_when_the_result_is_right(
    guards_intact: bool, inputs_intact: bool
) -> None:
    held = make_draws()[0]
    with pytest.raises(MemoryDamaged):
        judge(Ran({held.output: held.reference.astype(np.float32)}, guards_intact, inputs_intact), held)


def test_a_run_that_was_stopped_is_the_verdict() -> None:
    stopped = TimedOut(stage="run", limit_s=1, message="stopped")

    class Stopped(PythonKernel):
        def run(self, draw: Draw, start: Starts | None) -> Ran | RunFailure:
            return stopped

    assert check(Stopped(right), make_draws(), 5) == stopped


@pytest.mark.parametrize("field", ["values", "dense", "reference", "bound", "magnitude"])
def test_a_seal_shows_a_change_of_one_bit(field: str) -> None:
    draws = make_draws()
    seal = HostSeal(draws)
    assert seal.is_intact()
    getattr(draws[2], field).view(np.uint8)[0] ^= 1
    assert not seal.is_intact()


def test_a_seal_shows_two_entries_that_changed_places() -> None:
    draws = make_draws()
    seal = HostSeal(draws)
    draws[0].dense[[0, 1]] = draws[0].dense[[1, 0]]
    assert not seal.is_intact()
