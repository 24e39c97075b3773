"""The few changes of a family's program that most often made one faster: sizes of blocks that no family offers, and how
many blocks shall be resident.

Chosen by a harvest on train-side matrices (`sparsesmith.mutation.worth`): of single changes these two kinds won most.
Nearly all that won were whole warps between the powers of two, not far from the parent's size.
"""

import math
from collections.abc import Iterator
from itertools import chain, zip_longest

from sparsesmith.mutation.catalogue import Mutant, mutants
from sparsesmith.mutation.subject import Subject

OFF_GRID_BLOCK = "off_grid: block "
FARTHEST = 5.0
"""Times, or parts of, the threads of the parent's block."""
BOUNDS = ("min blocks 2", "no bound", "min blocks 12", "min blocks 4", "min blocks 1")
"""Of those that won, the most frequent first."""
BLOCKS_A_BOUND = 3
"""Changed blocks before each changed bound."""


def likely_mutants(subject: Subject) -> Iterator[Mutant]:
    """Each within the contract and different, the likeliest first. None where no family wrote the program."""
    blocks, bounds = _blocks(subject), _bounds(subject)
    turns = [iter(blocks)] * BLOCKS_A_BOUND
    rows = zip_longest(*turns, bounds)
    yield from (mutant for mutant in chain.from_iterable(rows) if mutant is not None)


def _blocks(subject: Subject) -> list[Mutant]:
    """The nearest first."""
    before = None if subject.instance is None else subject.instance.parameters.get("block")
    if not isinstance(before, int):
        return []
    found = []
    for mutant in mutants(subject, "off_grid"):
        if mutant.deed.startswith(OFF_GRID_BLOCK):
            distance = abs(math.log(int(mutant.deed.removeprefix(OFF_GRID_BLOCK)) / before))
            if distance <= math.log(FARTHEST):
                found.append((distance, mutant))
    return [mutant for _, mutant in sorted(found, key=lambda pair: pair[0])]


def _bounds(subject: Subject) -> Iterator[Mutant]:
    known = {mutant.deed.removeprefix("bounds: "): mutant for mutant in mutants(subject, "bounds")}
    return (known[change] for change in BOUNDS if change in known)
