"""Products from bitmaps: right on awkward shapes, in both 16-bit types, at every number of dense columns; proposed
where about half of a matrix is stored."""

from collections.abc import Iterator

import numpy as np
import pytest

from services.evaluator.compiling.compiler import Compiler
from sparsesmith.families import FAMILIES, Family
from sparsesmith.families.proposal import prospects_of, work_of
from sparsesmith.formats.format import ParameterValue
from sparsesmith.matrix.pattern import Pattern, pattern_from_indices
from sparsesmith.program.program import parse_program
from sparsesmith_proto.message import ElementType
from tests.families.test_families_are_correct import Trial, run_all, scattered
from tests.matrix.patterns import pattern_of

SPMV, SPMM = FAMILIES["bitmap_mma"], FAMILIES["spmm_bitmap"]
PLAIN: dict[str, ParameterValue] = {
    "part_cols": 256, "splits": 1, "strips": 1, "registers": "few", "dependency": "full",
}  # fmt: skip
WIDE = {**PLAIN, "vector": 1}


def half_empty(num_rows: int, num_cols: int, share: float = 0.5) -> Pattern:
    return pattern_of(np.random.default_rng(num_rows).random((num_rows, num_cols)) < share)


def with_empty_strips() -> Pattern:
    """Rows and strips without a nonzero, one full row, a part of columns without any."""
    mask = np.random.default_rng(3).random((75, 1100)) < 0.4
    mask[5] = mask[16:32] = mask[48:75:2] = mask[:, 256:512] = False
    mask[33, :250] = mask[40] = True
    return pattern_of(mask)


def drifting() -> Pattern:
    """Lanes whose values stand first, last, or nowhere near the others': what has arrived is not what is needed."""
    mask = np.zeros((32, 1024), np.bool_)
    mask[::3, :300], mask[1::3, 700:], mask[2, :] = True, True, True
    mask[20:, ::64] = True
    return pattern_of(mask)


PATTERNS: dict[str, Pattern] = {
    "one entry": pattern_from_indices(1, 1, [0], [0]),
    "last entry": pattern_from_indices(17, 1025, [16], [1024]),
    "one full row": pattern_of(np.arange(40)[:, None] == np.full((1, 700), 9)),
    "one column": half_empty(131, 1),
    "full": half_empty(33, 530, 1.1),
    "half empty": half_empty(100, 1500),
    "nearly empty": half_empty(70, 2100, 0.06),
    "empty strips": with_empty_strips(),
    "drifting": drifting(),
}


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    with Compiler(num_workers=2, timeout_s=120) as compiler:
        yield compiler


def trial(family: Family, choice: dict[str, ParameterValue], pattern: Pattern, of: ElementType, columns: int) -> Trial:
    text = family.render(choice, of, columns)
    return Trial(family, (of, columns), choice, pattern, text, parse_program(text, family.operation, of))


CHOICES: list[tuple[ElementType, dict[str, ParameterValue]]] = [
    ("float16", PLAIN),
    ("bfloat16", PLAIN | {"splits": 4, "strips": 2}),
    ("float16", PLAIN | {"splits": 3, "registers": "free", "dependency": "programmatic"}),
    ("bfloat16", PLAIN | {"part_cols": 1024, "splits": 2}),
    ("float16", PLAIN | {"part_cols": 4096, "dependency": "programmatic"}),
]


@pytest.mark.parametrize("name", PATTERNS)
def test_spmv_is_right(compiler: Compiler, name: str) -> None:
    run_all(compiler, [trial(SPMV, choice, PATTERNS[name], of, 1) for of, choice in CHOICES])


COLUMNS: list[tuple[ElementType, int, dict[str, ParameterValue]]] = [
    ("float16", 8, WIDE),
    ("bfloat16", 8, WIDE | {"splits": 4, "strips": 2, "dependency": "programmatic"}),
    ("float16", 16, WIDE | {"vector": 2, "splits": 3, "registers": "free"}),
    ("bfloat16", 24, WIDE | {"part_cols": 512, "strips": 2}),
    ("bfloat16", 32, WIDE | {"vector": 4, "splits": 2, "strips": 2, "part_cols": 512}),
    ("float16", 128, WIDE | {"vector": 4, "part_cols": 2048}),
]


@pytest.mark.parametrize("name", PATTERNS)
def test_spmm_is_right_at_every_number_of_dense_columns(compiler: Compiler, name: str) -> None:
    run_all(compiler, [trial(SPMM, choice, PATTERNS[name], of, columns) for of, columns, choice in COLUMNS])


def test_they_take_numbers_of_16_bits_whole_products_and_what_fits_shared_memory() -> None:
    assert SPMV.accepts(PLAIN, "bfloat16")
    assert not SPMV.accepts(PLAIN, "float32")
    assert SPMV.accepts(PLAIN | {"part_cols": 1024, "splits": 4}, "float16")
    assert not SPMV.accepts(PLAIN | {"part_cols": 4096, "splits": 2}, "float16")
    assert SPMM.accepts(WIDE, "float16", 24)
    assert not SPMM.accepts(WIDE, "float16", 12)
    assert not SPMM.accepts(WIDE | {"vector": 2}, "float16", 24)


@pytest.mark.parametrize("share", [0.5, 0.3])
def test_it_is_thought_the_fastest_where_half_or_a_third_of_a_layer_is_left(share: float) -> None:
    layer = half_empty(1024, 4096, share)
    for operation, columns, family in (("spmv", 1, SPMV), ("spmm", 8, SPMM)):
        prospects = prospects_of(work_of(layer, "float16", columns), operation, "float16")
        assert min(prospects, key=lambda entry: entry.estimated_us).family is family


def test_it_is_not_proposed_where_hardly_anything_is_left() -> None:
    for operation, columns in (("spmv", 1), ("spmm", 8)):
        prospects = prospects_of(work_of(scattered(4096, 4096, 0.01), "float16", columns), operation, "float16")
        assert prospects
        assert not {entry.family.name for entry in prospects} & {SPMV.name, SPMM.name}
