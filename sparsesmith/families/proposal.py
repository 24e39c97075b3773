"""Family instances for a pattern: every prospect of every family, and a pick of likely winners by estimates alone."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice, starmap
from operator import itemgetter
from typing import Generic, TypeVar

from sparsesmith.elements import ELEMENTS
from sparsesmith.families.catalogue import FAMILIES
from sparsesmith.families.estimates.cost import Ending, Prospect, Work, early_us, endings
from sparsesmith.families.estimates.statistics import PatternStatistics
from sparsesmith.families.family import Family, FamilyInstance, different
from sparsesmith.formats.format import ParameterValue
from sparsesmith.matrix.features import NUM_WINDOWS
from sparsesmith.matrix.pattern import Pattern
from sparsesmith_proto.message import ElementType, Operation
from sparsesmith_proto.words import ReorderOption

VARIATION_PENALTY = 0.06
"""The n-th choice of a family competes as if it were estimated n x 6 % slower: families take turns, winners more."""

TRUST = 0.6
"""Exponent of an estimate: below 1 it counts for less against the penalties, above all between families."""

REPEAT_PENALTY = 0.8
"""Every choice of a family but its first: families that are not far behind all get a turn before variations start."""

HOPELESS = 16.0
"""Times the least estimate of a workload, beyond which a prospect is not worth a place: a row of millions that a few
lanes walk alone would hold up a whole batch. Of 35,000 programs measured on an H200, the fastest of each workload had
an estimate of at most 2.4 times the least; the 2,268 beyond this bound took 1.6 times as long as that, or more."""


TRIED_FIRST = 2
"""Times the number wanted of a family in a hurry: so many of its prospects get the axes that they leave open."""

OPEN_AXES = ("registers", "dependency")
"""What prospects may leave open, where their family has it."""

OfFamily = TypeVar("OfFamily")


@dataclass(frozen=True, eq=False)
class Proposed(Generic[OfFamily]):
    """A family with parameters worth trying; its program is not written yet."""

    family: OfFamily
    prospect: Prospect

    @property
    def parameters(self) -> dict[str, ParameterValue]:
        return self.prospect.parameters

    @property
    def estimated_us(self) -> float:
        return self.prospect.estimated_us


class FamilyProspect(Proposed[Family]):
    """Of a product with a matrix."""

    def instance(self, element_type: ElementType, num_dense_cols: int) -> FamilyInstance:
        """With the program written."""
        return self.family.instance(self.parameters, element_type, num_dense_cols)


def work_of(
    pattern: Pattern, element_type: ElementType, num_dense_cols: int = 1, num_windows: int = NUM_WINDOWS
) -> Work:
    """What prospects are made for. `num_windows`: see `PatternStatistics`."""
    return Work(PatternStatistics(pattern, num_windows), ELEMENTS[element_type].num_bytes, num_dense_cols)


def prospects_of(
    work: Work, operation: Operation, element_type: ElementType, reorder: ReorderOption = "keep"
) -> list[FamilyProspect]:
    """Every legal prospect of every family that suits the pattern, family by family, hundreds to thousands; without
    those that are hopeless, and without families that change the order of rows and columns unless that is allowed."""
    found = [
        FamilyProspect(family, prospect)
        for family in FAMILIES.values()
        if family.operation == operation and (reorder == "allowed" or not family.reorders)
        if family.suits(work.statistics.pattern)
        for prospect in _spread(family, work, family.prospects(work))
        if family.accepts(prospect.parameters, element_type, work.num_dense_cols)
    ]
    bound = HOPELESS * min((entry.estimated_us for entry in found), default=0.0)
    return [entry for entry in found if entry.estimated_us <= bound]


def shortlist(
    work: Work, operation: Operation, element_type: ElementType, left_out: Collection[str], most: int
) -> list[FamilyProspect]:
    """The prospects that would be proposed in a hurry, at most so many of a family: those of the least estimates, all
    started early, of families that are not left out. To find another order of rows takes too long for that."""
    found: list[FamilyProspect] = []
    for family in FAMILIES.values():
        if family.operation != operation or family.reorders or family.name in left_out:
            continue
        if not family.suits(work.statistics.pattern):
            continue
        prospects = list(family.prospects(work))
        bound_us = sorted(each.estimated_us for each in prospects)[: TRIED_FIRST * most][-1] if prospects else 0.0
        likely = [each for each in prospects if each.estimated_us <= bound_us]
        chosen = _least_early(family, work, element_type, likely, most)
        # The others' estimates are above the bound, whatever is added to them.
        if len(likely) < len(prospects) and (len(chosen) < most or chosen[-1].estimated_us > early_us(bound_us)):
            chosen = _least_early(family, work, element_type, prospects, most)
        found += chosen
    return found


def _least_early(
    family: Family, work: Work, element_type: ElementType, prospects: Sequence[Prospect], most: int
) -> list[FamilyProspect]:
    """Of the legal ones that start early those of the least estimates."""
    early = [
        (ending.estimated_us(each.estimated_us), each, ending)
        for each, ending in _ended(family, work, iter(prospects), early_only=True)
        if each.parameters.get("dependency") != "full"
    ]
    early.sort(key=itemgetter(0))
    legal = (
        FamilyProspect(family, each)
        for each in starmap(_prospect, early)
        if family.accepts(each.parameters, element_type, work.num_dense_cols)
    )
    return list(islice(legal, most))


def _spread(family: Family, work: Work, prospects: Iterator[Prospect]) -> Iterator[Prospect]:
    """The family's own prospects, each with every value of the axes that it leaves open."""
    for each, ending in _ended(family, work, prospects, early_only=False):
        yield _prospect(ending.estimated_us(each.estimated_us), each, ending)


def _ended(
    family: Family, work: Work, prospects: Iterator[Prospect], *, early_only: bool
) -> Iterator[tuple[Prospect, Ending]]:
    """Prospects with every ending; `early_only`: of the family's start the one."""
    axes = tuple(name for name in OPEN_AXES if name in family.parameters)
    known: dict[tuple[str, ...], list[Ending]] = {}
    for each in prospects:
        left_open = tuple([name for name in axes if name not in each.parameters])
        if left_open not in known:
            known[left_open] = endings(work, left_open, early_only=early_only)
        for ending in known[left_open]:
            yield each, ending


def _prospect(estimated_us: float, prospect: Prospect, ending: Ending) -> Prospect:
    return Prospect(estimated_us, {**prospect.parameters, **ending.parameters})


def propose(
    pattern: Pattern,
    operation: Operation,
    element_type: ElementType,
    num_dense_cols: int = 1,
    limit: int = 64,
    reorder: ReorderOption = "keep",
) -> list[FamilyInstance]:
    """At most `limit` different instances that can be built for the pattern, most promising first."""
    work = work_of(pattern, element_type, num_dense_cols)
    return first_of(prospects_of(work, operation, element_type, reorder), element_type, num_dense_cols, limit)


def first_of(
    prospects: Sequence[FamilyProspect], element_type: ElementType, num_dense_cols: int, limit: int
) -> list[FamilyInstance]:
    """At most `limit` different ones, written, most promising first. `prospects` come family by family."""
    ranked = by_estimate(prospects)
    return list(islice(different(entry.instance(element_type, num_dense_cols) for entry in ranked), limit))


def by_estimate(prospects: Sequence[FamilyProspect]) -> list[FamilyProspect]:
    """Likely winners first, families taking turns. `prospects` come family by family."""
    ranked = []
    for _, of_family in groupby(prospects, key=lambda entry: entry.family.name):
        for place, entry in enumerate(sorted(of_family, key=lambda entry: entry.estimated_us)):
            penalty = VARIATION_PENALTY * place + REPEAT_PENALTY * (place > 0)
            ranked.append((entry.estimated_us**TRUST * (1 + penalty), entry))
    return [entry for _, entry in sorted(ranked, key=lambda pair: pair[0])]
