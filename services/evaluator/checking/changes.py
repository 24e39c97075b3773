"""Inputs with one entry changed, made on the host: what a program that was timed is run on again, any operation's.

A program that skips work because its inputs look the same, because it has done the work before, or in every second
launch, gives the result of before, which is outside the bound of the result that is right then. Values come from other
draws of the same kind, so that they are such as the operation takes; where it takes any number, and a long sum would
hide one entry, they are enlarged until it shows.

What it does not protect against: work left out where no change that was drawn shows in the result.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from services.evaluator.checking.draws import draw_inputs, expected_of, input_operands
from services.evaluator.device import Draw
from sparsesmith.operations import Operand, Problem
from sparsesmith.operations.draws import takes_any_number
from sparsesmith.operations.operation import Array, Arrays

STEPS = 3
"""Entries that are tried for each change that is wanted: some show nowhere, whatever they become."""

TRIES = 4
"""Values that are tried of an entry before another one is drawn."""

ENLARGEMENTS = (2.0**8, 2.0**16, 2.0**24)
"""Of the size of a value that does not show, in turn: where one class or the largest counts, a small one would not."""


@dataclass(frozen=True, eq=False)
class Change:
    """One entry of one input, and the draw with it: every change before it is made, too."""

    operand: str
    """VALUES: of the matrix, in CSR order."""
    index: int
    """Of the entry, row-major."""
    value: Array
    """Shape [1], in the operand's type."""
    draw: Draw


def changes(
    problem: Problem, drawn: Draw, number: int, generator: np.random.Generator, limit_s: float
) -> Iterator[Change]:
    """So many at most, each on top of the one before, operands in turn; none is begun after the time is over.

    `drawn` in host memory.
    """
    operands = [each for each in input_operands(problem) if drawn.inputs[each.name].size]
    if not operands:
        return
    end, now = time.monotonic() + limit_s, drawn
    other = draw_inputs(drawn.name, problem, generator)
    turn = int(generator.integers(len(operands)))
    for step in range(turn, turn + STEPS * number):
        operand = operands[step % len(operands)]
        change = _shown(problem, now, operand, other, generator)
        if change is not None:
            now, number = change.draw, number - 1
            yield change
        if number == 0 or time.monotonic() > end:
            return


def _shown(
    problem: Problem, now: Draw, operand: Operand, other: Arrays, generator: np.random.Generator
) -> Change | None:
    """A change of an entry drawn evenly that shows in the result; None where none of a few does."""
    index = int(generator.integers(now.inputs[operand.name].size))
    for value in _values(problem, operand, other[operand.name], generator):
        array = now.inputs[operand.name].copy()
        array.reshape(-1)[index] = value
        inputs = {**now.inputs, operand.name: array}
        changed = replace(now, inputs=inputs, **expected_of(now.name, problem, inputs))
        if shows(now, changed):
            return Change(operand.name, index, array.reshape(-1)[index : index + 1].copy(), changed)
    return None


def _values(problem: Problem, operand: Operand, other: Array, generator: np.random.Generator) -> Iterator[float]:
    """Of other draws; enlarged where any number is one that the operation takes."""
    for _ in range(TRIES):
        value = other.reshape(-1)[int(generator.integers(other.size))]
        yield value
    if takes_any_number(problem.operation, operand):
        yield from (abs(float(value)) * factor + factor for factor in ENLARGEMENTS)


def shows(before: Draw, after: Draw) -> bool:
    """Whether a result that is right before is wrong after."""
    if after.residuals is not None:
        return any(bool((abs(each.found) > each.bound).any()) for each in after.residuals(before.right).values())
    for name, was in before.expected.items():
        now = after.expected[name]
        with np.errstate(invalid="ignore"):
            apart = abs(now.reference - was.reference) > now.bound + was.bound
        if bool((apart | (np.isnan(now.reference) != np.isnan(was.reference))).any()):
            return True
    return False
