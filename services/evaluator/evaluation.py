"""The story of one candidate: build its format, compile, load and check, time. Every failure is an outcome."""

from collections.abc import Callable

from services.evaluator.candidates import Parsed
from services.evaluator.checking.correctness import Correct
from services.evaluator.compiling.compiler import Compiled
from services.evaluator.device import RunFailure
from services.evaluator.isolation.workbench import Built, Workbench
from services.evaluator.race import Race
from sparsesmith.formats.values.compressed import storage_name
from sparsesmith.program.program import KernelProgram
from sparsesmith_proto.kernel import (
    Candidate,
    CompileFailed,
    EstimatedTiming,
    FromFamily,
    MeasuredTiming,
    Outcome,
    Passed,
    Rejected,
    Repeats,
    Resources,
    TimedOut,
)

Compile = Callable[[KernelProgram], Compiled | CompileFailed | TimedOut]
"""Compiles a program, or hands out what was compiled ahead."""


def evaluate_kernel(parsed: Parsed, compile_program: Compile, workbench: Workbench, race: Race) -> Outcome:
    """What becomes of a candidate on that workload. Raises Unavailable where there is no device to find out."""
    kernel_id, program = parsed.candidate.candidate_id, parsed.program
    if isinstance(program, Rejected):
        return program
    built = workbench.build(program)
    if not isinstance(built, Built):
        return built
    binary = compile_program(program)
    if not isinstance(binary, Compiled):
        return binary
    verdict = workbench.check(kernel_id, program, binary)
    if not isinstance(verdict, Correct):
        return verdict
    adverse = workbench.time_adverse(kernel_id)
    if isinstance(adverse, RunFailure):
        return adverse
    timing = race.time(kernel_id, workbench, is_paid=is_paid(parsed.candidate))
    if not isinstance(timing, MeasuredTiming | EstimatedTiming):
        return timing
    return Passed(
        timing=timing,
        resources=heaviest_kernel(binary),
        storage_format=storage_name(program.format),
        format_bytes=built.format_bytes,
        conversion_ms=built.conversion_ms,
        worst_error=verdict.worst_error,
        num_inputs=verdict.num_inputs,
        repeats=Repeats(runs=verdict.same_runs, contexts=1) if verdict.same_runs else None,
        adverse=adverse,
    )


def is_paid(candidate: Candidate) -> bool:
    """Whether somebody is rewarded for the candidate's time, or asked for it, though it is not near the fastest. For
    those of families, whose texts are the service's own, only the fastest counts."""
    return not isinstance(candidate.origin, FromFamily)


def heaviest_kernel(binary: Compiled) -> Resources:
    """Of the kernel that spills most, then of the one with the most registers."""
    heaviest = max(binary.resources.values(), key=lambda used: (used.spill_bytes, used.registers, used.shared_bytes))
    return Resources(
        registers=heaviest.registers,
        spill_bytes=heaviest.spill_bytes,
        shared_bytes=heaviest.shared_bytes,
        compile_ms=binary.compile_ms,
    )
