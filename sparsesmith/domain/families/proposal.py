"""Family instances for a pattern, most promising first: what classical autotuning tries, and supervised data."""

from collections.abc import Iterator
from itertools import islice

from sparsesmith.domain.families.catalogue import FAMILIES
from sparsesmith.domain.families.family import Family, FamilyInstance
from sparsesmith.domain.families.prospects import Prospect, Work, with_registers
from sparsesmith.domain.families.shape import Shape
from sparsesmith.domain.families.source import BYTES
from sparsesmith.domain.families.spmm_prospects import PROSPECTS as SPMM_PROSPECTS
from sparsesmith.domain.families.spmv_prospects import PROSPECTS as SPMV_PROSPECTS
from sparsesmith.domain.pattern import Pattern
from sparsesmith_proto.message import ElementType, Operation

VARIATION_PENALTY = 0.06
"""The n-th choice of a family competes as if it were estimated n x 6 % slower: families take turns, winners more."""

TRUST = 0.6
"""Exponent of an estimate: below 1 it counts for less against the penalties, above all between families."""

REPEAT_PENALTY = 0.8
"""Every choice of a family but its first: families that are not far behind all get a turn before variations start."""


def propose(
    pattern: Pattern, operation: Operation, element_type: ElementType, num_dense_cols: int = 1, limit: int = 64
) -> list[FamilyInstance]:
    """At most `limit` different instances that can be built for the pattern, most promising first."""
    work = Work(Shape(pattern), BYTES[element_type], num_dense_cols)
    ranked = sorted(_ranked(work, operation, element_type), key=lambda entry: entry[0])
    instances = (
        FamilyInstance(
            family.name, prospect.parameters, family.render(prospect.parameters, element_type, num_dense_cols)
        )
        for _, family, prospect in ranked
    )
    return list(islice(_different(instances), limit))


def _ranked(work: Work, operation: Operation, element_type: ElementType) -> Iterator[tuple[float, Family, Prospect]]:
    """Every prospect of every family that suits, with the penalty for its place in its family."""
    for family in FAMILIES.values():
        if family.operation != operation or not family.suits(work.shape.pattern):
            continue
        prospects = SPMV_PROSPECTS[family.name] if operation == "spmv" else SPMM_PROSPECTS[family.name]
        legal = [
            prospect
            for prospect in with_registers(work, prospects(work))
            if family.accepts(prospect.parameters, element_type, work.num_dense_cols)
        ]
        for place, prospect in enumerate(sorted(legal, key=lambda prospect: prospect.estimated_us)):
            penalty = VARIATION_PENALTY * place + REPEAT_PENALTY * (place > 0)
            yield prospect.estimated_us**TRUST * (1 + penalty), family, prospect


def _different(instances: Iterator[FamilyInstance]) -> Iterator[FamilyInstance]:
    seen = set()
    for instance in instances:
        if instance.program not in seen:
            seen.add(instance.program)
            yield instance
