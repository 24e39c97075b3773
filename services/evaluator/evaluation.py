"""The story of one candidate: parse, build the format, compile, load and check, time. Every failure is an outcome."""

from collections.abc import Callable
from functools import lru_cache
from typing import assert_never

from services.evaluator.compilation import Compiled, CompileError
from services.evaluator.correctness import Correct
from services.evaluator.device import Timing
from services.evaluator.race import Race
from services.evaluator.workbench import Stored, Workbench
from sparsesmith.domain.extraction import extract_program
from sparsesmith.domain.program import KernelProgram, parse_program
from sparsesmith.errors import InvalidProgram
from sparsesmith_proto.kernel import (
    Candidate,
    CompileFailed,
    EstimatedTiming,
    MeasuredTiming,
    Outcome,
    Passed,
    Rejected,
    TimedOut,
    Workload,
)

Compile = Callable[[KernelProgram], Compiled | CompileError]
"""Compiles a program, or hands out what was compiled ahead."""


def evaluate_kernel(
    candidate: Candidate, workload: Workload, compile_program: Compile, bench: Workbench, race: Race
) -> Outcome:
    """What becomes of a candidate on this workload. Raises Unavailable where there is no device to find out."""
    program = parse_candidate(candidate.program, workload)
    if isinstance(program, Rejected):
        return program
    stored = bench.store(program)
    if not isinstance(stored, Stored):
        return stored
    binary = compile_program(program)
    if isinstance(binary, CompileError):
        return compile_outcome(binary)
    verdict = bench.check(candidate.candidate_id, program, binary)
    if not isinstance(verdict, Correct):
        return verdict
    timing = race.time(candidate.candidate_id, bench)
    match timing:
        case MeasuredTiming() | EstimatedTiming():
            return _passed(program, stored, binary, verdict, timing)
        case _:
            return timing
