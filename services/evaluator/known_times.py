"""The fastest time of each workload that this evaluator knows: what a new kernel should improve on."""

from collections import OrderedDict

from services.evaluator.remembered import remembered
from sparsesmith_proto.evaluation import EvaluationJob, EvaluationReport
from sparsesmith_proto.kernel import Candidate, Passed, Sampled, Timing, Workload

MAX_WORKLOADS = 256
MAX_SEARCHES = 64
"""The least recently used are forgotten."""


class KnownTimes:
    """Frozen for the length of a search, so that all samples of a prompt are held against the same.

    Not known here: what other evaluators measured, and what this one did before its last start.
    """

    def __init__(self) -> None:
        self._fastest: OrderedDict[Workload, Timing] = OrderedDict()
        self._of_searches: OrderedDict[str, Timing] = OrderedDict()

    def rival(self, job: EvaluationJob, report: EvaluationReport) -> Timing:
        """The fastest of the workload as the job's search began: of kernels that passed, or the best routine."""
        best = report.baselines.best_routine().timing
        known = self._fastest.get(job.workload)
        now = known if known is not None and known.median_us < best.median_us else best
        return now if job.search is None else remembered(self._of_searches, job.search, lambda: now, MAX_SEARCHES)

    def take_in(self, job: EvaluationJob, report: EvaluationReport) -> None:
        """What was measured counts from the next search on."""
        for evaluation in report.evaluations:
            if isinstance(evaluation.outcome, Passed):
                self._take_time(job.workload, evaluation.outcome.timing)

    def _take_time(self, workload: Workload, timing: Timing) -> None:
        known = remembered(self._fastest, workload, lambda: timing, MAX_WORKLOADS)
        if timing.median_us < known.median_us:
            self._fastest[workload] = timing


def rival_of(candidate: Candidate, report: EvaluationReport, known: Timing) -> Timing:
    """The time of the program that a sample refines, where the same report has it; else what was known."""
    origin = candidate.origin
    if not isinstance(origin, Sampled) or origin.prompt.parent is None:
        return known
    for evaluation in report.evaluations:
        is_parent = evaluation.candidate.program == origin.prompt.parent.program
        if is_parent and isinstance(evaluation.outcome, Passed):
            return evaluation.outcome.timing
    return known
