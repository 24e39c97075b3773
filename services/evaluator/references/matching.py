"""Which task of ours an imported one is, found by what both compute: our programs then solve it.

Shapes are laid over each other first: each of our operands is one of theirs, its sizes products of neighbouring ones.
What is left is asked for results on the inputs that the import was tried with, and must agree within the bound.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from sparsesmith.errors import InvalidOption
from sparsesmith.operations.catalogue import check_axes, our_tasks
from sparsesmith.operations.imported.bound import right_of
from sparsesmith.operations.imported.card import Card, ImportedOperand
from sparsesmith.operations.imported.references import Answer, Arrays
from sparsesmith.operations.operand import Operand, Sizes
from sparsesmith.operations.operation import task_sizes
from sparsesmith.operations.problem import Problem
from sparsesmith.operations.task import Task
from sparsesmith.operations.texts import element_types_of
from sparsesmith_proto.kernel import Workload

MOST_OPERATIONS = 10**12
"""Of what our own reference computes on the host to compare."""
MOST_OPERATIONS_A_BYTE = 4096
"""Beyond, what it holds in between may be far larger than its operands: scores of `attention` are n by n."""
NOT_OURS = ("bubble_sort",)
"""Its algorithm is prescribed, which no result shows."""


@dataclass(frozen=True)
class Solved:
    """A task of ours that computes the same."""

    task: str
    sizes: Sizes
    """By our names, those that follow too."""
    operands: Mapping[str, str]
    """Our names by theirs."""
    axes: Mapping[str, tuple[str, ...]]
    """Our shapes by their names of operands."""
    programs: Mapping[str, str]
    """The naive one first, for the imported task."""


def solved_by(card: Card, judged: Sequence[tuple[Arrays, Answer]]) -> Solved | None:
    """The first that fits. None: nothing of ours computes this."""
    for task in our_tasks():
        if task.name in NOT_OURS or card.element_type not in element_types_of(task):
            continue
        for pairs, axes in _overlays(task, card):
            if _agrees(task, axes, pairs, card, judged):
                return _solved(task, axes, pairs, card)
    return None


Pairs = Sequence[tuple[Operand, ImportedOperand]]


def _overlays(task: Task, card: Card) -> Iterator[tuple[Pairs, Sizes]]:
    """Ways in which its operands, in their order, could be ours, each with the axes that follow."""
    ours = [each for each in task.operands if each.role in ("input", "output")]
    if len(ours) != len(task.operands) or len(ours) != len(card.operands):
        return
    pairs = list(zip(ours, card.operands, strict=True))
    if not all(_same_kind(own, other) for own, other in pairs):
        return
    for sizes in _unified(pairs, card, {}):
        if set(task.axes) <= set(sizes) and _fits(task, sizes):
            yield pairs, {axis: sizes[axis] for axis in task.axes}


def _same_kind(own: Operand, other: ImportedOperand) -> bool:
    return own.role == other.role and (own.dtype == "T") == other.is_floating


def _unified(pairs: Pairs, card: Card, known: Sizes) -> Iterator[dict[str, int]]:
    if not pairs:
        yield dict(known)
        return
    (own, other), *rest = pairs
    for found in _grouped(own.axes, [card.fixed[axis] for axis in other.axes]):
        if all(known.get(axis, size) == size for axis, size in found.items()):
            yield from _unified(rest, card, {**known, **found})


def _grouped(axes: tuple[str, ...], shape: Sequence[int]) -> Iterator[dict[str, int]]:
    """Our axes as products of neighbouring sizes of theirs, from the whole to the parts."""
    if not axes:
        if prod(shape) == 1:
            yield {}
        return
    for end in range(len(shape), -1, -1):
        first, rest = prod(shape[:end]), shape[end:]
        for found in _grouped(axes[1:], rest):
            if found.get(axes[0], first) == first:
                yield {axes[0]: first, **found}


def _fits(task: Task, sizes: Sizes) -> bool:
    """Whether its constraints hold, and sizes that follow are those that were found."""
    try:
        check_axes(task, 1, {axis: sizes[axis] for axis in task.axes})
    except InvalidOption:
        return False
    follow = task_sizes(task, sizes)
    return all(sizes.get(name, size) == size for name, size in follow.items())


def _agrees(task: Task, axes: Sizes, pairs: Pairs, card: Card, judged: Sequence[tuple[Arrays, Answer]]) -> bool:
    problem = Problem(Workload(operation=task.name, element_type=card.element_type, axes=dict(axes)))
    floor = problem.floor
    if floor.flops > min(MOST_OPERATIONS, MOST_OPERATIONS_A_BYTE * floor.bytes_moved):
        return False
    return all(_agrees_on(problem, pairs, card, inputs, answer) for inputs, answer in judged)


def _agrees_on(problem: Problem, pairs: Pairs, card: Card, inputs: Arrays, answer: Answer) -> bool:
    given: dict[str, Any] = {
        own.name: inputs[other.name].reshape(own.shape(problem.sizes)) for own, other in pairs if own.role == "input"
    }
    if not _is_legal(problem, given):
        return False
    found = problem.operation.expect(problem, given)
    for own, other in pairs:
        if own.role != "output":
            continue
        right = right_of(card, other, answer)
        with np.errstate(invalid="ignore"):
            off = np.abs(found[own.name].reference.reshape(right.reference.shape) - right.reference)
        if not (off <= right.bound).all():
            return False
    return True


def _is_legal(problem: Problem, given: Mapping[str, Any]) -> bool:
    """Whole numbers among the inputs of ours are labels or keys below one of the sizes."""
    whole = [array for name, array in given.items() if array.dtype.kind == "i"]
    bounds = [problem.sizes[name] for name in ("classes", "bins") if name in problem.sizes]
    return all(array.min() >= 0 and array.max() < min(bounds) for array in whole) if whole and bounds else not whole


def _solved(task: Task, axes: Sizes, pairs: Pairs, card: Card) -> Solved:
    programs = {
        name: task.programs[name].replace(f"//@ task {task.name}\n", f"//@ task {card.name}\n", 1)
        for name in (task.naive, *(other for other in task.programs if other != task.naive))
    }
    return Solved(
        task=task.name,
        sizes=task_sizes(task, axes),
        operands={other.name: own.name for own, other in pairs},
        axes={other.name: own.axes for own, other in pairs},
        programs=programs,
    )
