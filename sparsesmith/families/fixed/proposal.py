"""What to try where a request fixes the values: families of their own, and the general ones with values compressed."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice, zip_longest

import numpy as np

from sparsesmith.families.catalogue import FAMILIES
from sparsesmith.families.estimates.statistics import PatternStatistics
from sparsesmith.families.family import FamilyInstance, different
from sparsesmith.families.fixed.family import FixedFamily, FixedWork
from sparsesmith.families.fixed.rows import FIXED_FAMILIES
from sparsesmith.families.text.values import Compression
from sparsesmith.formats.format import ParameterValue
from sparsesmith.formats.values.storage import Constant, Dictionary, Float32, distinct
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.matrix.values import FixedValues
from sparsesmith_proto.message import ElementType, Operation

MIN_REPEATS = 4
"""A table of 16-bit codes pays where a value stands for this many nonzeros on average."""
OWN_CHOICES = 40


def compressions(values: FixedValues) -> list[Compression]:
    """What the values allow, smallest first; nothing of 16-bit values, which are read as they are."""
    array = values.array
    if array.dtype.itemsize == 2:
        return []
    table = distinct(array, 2**16)
    found: list[Compression] = []
    if table is not None and table.size == 1:
        found.append(Compression(Constant()))
    if table is not None and table.size < 2**8:  # One is left for the zero of padding.
        found += [Compression(Dictionary("u8"), "cached"), Compression(Dictionary("u8"), "shared")]
    elif table is not None and table.size <= min(2**16 - 1, array.size // MIN_REPEATS):
        found.append(Compression(Dictionary("u16")))
    if not found and array.dtype == np.float64 and _is_float32(array):
        found.append(Compression(Float32()))
    return found


def propose_fixed(
    pattern: Pattern,
    values: FixedValues,
    operation: Operation,
    element_type: ElementType,
    general: Sequence[FamilyInstance],
    limit: int,
) -> list[FamilyInstance]:
    """At most `limit` different instances for these values, most promising first.

    `general`: proposals for any values, in order; each comes after its compressed forms.
    """
    allowed = compressions(values)
    own = own_instances(pattern, values, operation, element_type)
    rewritten = (form for instance in general for form in _forms(instance, allowed))
    mixed = (one for pair in zip_longest(own, rewritten) for one in pair if one is not None)
    return list(islice(different(mixed), limit))


def own_instances(
    pattern: Pattern, values: FixedValues, operation: Operation, element_type: ElementType
) -> list[FamilyInstance]:
    """Instances of the families for fixed values that these fit, likely winners first and families in turns."""
    work = FixedWork(PatternStatistics(pattern), values)
    fitting = (
        family
        for family in FIXED_FAMILIES.values()
        if family.operation == operation and element_type in family.element_types and family.suits(pattern)
    )
    turns = zip_longest(*(_instances(family, work, element_type) for family in fitting))
    return list(islice((instance for turn in turns for instance in turn if instance is not None), OWN_CHOICES))


def compressed_instance(instance: FamilyInstance, allowed: Sequence[Compression]) -> FamilyInstance:
    """The instance in its first compressed form; as it is where it has none."""
    return next(_forms(instance, allowed))


def _forms(instance: FamilyInstance, allowed: Sequence[Compression]) -> Iterator[FamilyInstance]:
    """The instance compressed in each way that can be, then as it is. No values at all beat any code."""
    for compression in allowed:
        program, open_program = _compressed(instance, compression)
        if program is not None:
            parameters: dict[str, ParameterValue] = {**instance.parameters, "values": str(compression)}
            yield replace(instance, parameters=parameters, program=program, open_program=open_program)
            if isinstance(compression.storage, Constant):
                break
    yield instance


def _compressed(instance: FamilyInstance, compression: Compression) -> tuple[str | None, str | None]:
    """The program and its open form; None where there is none."""
    family, kind = FAMILIES[instance.family], (instance.element_type, instance.num_dense_cols)
    program = family.compressed(instance.parameters, *kind, compression)
    if program is None or instance.open_program is None:
        return program, None
    return program, family.compressed(instance.parameters, *kind, compression, is_open=True)


def _instances(family: FixedFamily, work: FixedWork, element_type: ElementType) -> Iterator[FamilyInstance]:
    listed = list(family.choices(work))
    for dependency in ("programmatic", "full"):
        for choice in listed:
            complete = {**choice, "dependency": dependency}
            if family.accepts(complete, element_type):
                yield family.instance(complete, element_type)


def _is_float32(values: np.ndarray) -> bool:
    with np.errstate(over="ignore"):
        return bool((values.astype(np.float32) == values).all())
