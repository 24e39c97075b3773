"""Large layouts are filled in pieces that fit the cache: where one ends and the next begins must not show."""

import numpy as np
import pytest

from benchmarks.matrices.generated import banded, power_law, stencil_2d
from sparsesmith.formats import FORMATS, complete_parameters
from sparsesmith.matrix.pattern import Pattern
from tests.formats.walks import multiply

Given = dict[str, int | str]

FOR_EVERY_PATTERN: tuple[tuple[str, Given], ...] = (
    ("bsr", {"block_rows": 3, "block_cols": 2}),
    ("hubs", {"hub_cols": 100}),
    ("panels", {"panel_cols": 512, "bins": 40, "parts": 8, "rounds": 2}),
    ("row_bins", {}),
    ("row_bins", {"steps": 1, "index": "u16"}),
    ("row_bins", {"numbering": "breadth"}),
    ("row_bins", {"numbering": "popular", "index": "u18"}),
    ("csr_tiles", {"chunks": 5, "index": "u16", "rows": "length", "long_rows": "split"}),
    ("csr_tiles", {"chunks": 2, "index": "u16", "order": "column", "rows": "column", "long_rows": "split"}),
)
FOR_SHORT_ROWS: tuple[tuple[str, Given], ...] = (
    ("ell", {}),
    ("dia", {}),
    ("dia", {"slice": 64}),
    ("bsell", {"block_rows": 2, "block_cols": 2}),
    ("csr_tiles", {"vector": 2, "chunks": 3}),
    ("csr_distinct", {"nnz_per_block": 512, "max_rows": 3}),
    ("csr_distinct", {"nnz_per_block": 512, "max_rows": 9, "rows": "breadth"}),
    ("csr_tiles", {"vector": 1, "chunks": 2, "hub_cols": 9, "long_rows": "split"}),
    ("csr_tiles", {"vector": 2, "chunks": 2, "hub_cols": 5, "index": "u16", "long_rows": "split"}),
)


def check(pattern: Pattern, format_name: str, given: Given) -> None:
    """Multiplies and restores; whole numbers, so that sums are exact in any order."""
    format_ = FORMATS[format_name]
    parameters = complete_parameters(format_, given)
    random = np.random.default_rng(3)
    values = random.integers(-1000, 1000, pattern.nnz).astype(np.float64)
    x = random.integers(-1000, 1000, pattern.num_cols).astype(np.float64)
    layout = format_.build(pattern, parameters)
    assert layout.num_slots > 100_000
    y = multiply(pattern, layout, format_name, parameters, values, x)
    np.testing.assert_array_equal(y, pattern.to_scipy(values) @ x)
    assert format_.restore(layout, parameters, pattern.num_rows, pattern.num_cols).digest == pattern.digest


@pytest.mark.parametrize("pattern", [stencil_2d(130, 9), banded(9_001, 8)], ids=["stencil", "banded"])
@pytest.mark.parametrize(("format_name", "given"), [*FOR_EVERY_PATTERN, *FOR_SHORT_ROWS], ids=str)
def test_a_regular_layout_of_several_pieces_multiplies_as_documented(
    format_name: str, given: Given, pattern: Pattern
) -> None:
    check(pattern, format_name, given)


@pytest.mark.parametrize(("format_name", "given"), FOR_EVERY_PATTERN, ids=str)
def test_a_scattered_layout_of_several_pieces_multiplies_as_documented(format_name: str, given: Given) -> None:
    check(power_law(12_000, 12), format_name, given)
