"""Where rows are cut into bins."""

from itertools import combinations

import numpy as np
import pytest

from sparsesmith.families import FAMILIES
from sparsesmith.families.estimates.cost import Work
from sparsesmith.families.estimates.statistics import PatternStatistics
from sparsesmith.families.spmv.row_bins_prospects import _Narrowness
from sparsesmith.formats.bin_limits import BIN_OVERHEAD_SLOTS, WARP_OVERHEAD_SLOTS, best_limits
from sparsesmith.formats.row_bins import count_lengths, cut_bins, is_narrow
from sparsesmith.matrix.pattern import Int32Array, pattern_from_indices
from sparsesmith.program.program import parse_program


def cost(lengths: Int32Array, limits: tuple[int, ...], steps: int) -> int:
    bins = cut_bins(count_lengths(lengths), limits, steps, 32)
    return bins[-1].past_slot + WARP_OVERHEAD_SLOTS * bins[-1].past_warp + BIN_OVERHEAD_SLOTS * len(bins)


@pytest.mark.parametrize("seed", range(6))
def test_no_other_cut_stores_less(seed: int) -> None:
    generator = np.random.default_rng(seed)
    lengths = generator.choice(generator.integers(0, 120, 7), 3000).astype(np.int32)
    limits = best_limits(count_lengths(lengths), 4, 32, most=3)
    candidates = np.unique(np.maximum(lengths, 1))
    others = [
        (*map(int, cut), int(candidates[-1])) for count in range(3) for cut in combinations(candidates[:-1], count)
    ]
    assert len(limits) <= 3
    assert cost(lengths, limits, 4) == min(cost(lengths, other, 4) for other in others)


def test_many_lengths_are_thinned_out_but_the_longest_row_always_fits() -> None:
    lengths = np.random.default_rng(3).integers(0, 5000, 20_000).astype(np.int32)
    limits = best_limits(count_lengths(lengths), 8, 512)
    assert limits[-1] == lengths.max()
    assert len(limits) <= 6


def test_sixteen_bits_are_proposed_just_where_every_warp_allows_them() -> None:
    generator = np.random.default_rng(5)
    rows = np.repeat(np.arange(4000), 4)
    near = rows * 25 + generator.integers(0, 100, rows.size)
    far = generator.integers(0, 100_000, rows.size)
    for columns, expected in ((near, {"u16", "i32"}), (far, {"i32"})):
        work = Work(PatternStatistics(pattern_from_indices(4000, 100_100, rows, columns)), 4, 1)
        assert {prospect.parameters["index"] for prospect in FAMILIES["row_bins"].prospects(work)} == expected


@pytest.mark.parametrize(
    ("num_cols", "expected"), [(200_000, {"u18", "i32"}), (900_000, {"u20", "i32"}), (2**21, {"i32"})]
)
def test_large_matrices_are_proposed_the_fewest_bits_that_reach_their_columns(
    num_cols: int, expected: set[str]
) -> None:
    rows = np.repeat(np.arange(30_000), 4)
    columns = np.random.default_rng(6).integers(0, num_cols, rows.size)
    work = Work(PatternStatistics(pattern_from_indices(30_000, num_cols, rows, columns)), 4, 1)
    assert {prospect.parameters["index"] for prospect in FAMILIES["row_bins"].prospects(work)} == expected


def test_cuts_that_the_format_would_refuse_for_their_padding_are_not_offered() -> None:
    rows = 3000
    diagonal = np.arange(rows)
    pattern = pattern_from_indices(rows, rows, np.append(diagonal, np.zeros(rows)).astype(int), np.tile(diagonal, 2))
    offered = [
        prospect.parameters for prospect in FAMILIES["row_bins"].prospects(Work(PatternStatistics(pattern), 4, 1))
    ]
    assert offered
    layouts = {(each["widths"], each["steps"], each["max_lanes"]): each for each in offered}
    for parameters in layouts.values():
        program = parse_program(
            FAMILIES["row_bins"].render({**parameters, "registers": "free", "dependency": "full"}, "float32"),
            "spmv",
            "float32",
        )
        program.format.build(pattern, program.parameters)


def test_what_is_known_of_some_bins_is_right_for_others_with_the_same_rows() -> None:
    generator = np.random.default_rng(5)
    lengths = np.sort(generator.choice([2, 9], 3000))
    rows = np.repeat(np.arange(3000), lengths)
    near = rows * 1500 + generator.integers(0, 20_000, rows.size)
    pattern = pattern_from_indices(3000, 4_600_000, rows, near)
    work = Work(PatternStatistics(pattern), 4, 1)
    offered = {each.parameters["widths"] for each in FAMILIES["row_bins"].prospects(work)}
    narrowness = _Narrowness(work)
    found = []
    for widths in sorted(map(str, offered)):
        for steps in (1, 2, 4, 8, 16):
            bins = cut_bins(count_lengths(pattern.row_lengths), tuple(map(int, widths.split(","))), steps, 32)
            found.append(narrowness.of(bins))
            assert found[-1] == is_narrow(pattern, bins), (widths, steps)
    assert set(found) == {True, False}
