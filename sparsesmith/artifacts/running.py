"""Which kernel an answer is run by, on a user's GPU."""

from sparsesmith.operations import operation_named
from sparsesmith.operations.product import TransposedProduct
from sparsesmith.program.extraction import extract_program
from sparsesmith_proto.api import KernelReport, LibraryAnswer, TunedAnswer
from sparsesmith_proto.kernel import Candidate, Evaluation, Passed, Timing


def running_program(report: KernelReport) -> str | None:
    """The program's text; None: the vendor's routine.

    A routine is called by CuPy, which knows CSR with the default algorithm alone: none of equal bits, and none of A^T
    without a copy. The closest kernel runs instead where it is faster than that one, and where there is none.
    """
    candidate = _running(report)
    return None if candidate is None else extract_program(candidate.program)


def _running(report: KernelReport) -> Candidate | None:
    match report.answer:
        case TunedAnswer(best=best):
            return best.candidate
        case LibraryAnswer(closest=Evaluation(outcome=Passed(timing=timing), candidate=candidate)):
            return candidate if _is_worth_running(report, timing) else None
        case _:
            return None


def _is_worth_running(report: KernelReport, timing: Timing) -> bool:
    workload, default = report.workload, report.baselines.default_routine().timing
    if workload.values is not None:  # The routine is right for any values.
        return False
    has_no_routine = workload.deterministic or isinstance(operation_named(workload.operation), TransposedProduct)
    return has_no_routine or (timing.kind == default.kind and timing.median_us < default.median_us)
