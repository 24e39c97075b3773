"""One program with knobs under search: a tuner of its own proposes settings and learns from what became of them."""

from sparsesmith.families import FamilyInstance
from sparsesmith.families.knobs import family_of, prospects_of_program
from sparsesmith.families.proposal import work_of
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.tuning.cost import EvenCost
from sparsesmith.tuning.grid import Grid
from sparsesmith.tuning.tuner import Tuner, TuningLimits
from sparsesmith_proto.kernel import Candidate, Evaluation, Origin, Passed, Workload


class OpenProgram:
    """Raises InvalidProgram for knobs that are malformed."""

    def __init__(self, text: str, origin: Origin, workload: Workload, pattern: Pattern, limit: int, name: str) -> None:
        """`limit`: settings that may be asked for. `name` begins the candidates' ids."""
        self.text = text
        self._origin = origin
        self._name = name
        work = work_of(pattern, workload.element_type, workload.num_dense_cols)
        prospects = prospects_of_program(family_of(text, workload.operation), work)
        grid = Grid(work, workload.operation, workload.element_type, prospects)
        self._tuner = Tuner(grid, EvenCost(), TuningLimits(candidates=limit))
        self._sent: dict[str, FamilyInstance] = {}
        self.num_listed = len(prospects)

    @property
    def best_us(self) -> float | None:
        """Of the settings graded so far."""
        return self._tuner.best_us

    def next_batch(self, size: int) -> tuple[Candidate, ...]:
        """The setting of first values, at the start. Empty: other settings are not worth their time."""
        return tuple(self._candidate(instance) for instance in self._tuner.next_batch(size))

    def tell(self, evaluation: Evaluation) -> bool:
        """What became of a setting. False: the candidate is none of this program's."""
        instance = self._sent.get(evaluation.candidate.candidate_id)
        if instance is None:
            return False
        match evaluation.outcome:
            case Passed(timing=timing):
                self._tuner.tell(instance, timing.median_us)
            case failed:
                self._tuner.tell(instance, failed.outcome)
        return True

    def take_in(self, evaluation: Evaluation) -> None:
        """The setting of first values was graded before there was a tuner: as `tell`, of the first of a batch."""
        (first,) = self.next_batch(1)
        self.tell(evaluation.model_copy(update={"candidate": first}))

    def _candidate(self, instance: FamilyInstance) -> Candidate:
        name = f"{self._name}-{len(self._sent)}"
        self._sent[name] = instance
        return Candidate(candidate_id=name, program=self.text, origin=self._origin, settings=instance.parameters)
