"""What runs where the vendor's routine is the answer."""

from typing import Any

import pytest

from sparsesmith.artifacts.python_loader import python_loader
from sparsesmith.artifacts.running import running_program, running_routine
from sparsesmith.operator import Operator
from sparsesmith_proto.api import KernelReport
from sparsesmith_proto.kernel import Baselines, BaselineTiming, EstimatedTiming
from tests.artifacts.answers import CSR_PROGRAM, make_evaluation, make_matrix, make_report, make_timing

MATRIX = make_matrix()


def closely_lost(best_us: float, default_us: float, alg2_us: float = 20, **workload: Any) -> KernelReport:
    """A report whose closest kernel takes 5 us."""
    report = make_report(MATRIX, None, **workload)
    routines = {"cusparse_csr_default": default_us, "cusparse_spmvop_alg2": best_us, "cusparse_csr_alg2": alg2_us}
    timed = (BaselineTiming(routine=name, timing=make_timing(us), preparation_ms=0) for name, us in routines.items())
    answer = report.answer.model_copy(update={"closest": make_evaluation(CSR_PROGRAM)})
    baselines = Baselines(default="cusparse_csr_default", routines=tuple(timed))
    return report.model_copy(update={"answer": answer, "baselines": baselines})


@pytest.mark.parametrize(
    ("default_us", "alg2_us", "workload", "runs"),
    [
        (6, 20, {}, None),
        (4.9, 20, {}, "cusparse_csr_default"),  # Faster than the kernel.
        (6, 4.9, {}, "cusparse_csr_alg2"),
        (4.9, 4.8, {}, "cusparse_csr_alg2"),
        (4.9, 20, {"deterministic": True}, None),  # It promises no equal bits.
        (4.9, 4.95, {"deterministic": True}, "cusparse_csr_alg2"),
        (4.9, 20, {"operation": "spmv_t"}, None),  # None is called that needs no copy of A^T.
        (6, 20, {"values": "a" * 64}, "cusparse_csr_default"),  # Any values: the kernel is right for one matrix's.
    ],
)
def test_the_fastest_that_can_be_called_runs_where_it_beats_the_closest_kernel(
    default_us: float, alg2_us: float, workload: dict[str, Any], runs: str | None
) -> None:
    report = closely_lost(4, default_us, alg2_us, **workload)
    assert running_routine(report) == runs
    assert (running_program(report) is None) == (runs is not None)


def test_a_loader_calls_the_routine_by_its_name() -> None:
    assert "WORKLOAD, 'cusparse_csr_alg2')" in python_loader(closely_lost(4, 6, 4.9))


def test_a_kernel_is_the_answer_and_without_one_that_passed_there_is_none() -> None:
    assert "spmv" in str(running_program(make_report(MATRIX, CSR_PROGRAM)))
    assert running_program(make_report(MATRIX, None)) is None


def test_an_estimate_is_not_compared_with_a_time() -> None:
    report = closely_lost(4, 6)
    default = report.baselines.routines[0]
    estimated = default.model_copy(update={"timing": EstimatedTiming(median_us=6, traffic_model="sectors-1")})
    routines = (estimated, *report.baselines.routines[1:])
    assert (
        running_program(report.model_copy(update={"baselines": Baselines(default=default.routine, routines=routines)}))
        is None
    )


def test_an_operator_runs_it_and_keeps_its_report() -> None:
    report = closely_lost(4, 6)
    operator = Operator(report, MATRIX, transposed=closely_lost(4, 4.9, operation="spmv_t"))
    assert operator.program == operator.T.program == running_program(report)
    assert operator.report == report and report.answer.kind == "library"
