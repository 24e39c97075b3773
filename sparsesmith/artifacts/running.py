"""Which kernel an answer is run by, on a user's GPU."""

from sparsesmith.cuda.routines import TRANSPOSED, callable_routines
from sparsesmith.program.extraction import extract_program
from sparsesmith_proto.api import KernelReport, LibraryAnswer, TunedAnswer
from sparsesmith_proto.kernel import BaselineTiming, Candidate, Evaluation, Passed, Timing


def running_program(report: KernelReport) -> str | None:
    """The program's text; None: a routine of the library, `running_routine`.

    Not every routine can be called: none on formats of the library's own, none that holds values (SpMVOp), none of A^T
    without a copy. The closest kernel runs instead where it is faster than the fastest of those that can, and where
    there is none.
    """
    candidate = _running(report)
    return None if candidate is None else extract_program(candidate.program)


def running_routine(report: KernelReport) -> str | None:
    """Of the library, where no program runs: the fastest of those that can be called. None: whatever is the default."""
    if _running(report) is not None:
        return None
    fastest = _fastest_callable(report)
    return None if fastest is None else fastest.routine


def _running(report: KernelReport) -> Candidate | None:
    match report.answer:
        case TunedAnswer(best=best):
            return best.candidate
        case LibraryAnswer(closest=Evaluation(outcome=Passed(timing=timing), candidate=candidate)):
            return candidate if _is_worth_running(report, timing) else None
        case _:
            return None


def _is_worth_running(report: KernelReport, timing: Timing) -> bool:
    workload, fastest = report.workload, _fastest_callable(report)
    if workload.values is not None:  # The routine is right for any values.
        return False
    if fastest is None and (workload.deterministic or workload.operation in TRANSPOSED):
        return True
    rival = (fastest or report.baselines.default_routine()).timing
    return timing.kind == rival.kind and timing.median_us < rival.median_us


def _fastest_callable(report: KernelReport) -> BaselineTiming | None:
    workload = report.workload
    names = {each.name for each in callable_routines(workload.operation, deterministic=workload.deterministic)}
    timed = [each for each in report.baselines.routines if each.routine in names]
    return min(timed, key=lambda each: each.timing.median_us, default=None)
