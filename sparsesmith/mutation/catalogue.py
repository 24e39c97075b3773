"""Every mutator by name, and random choice among them. A new one is a module and its line here."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random

from sparsesmith.errors import InvalidInput
from sparsesmith.mutation.blocks import blocks
from sparsesmith.mutation.bounds import bounds
from sparsesmith.mutation.child import Child, Mutator
from sparsesmith.mutation.grids import grids
from sparsesmith.mutation.hints import hints
from sparsesmith.mutation.lanes import odd_lanes
from sparsesmith.mutation.loops import unrolling
from sparsesmith.mutation.mixtures import mixtures
from sparsesmith.mutation.offgrid import bins, off_grid
from sparsesmith.mutation.staging import staging
from sparsesmith.mutation.subject import Subject, subject_of
from sparsesmith.mutation.waits import waits

MUTATORS: Mapping[str, Mutator] = {
    "hints": hints,
    "bounds": bounds,
    "blocks": blocks,
    "unrolling": unrolling,
    "waits": waits,
    "grids": grids,
    "staging": staging,
    "off_grid": off_grid,
    "bins": bins,
    "odd_lanes": odd_lanes,
    "mixtures": mixtures,
}

MOST_BUILT_NNZ = 2_000_000
"""Of larger matrices formats are not built to see whether they can be: the evaluator says so."""

SEPARATOR = " + "
"""Between the deeds of a program that was changed more than once."""


@dataclass(frozen=True, eq=False)
class Mutant:
    """A changed program within the contract."""

    deed: str
    """What was done, by which gains are counted: `hints: x ldcg`; several with `+` between."""
    subject: Subject

    @property
    def text(self) -> str:
        return self.subject.text


def mutants(subject: Subject, name: str) -> Iterator[Mutant]:
    """Every different program that the mutator of this name makes of it."""
    seen = {subject.text}
    for child in MUTATORS[name](subject):
        if child.text not in seen:
            seen.add(child.text)
            if (mutant := _mutant(subject, name, child)) is not None:
                yield mutant


def random_mutant(
    subject: Subject, seed: str, steps: int = 1, worth: Mapping[str, float] | None = None
) -> Mutant | None:
    """A program changed `steps` times, each time by a mutator that has something to change and one of its changes.

    `worth`: how likely each mutator is to be chosen, beside others, by name; under "" those that are not named. None:
    all alike. The same seed gives the same program. None is given where there is nothing to change.
    """
    random, deeds = Random(seed), list[str]()
    for _ in range(steps):
        mutant = _step(subject, random, worth)
        if mutant is None:
            break
        deeds.append(mutant.deed)
        subject = mutant.subject
    return Mutant(SEPARATOR.join(deeds), subject) if deeds else None


def _step(subject: Subject, random: Random, worth: Mapping[str, float] | None) -> Mutant | None:
    for name in _ordered(random, worth):
        children = list(MUTATORS[name](subject))
        for child in random.sample(children, len(children)):
            if child.text != subject.text and (mutant := _mutant(subject, name, child)) is not None:
                return mutant
    return None


def _ordered(random: Random, worth: Mapping[str, float] | None) -> list[str]:
    """Drawn one after the other without replacement, each as likely as it is worth (Efraimidis and Spirakis, 2006)."""
    if worth is None:
        return random.sample(list(MUTATORS), len(MUTATORS))
    keys = {name: random.random() ** (1 / worth.get(name, worth[""])) for name in MUTATORS}
    return sorted(keys, key=keys.__getitem__, reverse=True)


def _mutant(subject: Subject, name: str, child: Child) -> Mutant | None:
    """None where the contract speaks against it, or its format cannot hold the matrix."""
    try:
        changed = subject_of(
            child.text,
            subject.matrix,
            subject.operation,
            subject.element_type,
            subject.num_dense_cols,
            child.instance,
        )
        _check_format(subject, changed)
    except InvalidInput:
        return None
    return Mutant(f"{name}: {child.change}", changed)


def _check_format(subject: Subject, changed: Subject) -> None:
    """Raises InvalidProgram where another format than before does not hold the matrix."""
    before, after = subject.program, changed.program
    is_same = after.format == before.format and after.parameters == before.parameters
    if subject.matrix is not None and not is_same and subject.matrix.nnz <= MOST_BUILT_NNZ:
        after.format.build(subject.matrix, after.parameters)
