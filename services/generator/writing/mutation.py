"""The writer without a model: mutators, which change a program into another that computes the same."""

import asyncio
import logging
from random import Random

from services.generator.task import TuningTask
from services.generator.writing.account import WritingAccount
from services.generator.writing.writer import Ask, Attempt, Beginning, NothingNew
from sparsesmith.errors import SparsesmithError
from sparsesmith.families import FAMILIES, FamilyInstance
from sparsesmith.mutation import WORTH, Mutant, Subject, random_mutant, subject_of
from sparsesmith.program.extraction import extract_program
from sparsesmith.prompts.refinement import refinement_parent
from sparsesmith_proto.api import SourceName
from sparsesmith_proto.kernel import Candidate, FromFamily, Mutated, Origin

log = logging.getLogger(__name__)

STEPS = (1, 1, 1, 2)
"""Changes at a time, chosen from these: two may pay where neither does alone, and did so half as often."""

ATTEMPTS_A_CHILD = 8
"""Attempts until one is a program that was not tried; then the parent is taken to have no more."""


class MutationWriter:
    """Does not repair: what failed has no children. See Writer."""

    name: SourceName = "mutate"
    beginnings: tuple[Beginning, ...] = ("programs",)
    at_once = None
    repairs = False
    patience_s = 0.0
    account: WritingAccount | None = None

    def __init__(self, task: TuningTask) -> None:
        self._task = task
        self._worth = WORTH.get(task.order.workload.operation)
        self._choosing = asyncio.Lock()
        """Choices are made one after the other, so that the same search is made again."""
        self._tried: set[str] = set()
        self._sent: dict[str, Mutant] = {}
        self._subjects: dict[str, Subject | None] = {}

    def takes(self, attempt: Attempt) -> bool:
        self._tried.add(attempt.candidate.program)
        return self._subject(attempt.candidate) is not None

    async def write(self, ask: Ask) -> Candidate:
        assert ask.parent is not None, "mutators have nothing to change"
        async with self._choosing:
            return await asyncio.to_thread(self._child, ask, ask.parent)

    def _child(self, ask: Ask, parent: Attempt) -> Candidate:
        subject = self._subject(parent.candidate)
        if subject is None:
            raise NothingNew
        for attempt in range(ATTEMPTS_A_CHILD):
            seed = f"{ask.num_before}.{attempt}"
            mutant = random_mutant(subject, seed, Random(seed).choice(STEPS), self._worth)
            if mutant is not None and mutant.text not in self._tried:
                self._tried.add(mutant.text)
                return self._candidate(parent, mutant, seed)
        raise NothingNew

    def _candidate(self, parent: Attempt, mutant: Mutant, seed: str) -> Candidate:
        name = f"{self._task.run_id}-m{len(self._sent)}"
        self._sent[name] = mutant
        return changed_candidate(name, parent, mutant, seed)

    def _subject(self, candidate: Candidate) -> Subject | None:
        """None for a text that mutators do not take."""
        if (mutant := self._sent.get(candidate.candidate_id)) is not None:
            return mutant.subject
        if candidate.candidate_id not in self._subjects:
            self._subjects[candidate.candidate_id] = subject_of_candidate(candidate, self._task)
        return self._subjects[candidate.candidate_id]


def changed_candidate(name: str, parent: Attempt, mutant: Mutant, seed: str) -> Candidate:
    """What mutators made of a program that was graded."""
    told = refinement_parent(parent.candidate.program, parent.outcome, parent.baseline_us)
    origin = Mutated(
        parent=parent.candidate.candidate_id,
        deed=mutant.deed,
        seed=seed,
        generation=parent.generation + 1,
        report=told.report,
    )
    return Candidate(candidate_id=name, program=mutant.text, origin=origin)


def subject_of_candidate(candidate: Candidate, task: TuningTask) -> Subject | None:
    """As mutators see it; None for a text that they do not take."""
    workload = task.order.workload
    text = extract_program(candidate.program)
    try:
        return subject_of(
            text,
            task.problem.matrix,
            workload.operation,
            workload.element_type,
            workload.num_dense_cols,
            _instance(candidate.origin, text, task),
        )
    except SparsesmithError as error:
        log.debug("%s is not changed: %s", candidate.candidate_id, error)
        return None


def _instance(origin: Origin, text: str, task: TuningTask) -> FamilyInstance | None:
    """None where the family would write another text: its values are compressed, or it has changed since."""
    workload = task.order.workload
    match origin:
        case FromFamily(family=name, parameters=parameters) if name in FAMILIES:
            kind = workload.element_type, workload.num_dense_cols
            family = FAMILIES[name]
            if not family.accepts(parameters, *kind) or family.render(parameters, *kind) != text:
                return None
            return family.instance(dict(parameters), *kind)
        case _:
            return None
