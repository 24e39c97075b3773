"""The last gate, where the operator has set it: what would win a search is looked at by compute-sanitizer first.

A search's fastest program so far, of those that beat the library, is checked before the report that tells of it; one
that is refused makes way for the next. So every program that wins was checked, or its report says why not.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from services.evaluator.allowance import Allowance
from services.evaluator.candidates import Parsed
from services.evaluator.checking.draws import draw, kinds_of, system_generator
from services.evaluator.compiling.compiler import Compiled
from services.evaluator.grading import Outcomes
from services.evaluator.isolation.built_formats import BuiltMatrices
from services.evaluator.sanitizing.launch_plan import write_plan
from services.evaluator.sanitizing.sanitizer import TOOLS, Found, Sanitizer
from sparsesmith.operations import Problem
from sparsesmith.program.binding import bind
from sparsesmith.program.program import KernelProgram
from sparsesmith_proto.evaluation import EvaluationReport
from sparsesmith_proto.kernel import Crashed, Mismatch, Outcome, Passed, ToolCheck

log = logging.getLogger(__name__)

MAX_PRODUCTS = 20_000_000
"""Multiply-adds of a workload that is tried: what is larger does not end in time under the tools."""
MAX_REFUSED = 4
"""Of one batch; then the next in line says that it was not checked."""

BinaryOf = Callable[[KernelProgram], object]
"""What was compiled of a program of the batch."""


@dataclass(frozen=True)
class Batch:
    """What was graded, and how its programs run."""

    problem: Problem
    candidates: Sequence[Parsed]
    binary: BinaryOf
    known: Outcomes
    """Of the whole search, this batch's among them; what is refused is written there."""
    allowance: Allowance


class WinnersGate:
    """Of one evaluator."""

    def __init__(self, sanitizer: Sanitizer) -> None:
        self._sanitizer = sanitizer

    def judged(self, report: EvaluationReport, batch: Batch) -> EvaluationReport:
        """The report with what the tools say of the search's fastest program, if it is one of this batch."""
        limit_us = report.baselines.best_routine().timing.median_us
        for number in range(MAX_REFUSED + 1):
            each = _fastest_unchecked(batch, limit_us)
            if each is None:
                break
            passed = batch.known[each.candidate.program]
            assert isinstance(passed, Passed), "the fastest is one that passed"
            outcome = self._judged(each, passed, batch, report.device.num_sms, is_last=number == MAX_REFUSED)
            batch.known[each.candidate.program] = outcome
            if isinstance(outcome, Passed):
                break
            log.warning("a winner is refused: %s", outcome.message)  # type: ignore[union-attr]
        evaluations = (
            each.model_copy(update={"outcome": batch.known.get(each.candidate.program, each.outcome)})
            for each in report.evaluations
        )
        return report.model_copy(update={"evaluations": tuple(evaluations)})

    def _judged(self, each: Parsed, passed: Passed, batch: Batch, num_sms: int, *, is_last: bool) -> Outcome:
        reason = _reason_to_leave(batch, is_last=is_last)
        said = _unchecked(reason) if reason else self._look(each, batch, num_sms)
        if isinstance(said, Found):
            return refused(said)
        return passed.model_copy(update={"sanitized": said})

    def _look(self, each: Parsed, batch: Batch, num_sms: int) -> tuple[ToolCheck, ...] | Found:
        program, problem = each.program, batch.problem
        assert isinstance(program, KernelProgram), "a program that passed was read"
        binary = batch.binary(program)
        assert isinstance(binary, Compiled), "a program that passed was compiled"

        def plan(folder: Path) -> None:
            layout = BuiltMatrices(problem).get(program).layout
            drawn = draw(kinds_of(problem)[0], problem, system_generator())
            write_plan(folder, bind(program, layout, problem, num_sms), binary.cubin, layout, drawn)

        try:
            return self._sanitizer.look(plan, batch.allowance.left_s)
        except OSError as error:
            return _unchecked(f"it could not be run: {error}")


def refused(found: Found) -> Crashed | Mismatch:
    """As the interpreter tells the same: a race makes results differ, other errors are of memory."""
    more = "" if found.num_errors <= 1 else f" (one of {found.num_errors} errors)"
    message = f"compute-sanitizer, {found.tool}: {found.fault.describe()}{more}"
    return Mismatch(message=message) if found.tool == "racecheck" else Crashed(message=message)


def _fastest_unchecked(batch: Batch, limit_us: float) -> Parsed | None:
    """None: the fastest was checked, is slower than the library, or was graded in an earlier batch."""
    passed = {text: outcome for text, outcome in batch.known.items() if isinstance(outcome, Passed)}
    if not passed:
        return None
    text = min(passed, key=lambda each: passed[each].standing)
    if passed[text].sanitized or passed[text].timing.median_us >= limit_us:
        return None
    return next((each for each in batch.candidates if each.candidate.program == text), None)


def _reason_to_leave(batch: Batch, *, is_last: bool) -> str:
    """Why the tools are not asked; empty where they are."""
    if is_last:
        return f"{MAX_REFUSED} faster programs of the batch were refused before it"
    if batch.problem.num_products > MAX_PRODUCTS:
        return f"the workload has {batch.problem.num_products} multiply-adds, at most {MAX_PRODUCTS} are tried"
    if batch.allowance.left_s == 0:
        return "the job's budget was spent"
    return ""


def _unchecked(reason: str) -> tuple[ToolCheck, ...]:
    return tuple(ToolCheck(tool=tool, state="not_checked", reason=reason) for tool in TOOLS)
