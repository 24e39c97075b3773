"""An imported task as an operation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sparsesmith.operations.imported.bound import right_of
from sparsesmith.operations.imported.card import Card, DrawKind, ImportedOperand
from sparsesmith.operations.imported.constraints import holds
from sparsesmith.operations.imported.references import installed
from sparsesmith.operations.operand import Operand, Sizes
from sparsesmith.operations.operation import Arrays, Expected, Floor
from sparsesmith.operations.task import Task
from sparsesmith_proto.message import ElementType

if TYPE_CHECKING:
    from sparsesmith.operations.problem import Problem


@dataclass(frozen=True, kw_only=True)
class ImportedTask(Task):
    """Its reference is run by an evaluator alone."""

    card: Card
    folder: Path

    @property
    def element_types(self) -> tuple[ElementType, ...]:
        """See Typed.element_types."""
        return (self.card.element_type,)

    def floor(self, problem: Problem) -> Floor:
        """Of results alone, unless it is a task of ours: which inputs a program must read is not known."""
        if self.card.solves:
            return super().floor(problem)
        results = (each for each in problem.arrays if each.role == "output")
        written = sum(each.num_bytes(problem.sizes, problem.element_type) for each in results)
        return Floor(written, self.flops(problem.sizes))


def imported_task(card: Card, folder: Path, programs: Mapping[str, str], text: str) -> ImportedTask:
    """`programs`: with `T` for the element type, the naive one first."""
    return ImportedTask(
        name=card.name,
        formula=card.formula,
        text=text,
        axes=card.axes,
        operands=tuple(map(_operand, card.operands)),
        right=partial(_right, folder, card),
        flops=_flops(card),
        programs=programs,
        naive=next(iter(programs), ""),
        trial=card.trial,
        published=card.published,
        draws={kind: partial(_drawn, folder, card, kind) for kind in card.kinds},
        derived={name: _always(size) for name, size in card.fixed.items()},
        constraints={text: partial(holds, text, card.fixed) for text in card.constraints},
        card=card,
        folder=folder,
    )


def _operand(operand: ImportedOperand) -> Operand:
    meaning = f"{operand.original}, {operand.given}" if operand.original else operand.given
    return Operand(operand.name, operand.role, operand.axes, "T" if operand.is_floating else "int32", meaning)


def _drawn(folder: Path, card: Card, kind: DrawKind, problem: Problem, generator: np.random.Generator) -> Arrays:
    return installed().draw(folder, card, kind, problem.sizes, int(generator.integers(2**62)))


def _right(folder: Path, card: Card, problem: Problem, inputs: Arrays) -> Mapping[str, Expected]:
    answer = installed().answer(folder, card, problem.sizes, inputs)
    return {each.name: right_of(card, each, answer) for each in card.operands if each.role == "output"}


def _flops(card: Card) -> Callable[[Sizes], int]:
    """What was counted, at other sizes by the elements of all operands; at least one an element."""

    def elements(sizes: Sizes) -> int:
        return sum(_operand(each).num_elements({**card.fixed, **sizes}) for each in card.operands)

    def flops(sizes: Sizes) -> int:
        now = elements(sizes)
        then = elements(card.trial) if set(card.trial) == set(card.axes) else now
        return max(now, card.flops * now // max(then, 1))

    return flops


def _always(size: int) -> Callable[[Sizes], int]:
    return lambda _: size
