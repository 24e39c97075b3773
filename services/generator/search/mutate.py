"""The fastest programs so far, changed by mutators: no model, no grid, whoever wrote them."""

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from services.generator.search.proposer import Exhausted
from services.generator.search.standing import Batch, Standing
from services.generator.task import TuningTask
from sparsesmith.errors import SparsesmithError
from sparsesmith.families import FAMILIES, FamilyInstance
from sparsesmith.mutation import Mutant, Subject, drawn, subject_of
from sparsesmith.program.extraction import extract_program
from sparsesmith.prompts.refinement import refinement_parent
from sparsesmith_proto.api import Refinement, SourceName
from sparsesmith_proto.evaluation import EvaluationReport
from sparsesmith_proto.kernel import Candidate, Evaluation, FromFamily, Mutated, Origin, Passed

log = logging.getLogger(__name__)

STEPS = (1, 1, 2, 3)
"""Changes at a time, drawn from these: two may pay where neither does alone."""

DRAWS_A_CHILD = 8
"""Draws until one is a program that was not tried; then the parent is taken to have no more."""


@dataclass(eq=False)
class Node:
    """A program that passed, in the beam while it is among the fastest."""

    candidate_id: str
    subject: Subject
    generation: int
    median_us: float
    report: str
    num_children: int = 0
    is_spent: bool = False
    """Draws give nothing that is new."""


@dataclass(eq=False)
class Beam:
    """What is known of the programs of one search; blocking work, for a thread."""

    task: TuningTask
    loop: Refinement
    nodes: list[Node] = field(default_factory=list)
    tried: set[str] = field(default_factory=set)
    """Program texts."""
    sent: dict[str, Mutant] = field(default_factory=dict)
    """By candidate."""

    def read(self, report: EvaluationReport) -> None:
        baseline_us = report.baselines.best_routine().timing.median_us
        for evaluation in report.evaluations:
            self.tried.add(evaluation.candidate.program)
            match evaluation.outcome:
                case Passed(timing=timing) if timing.median_us > 0:
                    self._enter(evaluation, timing.median_us, baseline_us)
                case _:
                    pass

    def children(self, size: int) -> list[Candidate]:
        """Of the fastest programs in turns, the fastest first; none where all have had theirs."""
        found: list[Candidate] = []
        while len(found) < size and (open_ := self._open()):
            for node in open_[: size - len(found)]:
                found += self._child(node)
        return found

    def _enter(self, evaluation: Evaluation, median_us: float, baseline_us: float) -> None:
        subject = self._subject(evaluation.candidate)
        if subject is not None:
            told = refinement_parent(evaluation.candidate.program, evaluation.outcome, baseline_us)
            candidate = evaluation.candidate
            generation = candidate.origin.generation if isinstance(candidate.origin, Mutated) else 0
            self.nodes.append(Node(candidate.candidate_id, subject, generation, median_us, told.report))
            self.nodes.sort(key=lambda node: node.median_us)

    def _subject(self, candidate: Candidate) -> Subject | None:
        """None for a text that mutators do not take."""
        if (mutant := self.sent.get(candidate.candidate_id)) is not None:
            return mutant.subject
        workload = self.task.order.workload
        text = extract_program(candidate.program)
        try:
            return subject_of(
                text,
                self.task.problem.matrix,
                workload.operation,
                workload.element_type,
                workload.num_dense_cols,
                _instance(candidate.origin, text, self.task),
            )
        except SparsesmithError as error:
            log.debug("%s is not changed: %s", candidate.candidate_id, error)
            return None

    def _open(self) -> list[Node]:
        loop = self.loop
        return [
            node
            for node in self.nodes[: loop.beam]
            if node.num_children < loop.children and node.generation < loop.generations and not node.is_spent
        ]

    def _child(self, node: Node) -> Iterator[Candidate]:
        for attempt in range(DRAWS_A_CHILD):
            seed = f"{node.num_children}.{attempt}"
            mutant = drawn(node.subject, seed, Random(seed).choice(STEPS))
            if mutant is not None and mutant.text not in self.tried:
                node.num_children += 1
                self.tried.add(mutant.text)
                yield self._candidate(node, mutant, seed)
                return
        node.is_spent = True

    def _candidate(self, node: Node, mutant: Mutant, seed: str) -> Candidate:
        origin = Mutated(
            parent=node.candidate_id,
            deed=mutant.deed,
            seed=seed,
            generation=node.generation + 1,
            report=node.report,
        )
        name = f"{self.task.run_id}-m{len(self.sent)}"
        self.sent[name] = mutant
        return Candidate(candidate_id=name, program=mutant.text, origin=origin)


class MutateProposer:
    """Children of the fastest programs of all sources, in rhythm with what is graded."""

    name: SourceName = "mutate"

    def __init__(self, task: TuningTask, limit: int, loop: Refinement | None = None) -> None:
        """`loop`: how far it goes; as usual without."""
        self._beam = Beam(task, loop or Refinement())
        self._limit = limit
        self._num_read = 0
        self._waits: tuple[Standing, int] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether it waits for grades: nothing is left to change before they are there."""
        return self._waits is not None

    @property
    def is_ready(self) -> bool:
        return self._waits is not None and self._waits[0].num_back > self._waits[1]

    async def propose(self, size: int, standing: Standing) -> Batch:
        """See Proposer."""
        self._waits = None
        for report in standing.after(self._num_read):
            self._num_read += 1
            self._beam.read(report)
        size = min(size, self._limit - len(self._beam.sent))
        if size <= 0:
            raise Exhausted
        batch = await asyncio.to_thread(self._beam.children, size)
        if not batch and standing.num_under_way <= 0:
            raise Exhausted
        if not batch:
            self._waits = standing, standing.num_back
        return tuple(batch)

    async def ready(self) -> None:
        if self._waits is not None:
            await self._waits[0].news(self._waits[1])

    async def close(self) -> None:
        """Nothing is held."""


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
