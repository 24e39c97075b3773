"""The report that goes with a program into a refinement prompt: what was measured of it, in a few words.

Short and regular on purpose: the shipped policy learns these very words in supervised training.
"""

from typing import assert_never

from sparsesmith_proto.kernel import (
    CompileFailed,
    Crashed,
    Mismatch,
    Outcome,
    Parent,
    Passed,
    Rejected,
    TimedOut,
)

MAX_MESSAGE_CHARACTERS = 240


def refinement_parent(program: str, outcome: Outcome, best_baseline_us: float) -> Parent:
    """A program and its report, for a prompt that asks for a better one."""
    return Parent(program=program, report=_report(outcome, best_baseline_us))


def timing_report(median_us: float, best_baseline_us: float | None) -> str:
    """Report of a program that passed: time, and speed-up over the best baseline where one was timed; three digits."""
    if best_baseline_us is None:
        return f"passed {median_us:.3g} us"
    return f"passed {median_us:.3g} us speedup {best_baseline_us / max(median_us, 1e-9):.3g}"


def failure_report(outcome: str, message: str) -> str:
    """Report of a program that did not pass: how, and the first words of what was said."""
    return f"{outcome} {_short(message)}".rstrip()


def _report(outcome: Outcome, best_baseline_us: float) -> str:
    match outcome:
        case Passed(timing=timing):
            return timing_report(timing.median_us, best_baseline_us)
        case Rejected(message=message):
            return failure_report("rejected", message)
        case CompileFailed(log=log):
            return failure_report("compile_failed", log)
        case Mismatch(message=message):
            return failure_report("mismatch", message)
        case Crashed(message=message):
            return failure_report("crashed", message)
        case TimedOut(stage=stage):
            return failure_report("timed_out", stage)
        case _:
            assert_never(outcome)


def _short(message: str) -> str:
    """The first lines of a message, as far as they fit."""
    return " ".join(message.split())[:MAX_MESSAGE_CHARACTERS]
