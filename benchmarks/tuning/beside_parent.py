"""Programs that were made of another one, graded and timed beside it.

What is not far behind is timed at length in turns with its parent, a few at a time: its gain is the parent's time over its
own, from the same finals. Of others the gain is of brief times.
"""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.tuning.harvested import Line
from services.evaluator.candidates import Parsed, parse_candidate
from services.evaluator.compiling.ahead import CompilationsAhead
from services.evaluator.compiling.compiler import Compiled, Compiler
from services.evaluator.device import Timing
from services.evaluator.evaluation import evaluate_kernel
from services.evaluator.isolation.sandbox import DeviceProcess
from services.evaluator.isolation.workbench import FinalTimes, Workbench
from services.evaluator.race import Race
from sparsesmith.operations import Problem
from sparsesmith_proto.kernel import Candidate, EstimatedTiming, MeasuredTiming, Passed, Rejected, UserWritten

TOGETHER = 5
"""Children that are timed in turns with their parent."""
FAR_BEHIND = 1.1
"""Of brief times: a child that takes so much longer than its parent is not timed at length. Of 780 such children of an
H200's harvest, two fifths of all, none was faster than its parent."""
COMPILE_S = 900.0
MESSAGE_CHARACTERS = 400
PARENT = "parent"
"""The parent's name among the kernels; no child's."""


class Kept(Race):
    """Times briefly and unloads nothing."""

    def time(self, kernel_id: str, workbench: Workbench, *, is_paid: bool = True) -> Any:
        return workbench.time(kernel_id)


@dataclass(frozen=True, eq=False)
class Judge:
    """A device and its compilers."""

    process: DeviceProcess
    compiler: Compiler
    compile_limit_s: float

    def graded(self, parent: str, children: Sequence[Parsed], problem: Problem) -> Iterator[tuple[str, Line]]:
        """Each child's name with its outcome: its times and gain, or its message. Nothing where the parent fails.

        `other_code`: whether its PTX is other than the parent's, in more than lines of source.
        """
        own = parse_candidate(Candidate(candidate_id=PARENT, program=parent, origin=UserWritten()), problem.workload)
        architecture = self.process.description().architecture
        with CompilationsAhead(self.compiler, architecture, self.compile_limit_s) as ahead:
            ahead.start((own, *children))
            workbench, race = self.process.open(problem), Kept(math.inf)
            routine = workbench.baselines().best_routine().routine
            first = evaluate_kernel(own, ahead.result, workbench, race)
            if not isinstance(first, Passed):
                return
            waiting: list[tuple[str, Line]] = []
            for each in ahead.as_compiled(children, time.monotonic() + COMPILE_S):
                name = each.candidate.candidate_id
                outcome = evaluate_kernel(each, ahead.result, workbench, race)
                line: Line = {"outcome": outcome.outcome}
                if isinstance(outcome, Passed):
                    line |= {"other_code": _code(each, ahead) != _code(own, ahead)}
                    line |= timed("brief", outcome.timing) | {"parent_brief_us": rounded(first.timing.median_us)}
                    if line["brief_us"] < FAR_BEHIND * line["parent_brief_us"]:
                        waiting.append((name, line))
                    else:
                        workbench.unload(name)
                        yield name, line | {"gain": round(line["parent_brief_us"] / line["brief_us"], 5)}
                else:
                    text = str(getattr(outcome, "message", "") or getattr(outcome, "log", ""))
                    yield name, line | {"message": text[:MESSAGE_CHARACTERS]}
                if len(waiting) == TOGETHER:
                    yield from _paired(waiting, workbench, routine)
                    waiting = []
            yield from _paired(waiting, workbench, routine)


def _code(parsed: Parsed, ahead: CompilationsAhead) -> list[str]:
    """Instructions of a program that passed, without the lines of source that they are of: machine code names them, so
    that a line more would be other code."""
    assert not isinstance(parsed.program, Rejected)
    compiled = ahead.result(parsed.program)
    lines = compiled.ptx.split("\n") if isinstance(compiled, Compiled) else []
    return [line for line in lines if not line.startswith(".loc ")]


def _paired(children: Sequence[tuple[str, Line]], workbench: Workbench, routine: str) -> Iterator[tuple[str, Line]]:
    """Children timed in turns with their parent; without a `gain` where that came to nothing."""
    if not children:
        return
    final = workbench.retime([PARENT, *(name for name, _ in children)], routine)
    for name, line in children:
        workbench.unload(name)
        if not isinstance(final, FinalTimes):
            yield name, line | {"finals": final.outcome}
            continue
        own, child = final.kernels[PARENT], final.kernels[name]
        if isinstance(own, MeasuredTiming | EstimatedTiming) and isinstance(child, MeasuredTiming | EstimatedTiming):
            gain = own.median_us / child.median_us
            yield name, line | timed("final", child) | timed("parent", own) | {"gain": round(gain, 5)}
        else:
            failed = own if not isinstance(own, MeasuredTiming | EstimatedTiming) else child
            yield name, line | {"finals": getattr(failed, "outcome", "")}


def timed(name: str, timing: Timing) -> Line:
    """Fields of a line."""
    found: Line = {f"{name}_us": rounded(timing.median_us)}
    if isinstance(timing, MeasuredTiming) and name != "brief":
        found |= {f"{name}_low_us": rounded(timing.low_us), f"{name}_high_us": rounded(timing.high_us)}
    return found


def rounded(us: float) -> float:
    return float(f"{us:.5g}")
