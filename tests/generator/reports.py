"""Builders of what evaluators answer."""

from collections.abc import Sequence
from typing import Any

from sparsesmith.families import FAMILIES
from sparsesmith.families.fixed.rows import FIXED_FAMILIES
from sparsesmith.program.numbers import is_open
from sparsesmith_proto.evaluation import EvaluationJob, EvaluationReport, FirstOutcome, InstantJob, InstantReport
from sparsesmith_proto.kernel import (
    Baselines,
    BaselineTiming,
    Candidate,
    Checked,
    CompileFailed,
    DeviceDescription,
    EstimatedTiming,
    Evaluation,
    FromFamily,
    MeasuredTiming,
    Outcome,
    Passed,
    Resources,
    Timing,
    Workload,
)


def make_candidate(name: str = "c0", program: str = "program") -> Candidate:
    return Candidate(candidate_id=name, program=program, origin=FromFamily(family="csr_scalar", parameters={}))


def make_timing(median_us: float, spread: float = 0.001) -> MeasuredTiming:
    return MeasuredTiming(
        median_us=median_us,
        low_us=median_us * (1 - spread),
        high_us=median_us * (1 + spread),
        cold_us=median_us * 2,
        num_batches=10,
        stable=True,
        sm_clock_mhz=1980,
    )


def make_estimate(median_us: float) -> EstimatedTiming:
    return EstimatedTiming(median_us=median_us, traffic_model="sectors-1")


def make_passed(timing: Timing, conversion_ms: float = 0.5) -> Passed:
    return Passed(
        timing=timing,
        resources=Resources(registers=32, spill_bytes=0, shared_bytes=0, compile_ms=80),
        storage_format="csr",
        format_bytes=1000,
        conversion_ms=conversion_ms,
        worst_error=1e-7,
        num_inputs=5,
    )


def make_checked() -> Checked:
    return Checked(
        resources=Resources(registers=32, spill_bytes=0, shared_bytes=0, compile_ms=80),
        storage_format="csr",
        format_bytes=1000,
        conversion_ms=0.5,
        worst_error=1e-7,
    )


def make_baselines_of_a_transpose(stored: Timing, copied: Timing) -> Baselines:
    """Of A^T from A as it is stored: with op(A) = T, and on a copy of A^T."""
    return Baselines(
        default="cusparse_csr_default",
        routines=(
            BaselineTiming(routine="cusparse_csr_default", timing=stored, preparation_ms=0),
            BaselineTiming(routine="cusparse_copy_csr_alg2", timing=copied, preparation_ms=7, needs_copy=True),
        ),
    )


def make_baselines(best: Timing, default: Timing, preparation_ms: float = 0.0) -> Baselines:
    return Baselines(
        default="cusparse_csr_default",
        routines=(
            BaselineTiming(routine="cusparse_csr_default", timing=default, preparation_ms=0),
            BaselineTiming(routine="cusparse_coo_alg1", timing=best, preparation_ms=preparation_ms),
        ),
    )


def make_device() -> DeviceDescription:
    return DeviceDescription(
        kind="cuda", name="NVIDIA H200", architecture="sm_90", num_sms=132, copy_bandwidth_gbs=4260, versions={}
    )


def make_report(outcomes: Sequence[Outcome], baselines: Baselines | None = None, **changes: Any) -> EvaluationReport:
    evaluations = tuple(
        Evaluation(candidate=make_candidate(f"c{number}"), outcome=outcome) for number, outcome in enumerate(outcomes)
    )
    usual = make_baselines(make_timing(10), make_timing(12))
    values = {"job_id": "e1", "csr_bytes": 1000, "seconds": 0.1, "device": make_device(), **changes}
    return EvaluationReport(evaluations=evaluations, baselines=baselines or usual, **values)


def filled_in(candidate: Candidate, workload: Workload) -> Candidate:
    """An open program of a family with its numbers in place, as evaluators answer: its parameters say them."""
    if not isinstance(candidate.origin, FromFamily) or not is_open(candidate.program):
        return candidate
    family = {**FAMILIES, **FIXED_FAMILIES}[candidate.origin.family]
    parameters = {name: value for name, value in candidate.origin.parameters.items() if name in family.parameters}
    program = family.render(parameters, workload.element_type, workload.num_dense_cols)
    return candidate.model_copy(update={"program": program, "written": candidate.program})


def report_for(job: EvaluationJob, outcome: Outcome | None = None) -> EvaluationReport:
    """The same outcome for each candidate of a job."""
    given = CompileFailed(log="expected a ';'") if outcome is None else outcome
    evaluations = tuple(
        Evaluation(candidate=filled_in(candidate, job.workload), outcome=given) for candidate in job.candidates
    )
    return make_report([], job_id=job.job_id).model_copy(update={"evaluations": evaluations})


def instant_report_for(job: InstantJob, outcome: FirstOutcome) -> InstantReport:
    return InstantReport(
        job_id=job.job_id,
        device=make_device(),
        candidate=filled_in(job.candidate, job.workload),
        outcome=outcome,
        stages_ms={"check": 1.0},
        seconds=0.01,
    )
