"""Samples with knobs, and answers of other models: one that passed and is not far behind is a family."""

import math

from services.generator.search.knobs import OpenProgram
from services.generator.search.standing import Batch, Standing
from services.generator.task import TuningTask
from sparsesmith.program.extraction import extract_program
from sparsesmith.program.numbers import knobs_of
from sparsesmith_proto.kernel import Evaluation, Passed, Sampled, Written

NOT_FAR_BEHIND = 1.25
"""Times the best time so far, within which a program's other settings are tried."""

MOST_SETTINGS = 24
"""Of one sample."""


class SampledKnobs:
    """What the samples of one search left open."""

    def __init__(self, task: TuningTask) -> None:
        self._task = task
        self._num_read = 0
        self._programs: list[OpenProgram] = []
        self._seen: set[str] = set()

    def next_batch(self, size: int, standing: Standing) -> Batch:
        """Settings of the most promising program that has any; empty where none has."""
        self._read(standing)
        behind = NOT_FAR_BEHIND * standing.best_us
        for program in sorted(self._programs, key=_best_us):
            if _best_us(program) <= behind and (batch := program.next_batch(size)):
                return batch
        return ()

    def _read(self, standing: Standing) -> None:
        for report in standing.after(self._num_read):
            self._num_read += 1
            for evaluation in report.evaluations:
                if not any(program.tell(evaluation) for program in self._programs):
                    self._enter(evaluation)

    def _enter(self, evaluation: Evaluation) -> None:
        """A sample at its first values."""
        candidate = evaluation.candidate
        written = candidate.written
        if (
            written is None
            or not isinstance(candidate.origin, Sampled | Written)
            or not isinstance(evaluation.outcome, Passed)
        ):
            return
        text = extract_program(written)
        if text in self._seen or not knobs_of(text):
            return
        self._seen.add(text)
        name = f"{candidate.candidate_id}-k"
        program = OpenProgram(text, candidate.origin, self._task.problem, MOST_SETTINGS, name)
        program.take_in(evaluation)
        self._programs.append(program)


def _best_us(program: OpenProgram) -> float:
    return math.inf if program.best_us is None else program.best_us
