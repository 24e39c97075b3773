"""Where HYB is worth a try, and what its splits come to."""

import numpy as np
import pytest

from sparsesmith.families import FAMILIES
from sparsesmith.families.estimates.cost import Work
from sparsesmith.families.estimates.splits import Rest, splits
from sparsesmith.families.estimates.statistics import PatternStatistics
from sparsesmith.families.spmv.hyb_prospects import GIANT_ROW
from sparsesmith.formats import complete_parameters, format_named
from sparsesmith.matrix.pattern import Pattern, pattern_from_indices


def uneven(num_rows: int = 900, num_cols: int = 200_000, giant: int = 0) -> Pattern:
    """Short rows near the diagonal, a few long ones, a few nonzeros far off; the last row has `giant` nonzeros more."""
    generator = np.random.default_rng(1)
    lengths = np.where(generator.random(num_rows) < 0.05, 60, generator.integers(0, 9, num_rows))
    rows = np.repeat(np.arange(num_rows), lengths)
    near = rows * (num_cols // num_rows) + generator.integers(0, num_cols // num_rows, rows.size)
    columns = np.where(generator.random(rows.size) < 0.02, generator.integers(0, num_cols, rows.size), near)
    rows, columns = np.append(rows, np.full(giant, num_rows - 1)), np.append(columns, np.arange(giant))
    cells = np.unique(np.stack([rows, columns]), axis=1)
    return pattern_from_indices(num_rows, num_cols, cells[0], cells[1])


def even(num_cols: int) -> Pattern:
    return pattern_from_indices(2000, num_cols, np.repeat(np.arange(2000), 4), np.arange(8000) % num_cols)


@pytest.mark.parametrize("rest", ["rows", "coo"])
@pytest.mark.parametrize("index", ["i32", "u16"])
def test_a_split_says_what_the_layout_stores(rest: Rest, index: str) -> None:
    pattern, format_ = uneven(), format_named("hyb")
    found = splits(pattern, rest, index == "u16")
    assert len(found) > 2
    assert [split.cost for split in found] == sorted(split.cost for split in found)
    for split in found[:4]:
        parameters = complete_parameters(format_, {"width": split.width, "rest": rest, "index": index})
        layout = format_.build(pattern, parameters)
        assert split.rest == layout.num_slots - split.width * layout.sizes["stride"]
        if rest == "rows":
            lengths = np.diff(layout.indices["rest_offsets"].astype(np.int32))
            np.testing.assert_array_equal(split.rest_lengths, lengths)


@pytest.mark.parametrize("family", ["hyb", "hyb_segmented"])
def test_even_rows_get_no_remainder(family: str) -> None:
    assert not list(FAMILIES[family].prospects(Work(PatternStatistics(even(8000)), 4, 1)))
    assert list(FAMILIES[family].prospects(Work(PatternStatistics(uneven()), 4, 1)))


def test_a_giant_row_gets_a_large_block_of_its_own() -> None:
    work = Work(PatternStatistics(uneven(9000, giant=2 * GIANT_ROW)), 4, 1)
    best = min(FAMILIES["hyb"].prospects(work), key=lambda prospect: prospect.estimated_us).parameters
    assert best["heavy"] != 0
    assert int(best["block"]) >= 512


@pytest.mark.parametrize(("family", "columns"), [("hyb", 1), ("hyb_segmented", 1), ("spmm_hyb", 8), ("spmm_hyb", 128)])
def test_most_prospects_are_programs(family: str, columns: int) -> None:
    prospects = list(FAMILIES[family].prospects(Work(PatternStatistics(uneven()), 4, columns)))
    defaults = {"registers": "free", "dependency": "full"}
    legal = [FAMILIES[family].accepts({**entry.parameters, **defaults}, "float32", columns) for entry in prospects]
    assert sum(legal) > 0.6 * len(legal) > 0
