"""Chains of refinements: which program is changed next, how often, and how far down."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from services.generator.writing import Ask, Attempt
from sparsesmith_proto.api import Refinement

MAX_REPAIRS = 2
"""Of a failure in a row: a repair that fails is repaired once more."""

OF_KNOBS = "-k-"
"""Between a candidate's id and the number of a setting of its knobs."""


@dataclass(eq=False)
class Node:
    """A program that may be changed; the words alone, where there is no attempt."""

    attempt: Attempt | None
    num_children: int = 0
    num_repairs: int = 0
    """Failures in a row that end here; 0: it passed."""
    is_spent: bool = False
    """The writer makes nothing of it that is new."""

    @property
    def is_barren(self) -> bool:
        """The writer makes nothing at all of it: another program has its place."""
        return self.is_spent and not self.num_children

    @property
    def generation(self) -> int:
        return 0 if self.attempt is None else self.attempt.generation

    @property
    def median_us(self) -> float:
        found = None if self.attempt is None else self.attempt.median_us
        return math.inf if found is None else found


@dataclass(eq=False)
class Chain:
    """The fastest programs are changed again and again; a failure is repaired before they are."""

    loop: Refinement
    nodes: list[Node] = field(default_factory=list)
    """The fastest first; the words alone last."""
    in_rounds: bool = False
    """Whether a program whose children were begun has all of them, though faster ones are found meanwhile."""
    failures: list[Node] = field(default_factory=list)

    def enter(self, attempt: Attempt) -> None:
        """A program that passed. Of the settings of one program the fastest counts."""
        name = _of_program(attempt)
        known = next((node for node in self.nodes if node.attempt and _of_program(node.attempt) == name), None)
        if known is None:
            self.nodes.append(Node(attempt))
        elif (attempt.median_us or math.inf) < known.median_us:
            known.attempt = attempt
        self.nodes.sort(key=lambda node: node.median_us)

    def enter_failure(self, attempt: Attempt) -> None:
        num_repairs = 1
        before = attempt.before
        while before is not None and before.median_us is None:
            num_repairs, before = num_repairs + 1, before.before
        self.failures.append(Node(attempt, num_repairs=num_repairs))

    def open(self) -> Iterator[Node]:
        """Programs of which there may be another child: failures, the newest first, then the fastest."""
        for node in reversed(self.failures):
            if (
                not node.is_spent
                and not node.num_children
                and node.num_repairs <= MAX_REPAIRS
                and self._may_go_on(node)
            ):
                yield node
        for node in self._beam():
            if node.num_children < self.loop.children and self._may_go_on(node):
                yield node

    def _beam(self) -> list[Node]:
        begun = [node for node in self.nodes if 0 < node.num_children < self.loop.children and not node.is_spent]
        first = begun if self.in_rounds else []
        others = (node for node in self.nodes if node not in first and not node.is_barren)
        return [*first, *others][: self.loop.beam]

    def _may_go_on(self, node: Node) -> bool:
        return not node.is_spent and node.generation < self.loop.generations


def ask_about(node: Node, number: int) -> Ask:
    """Counts it."""
    ask = Ask(number, node.attempt, node.num_children)
    node.num_children += 1
    return ask


def _of_program(attempt: Attempt) -> str:
    return attempt.candidate.candidate_id.partition(OF_KNOBS)[0]
