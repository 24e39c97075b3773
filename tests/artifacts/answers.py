"""Builders of answers, as a generator would give them."""

from typing import Any

import scipy.sparse

from sparsesmith.matrix.pattern import Pattern, pattern_from_scipy
from sparsesmith_proto.api import BreakEven, KernelReport, LibraryAnswer, SearchReport, TunedAnswer
from sparsesmith_proto.kernel import (
    Baselines,
    BaselineTiming,
    Candidate,
    DeviceDescription,
    Evaluation,
    MeasuredTiming,
    Passed,
    Resources,
    UserWritten,
    Workload,
)

CSR_PROGRAM = """//@ format csr
//@ launch spmv grid=ceil_div(num_rows,128) block=128
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices,
    const float* values, const float* x, float* y) {
  int row = blockIdx.x * 128 + threadIdx.x;
  if (row >= num_rows) return;
  float sum = 0;
  for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) sum += values[j] * x[col_indices[j]];
  y[row] = sum;
}
"""


def make_matrix(num_rows: int = 40, num_cols: int = 30, density: float = 0.1, seed: int = 0) -> Any:
    """SciPy CSR, sorted, float64."""
    return scipy.sparse.random(num_rows, num_cols, density, format="csr", random_state=seed)


def make_workload(pattern: Pattern, **changes: Any) -> Workload:
    return Workload(**{"pattern": pattern.digest, "operation": "spmv", "element_type": "float32", **changes})


def make_device() -> DeviceDescription:
    return DeviceDescription(
        kind="cuda", name="NVIDIA H200", architecture="sm_90", num_sms=132, copy_bandwidth_gbs=4260, versions={}
    )


def make_timing(median_us: float) -> MeasuredTiming:
    return MeasuredTiming(
        median_us=median_us,
        low_us=median_us,
        high_us=median_us,
        cold_us=2 * median_us,
        num_batches=10,
        stable=True,
        sm_clock_mhz=1980,
    )


def make_evaluation(program: str) -> Evaluation:
    outcome = Passed(
        timing=make_timing(5),
        resources=Resources(registers=32, spill_bytes=0, shared_bytes=0, compile_ms=80),
        storage_format="csr",
        format_bytes=1000,
        conversion_ms=0.5,
        worst_error=1e-7,
        num_inputs=5,
    )
    return Evaluation(
        candidate=Candidate(candidate_id="c", program=program, origin=UserWritten()),
        outcome=outcome,
    )


def make_report(matrix: Any, program: str | None = CSR_PROGRAM, **workload: Any) -> KernelReport:
    """A report whose answer is the program; with None the library's routine."""
    pattern = pattern_from_scipy(matrix)
    sizes = {"num_rows": pattern.num_rows, "num_cols": pattern.num_cols, "nnz": pattern.nnz}
    return report_of(make_workload(pattern, **workload), program, **sizes)


def report_of(workload: Workload, program: str | None, **sizes: int) -> KernelReport:
    """As `make_report`; with None and for a task its naive program is the answer."""
    break_even = BreakEven(
        kind="measured", conversion_ms=1, tuning_s=1, products_against_best=9, products_against_default=8
    )
    routine = "naive" if workload.pattern is None else "cusparse_csr_alg2"
    answer: TunedAnswer | LibraryAnswer
    if program is None:
        answer = LibraryAnswer(routine=routine, reason="none passed", closest=None, break_even=break_even)
    else:
        answer = TunedAnswer(
            best=make_evaluation(program), speedup_over_best=2, speedup_over_default=3, break_even=break_even
        )
    baseline = BaselineTiming(routine=routine, timing=make_timing(10), preparation_ms=0)
    return KernelReport(
        workload=workload,
        **sizes,
        answer=answer,
        baselines=Baselines(default=routine, routines=(baseline,)),
        device=make_device(),
        search=SearchReport(
            strategy="auto",
            num_candidates=1,
            outcomes={"passed": 1},
            policy_versions=(),
            seconds=1,
            first_graded_s=0.5,
        ),
    )
