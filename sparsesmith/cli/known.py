"""What was measured on a GPU for the example matrices: shown beside an estimate, where no GPU is here.

`known_results.json` is written by `make report` from benchmarks/results; see benchmarks/report/known.py.
"""

from importlib.resources import files

from pydantic import TypeAdapter

from sparsesmith_proto.kernel import Workload
from sparsesmith_proto.message import Message


class KnownResult(Message):
    """One answer that was measured."""

    workload: Workload
    matrix: str
    device: str
    speedup_over_best: float
    """The lowest of the runs."""
    num_runs: int
    candidates: int
    """Tried, in the run with the fewest."""
    commit: str
    date: str
    source: str
    """The result file."""

    def describe(self) -> str:
        """One line."""
        runs = "one run" if self.num_runs == 1 else f"the least of {self.num_runs} runs"
        where = f"{runs}, {self.candidates} candidates; {self.date}, commit {self.commit}, {self.source}"
        faster = f"a kernel, {self.speedup_over_best:.2f}x faster than the library's fastest routine"
        return f"MEASURED on an {self.device} for this very question ({self.matrix}): {faster} ({where})"


RESULTS = TypeAdapter(list[KnownResult])


def known_result(workload: Workload) -> KnownResult | None:
    """What was measured for a question; None where nothing was."""
    text = files("sparsesmith.cli").joinpath("known_results.json").read_bytes()
    return next((result for result in RESULTS.validate_json(text) if result.workload == workload), None)
