"""What the library's routines take of the workloads seen lately: timed here, or by another evaluator of this GPU."""

from collections import OrderedDict
from typing import Protocol

from services.evaluator.isolation.workbench import Workbench
from services.evaluator.remembered import remembered
from sparsesmith_proto.kernel import Baselines, Workload


class Others(Protocol):
    """Evaluators of the same GPU: `sparsesmith.transport.routine_times.RoutineTimes`."""

    def find(self, workload: Workload) -> Baselines | None:
        """None where they do not know."""
        ...

    def agreed(self, workload: Workload, baselines: Baselines) -> Baselines:
        """These, told to the others; or what one of them has told meanwhile."""
        ...


class KnownRoutines:
    """Baselines by workload; the least recently used go first."""

    def __init__(self, most: int = 256, others: Others | None = None) -> None:
        self._most = most
        self._others = others
        self._baselines: OrderedDict[Workload, Baselines] = OrderedDict()

    def of(self, workload: Workload, workbench: Workbench) -> Baselines:
        """Timed on the workbench where nobody knows. Raises Unavailable, as `workbench.baselines` does."""
        return remembered(self._baselines, workload, lambda: self._found(workload, workbench), self._most)

    def _found(self, workload: Workload, workbench: Workbench) -> Baselines:
        if self._others is None:
            return workbench.baselines()
        return self._others.find(workload) or self._others.agreed(workload, workbench.baselines())
