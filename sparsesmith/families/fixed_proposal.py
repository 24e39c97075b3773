"""What to try where a request fixes the values: families of their own, and the general ones with values compressed."""

from collections.abc import Iterator, Sequence
from itertools import islice, product, zip_longest

import numpy as np

from sparsesmith.families.compression import Compression, compressed_program
from sparsesmith.families.diagonals import MAX_LITERAL_DIAGONALS
from sparsesmith.families.family import Family, FamilyInstance
from sparsesmith.families.fixed_values import (
    DIA_ROWS,
    DIA_ROWS_LONG,
    DIA_ROWS_WIDE,
    ELL_ROWS,
    FIXED_FAMILIES,
    SELL_CONSTANT,
)
from sparsesmith.families.shape import Shape
from sparsesmith.formats.format import ParameterValue
from sparsesmith.formats.values.storage import MAX_DISTINCT, Code, Constant, Dictionary, Float32, distinct
from sparsesmith.matrix.pattern import Int32Array, Pattern
from sparsesmith.matrix.values import FixedValues
from sparsesmith_proto.message import ElementType, Operation

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
MAX_CONSTANT_PADDING = 2.0
MIN_WIDE_ROWS = 2048
MIN_REPEATS = 4
"""A table of 16-bit codes pays where a value stands for this many nonzeros on average."""
OWN_CHOICES = 40


def compressions(values: FixedValues) -> list[Compression]:
    """What the values allow, smallest first."""
    array = values.array
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
    return list(islice(_different(mixed), limit))


def own_instances(
    pattern: Pattern, values: FixedValues, operation: Operation, element_type: ElementType
) -> list[FamilyInstance]:
    """Instances of the families for fixed values that these fit, likely winners first; there are none for spmm."""
    return list(islice(_own(pattern, values, element_type), OWN_CHOICES)) if operation == "spmv" else []


def compressed_instance(instance: FamilyInstance, allowed: Sequence[Compression]) -> FamilyInstance:
    """The instance in its first compressed form; as it is where it has none."""
    return next(_forms(instance, allowed))


def _forms(instance: FamilyInstance, allowed: Sequence[Compression]) -> Iterator[FamilyInstance]:
    """The instance compressed in each way that can be, then as it is. No values at all beat any code."""
    for compression in allowed:
        program = compressed_program(instance.program, compression)
        if program is not None:
            yield FamilyInstance(instance.family, {**instance.parameters, "values": str(compression)}, program)
            if isinstance(compression.storage, Constant):
                break
    yield instance


def _own(pattern: Pattern, values: FixedValues, element_type: ElementType) -> Iterator[FamilyInstance]:
    """Instances of the families for fixed values, in turns."""
    shape = Shape(pattern)
    choices: list[Iterator[FamilyInstance]] = []
    if DIA_ROWS.suits(pattern) and (code := row_code(pattern, values, pattern.col_indices - pattern.row_indices())):
        choices.append(_instances(DIA_ROWS, _dia_rows(shape, code), element_type))
        choices.append(_instances(DIA_ROWS_WIDE, _dia_rows_wide(shape, code), element_type))
        choices.append(_instances(DIA_ROWS_LONG, _dia_rows_long(shape, code), element_type))
    if ELL_ROWS.suits(pattern) and (code := row_code(pattern, values, _places(pattern))):
        choices.append(_instances(ELL_ROWS, _ell_rows(shape, code), element_type))
    if distinct(values.array, 1) is not None and SELL_CONSTANT.suits(pattern):
        choices.append(_instances(SELL_CONSTANT, _sell_constant(shape), element_type))
    for turn in zip_longest(*choices):
        yield from (instance for instance in turn if instance is not None)


def row_code(pattern: Pattern, values: FixedValues, slots: Int32Array) -> Code | None:
    """The code that the distinct rows need; None where there are too many. `slots`: of each nonzero, shape [nnz]."""
    hashes = slots.astype(np.uint64) * _MULTIPLIER
    hashes ^= values.array.view(f"u{values.array.dtype.itemsize}")
    hashes *= _MULTIPLIER
    hashes ^= hashes >> np.uint64(29)
    hashes *= _MULTIPLIER
    sums = np.zeros(pattern.nnz + 1, np.uint64)
    np.cumsum(hashes, out=sums[1:])
    table = distinct(np.diff(sums[pattern.row_offsets]), MAX_DISTINCT["u16"])
    if table is None or table.size > pattern.num_rows // 4 + 1:
        return None
    return "u8" if table.size <= MAX_DISTINCT["u8"] else "u16"


def _places(pattern: Pattern) -> Int32Array:
    """Place of each nonzero in its row."""
    return np.arange(pattern.nnz, dtype=np.int32) - np.repeat(pattern.row_offsets[:-1], pattern.row_lengths)


Choice = dict[str, ParameterValue]


def _instances(family: Family, choices: Iterator[Choice], element_type: ElementType) -> Iterator[FamilyInstance]:
    named, listed = FIXED_FAMILIES[family.name], list(choices)
    for dependency in ("programmatic", "full"):
        for choice in listed:
            complete = {**choice, "dependency": dependency}
            if named.accepts(complete, element_type):
                yield FamilyInstance(named.name, complete, named.render(complete, element_type))


def _blocks(shape: Shape) -> tuple[int, ...]:
    return (32, 64, 128) if shape.pattern.num_rows < 30_000 else (128, 256, 512)


def _dia_rows(shape: Shape, code: Code) -> Iterator[Choice]:
    if shape.diagonals > MAX_LITERAL_DIAGONALS:
        return
    rows = (1, 2) if shape.pattern.num_rows < 100_000 else (2, 1, 4)
    for each, block, load, registers in product(rows, _blocks(shape), ("ldg", "ldcs"), ("free", "few")):
        yield {
            "offsets": shape.listed_diagonals,
            "rows": each,
            "block": block,
            "load": load,
            "registers": registers,
            "code": code,
        }


def _dia_rows_wide(shape: Shape, code: Code) -> Iterator[Choice]:
    if shape.diagonals > MAX_LITERAL_DIAGONALS or shape.pattern.num_rows < MIN_WIDE_ROWS:
        return
    for block, each, registers in product((256, 128, 512), (4, 2), ("free", "few")):
        yield {
            "offsets": shape.listed_diagonals,
            "rows": each,
            "block": block,
            "load": "ldg",
            "registers": registers,
            "code": code,
        }


def _dia_rows_long(shape: Shape, code: Code) -> Iterator[Choice]:
    for unroll, block in product((4, 8), _blocks(shape)):
        yield {"unroll": unroll, "block": block, "load": "ldg", "registers": "free", "code": code}


def _ell_rows(shape: Shape, code: Code) -> Iterator[Choice]:
    for block, load, registers in product(_blocks(shape), ("ldcs", "ldg"), ("free", "few")):
        yield {"width": shape.longest, "block": block, "load": load, "registers": registers, "code": code}


def _sell_constant(shape: Shape) -> Iterator[Choice]:
    sigmas = [sigma for sigma in (1, 256, 4096) if shape.sell_padding(32, sigma) < MAX_CONSTANT_PADDING]
    for registers, load, block, sigma, unroll in product(
        ("free", "few"), ("ldcs", "ldg"), _blocks(shape), sigmas[:2], (4, 8, 2)
    ):
        index = "u16" if shape.narrow_slices(32, sigma) else "i32"
        yield {
            "slice": 32,
            "sigma": sigma,
            "unroll": unroll,
            "block": block,
            "load": load,
            "registers": registers,
            "index": index,
        }


def _is_float32(values: np.ndarray) -> bool:
    with np.errstate(over="ignore"):
        return bool((values.astype(np.float32) == values).all())


def _different(instances: Iterator[FamilyInstance]) -> Iterator[FamilyInstance]:
    seen = set()
    for instance in instances:
        if instance.program not in seen:
            seen.add(instance.program)
            yield instance
