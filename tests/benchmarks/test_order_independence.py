"""Orders compared, and on the interpreter: the same programs in any order get the same outcomes and estimates."""

import pytest

from benchmarks.measure.order_independence import compared, graded_in_orders
from services.evaluator.compiling.compiler import Compiler
from services.evaluator.devices import InterpreterFactory
from services.evaluator.isolation.sandbox import DeviceProcess, StageLimits
from sparsesmith_proto.kernel import EstimatedTiming, Mismatch, Outcome, Passed, Resources
from tests.evaluator.grading_tools import make_pattern


def passed(median_us: float) -> Passed:
    return Passed(
        timing=EstimatedTiming(median_us=median_us, traffic_model="test"),
        resources=Resources(registers=1, spill_bytes=0, shared_bytes=0, compile_ms=0),
        storage_format="csr",
        format_bytes=1,
        conversion_ms=0,
        worst_error=0,
        num_inputs=5,
    )


def test_spreads_are_those_of_programs_that_always_passed() -> None:
    wrong = Mismatch(message="wrong")
    runs: list[dict[str, Outcome]] = [
        {"a": passed(10), "b": passed(40), "c": wrong},
        {"a": passed(10.2), "b": passed(44), "c": wrong},
    ]
    comparison = compared(runs)
    assert (comparison["programs"], comparison["passed"], comparison["same_outcomes"]) == (3, 2, True)
    assert comparison["worst_spread"] == pytest.approx(0.1)
    assert comparison["worst_spread_near_the_best"] == pytest.approx(0.02)


def test_a_program_that_fails_in_one_order_alone_is_seen() -> None:
    comparison = compared([{"a": passed(10)}, {"a": Mismatch(message="wrong")}])
    assert (comparison["same_outcomes"], comparison["passed"]) == (False, 0)


def test_estimates_are_independent_of_the_order() -> None:
    process = DeviceProcess(InterpreterFactory("sm_90"), StageLimits())
    try:
        with Compiler(1, timeout_s=120) as compiler:
            runs = graded_in_orders(make_pattern(), process, compiler, 12, 3)
    finally:
        process.close()
    comparison = compared(runs)
    assert comparison["same_outcomes"]
    assert comparison["passed"] >= 8
    assert comparison["worst_spread"] == 0
