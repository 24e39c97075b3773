"""How many draws of a problem without a product a device's memory has room for.

What it does not protect against: others that take of the memory afterwards. What is short then raises where it is asked
for.
"""

from dataclasses import dataclass

from services.evaluator.checking.drawn_at_once import judging_bytes
from services.evaluator.checking.draws import MIN_DRAWS, most_draws
from sparsesmith.errors import LimitExceeded
from sparsesmith.operations import Problem

NUM_CHANGED = 12
"""As many as finals are vouched for with."""
MAX_CHANGED_BYTES = 4 << 30
"""Device memory of what changed draws are judged by."""
NUM_FRESH = 3
"""Draws with everything new, of the kind that is timed."""
BESIDE = 2
"""Draws beside those of a batch: what changes, and what baselines are checked on."""
PROGRAMS = 3
"""Times the operands: one program's buffers, generously."""
MEMORY_SHARE = 0.9
"""Of the memory that is free, where there are more draws than need be."""


@dataclass(frozen=True)
class Held:
    """Draws in a device's memory at once."""

    num_draws: int
    """Of different kinds, beside those that are called adverse."""
    num_fresh: int


def held_draws(problem: Problem, free_bytes: int) -> Held:
    """As many as there are kinds and as fit; two kinds at least, and two fresh ones, so that one can follow another.

    Raises LimitExceeded where those do not fit.
    """
    most = most_draws(problem)
    for number in range(most, MIN_DRAWS, -1):
        if resident_bytes(problem, number) <= MEMORY_SHARE * free_bytes:
            return Held(number, num_fresh(number))
    least = min(MIN_DRAWS, most)
    needed = resident_bytes(problem, least)
    if needed > free_bytes:
        raise LimitExceeded(
            f"the workload needs about {needed} bytes of device memory with inputs of {least} kinds, "
            f"{free_bytes} bytes are free",
            field="pattern" if problem.matrix is not None else "axes",
            value=needed,
            limit=free_bytes,
        )
    return Held(least, num_fresh(least))


def resident_bytes(problem: Problem, num_draws: int) -> int:
    """Device memory for so many draws, what is judged beside them, and one program's buffers, generously."""
    a_draw = problem.operand_bytes + judging_bytes(problem)
    of_matrix = 0 if problem.matrix is None else problem.compared_bytes
    held = (BESIDE + num_draws + num_fresh(num_draws)) * a_draw
    return held + num_changed(problem) * judging_bytes(problem) + PROGRAMS * (problem.operand_bytes + of_matrix)


def num_fresh(num_draws: int) -> int:
    """Beside so many draws of different kinds."""
    return min(NUM_FRESH, max(num_draws, 2))


def num_changed(problem: Problem) -> int:
    """Changed draws at most: one at least, whatever memory it takes."""
    return max(1, min(NUM_CHANGED, MAX_CHANGED_BYTES // max(judging_bytes(problem), 1)))
