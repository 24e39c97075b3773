"""Facts against what is counted by hand, and against the formats that are built."""

import numpy as np
import pytest

from sparsesmith.errors import InvalidProgram
from sparsesmith.formats import complete_parameters, format_named
from sparsesmith.formats.dia import Dia
from sparsesmith.formats.format import ParameterValue, numbers
from sparsesmith.formats.row_bins import WARP
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.program.facts import FACTS, FORMULAS, Asked, Circumstances, StoredForm, Value, facts_of
from tests.families import golden
from tests.program.fact_page import PAGE, fact_table

NAMES = ("one entry", "one column", "tiny", "five points", "random", "random, wide", "power law", "a few long rows")
every_pattern = pytest.mark.parametrize("name", NAMES)


def fact(name: str, pattern: Pattern, format_: str = "csr", **given: ParameterValue) -> Value:
    chosen = format_named(format_)
    stored = StoredForm(chosen, complete_parameters(chosen, given))
    return FACTS[name].find(Asked(Circumstances(pattern, 24, 108), lambda: stored))


@every_pattern
def test_facts_of_rows_are_those_that_are_counted(name: str) -> None:
    pattern = golden.PATTERNS[name]()
    lengths = sorted(pattern.row_lengths.tolist())
    assert fact("row_length_max", pattern) == lengths[-1]
    assert fact("row_length_min", pattern) == lengths[0]
    assert fact("row_length_mean", pattern) == -(-sum(lengths) // len(lengths))
    assert fact("empty_rows", pattern) == lengths.count(0)
    for percent in (10, 25, 50, 75, 90, 99):
        found = fact(f"row_length_q{percent}", pattern)
        assert isinstance(found, int)
        assert sum(length <= found for length in lengths) * 100 >= percent * len(lengths)
        assert sum(length < found for length in lengths) * 100 < percent * len(lengths)
    assert fact("col_length_max", pattern) == max(np.unique(pattern.col_indices, return_counts=True)[1])


@every_pattern
def test_facts_of_diagonals_are_those_that_the_format_builds(name: str) -> None:
    pattern = golden.PATTERNS[name]()
    offsets = sorted(set((pattern.col_indices - pattern.row_indices()).tolist()))
    assert fact("diagonals", pattern) == tuple(offsets)
    assert fact("num_diagonals", pattern) == len(offsets)
    assert (fact("diagonal_min", pattern), fact("diagonal_max", pattern)) == (offsets[0], offsets[-1])
    assert fact("bandwidth", pattern) == max(map(abs, offsets))
    if name in ("five points", "one column"):
        layout = Dia().build(pattern, complete_parameters(Dia(), {}))
        assert layout.indices["diagonal_offsets"].tolist() == offsets


@every_pattern
@pytest.mark.parametrize(("steps", "max_lanes", "index"), [(4, 32, "i32"), (2, 512, "u18"), (1, 128, "u20")])
def test_facts_of_bins_are_those_that_the_format_builds(name: str, steps: int, max_lanes: int, index: str) -> None:
    pattern = golden.PATTERNS[name]()
    row_bins = format_named("row_bins")
    limits = FORMULAS["cut_widths"].find(facts_of(pattern), (steps, max_lanes, 6))
    given: dict[str, ParameterValue] = {
        "widths": ",".join(map(str, limits)), "steps": steps, "max_lanes": max_lanes,
        "index": index if pattern.num_cols < 2**18 else "i32",
    }  # fmt: skip
    layout = row_bins.build(pattern, complete_parameters(row_bins, given))
    described = layout.indices["bins"].reshape(-1, 4).astype(int)

    def of(name: str) -> Value:
        return fact(name, pattern, "row_bins", **given)

    first_warp, lanes, first_row, first_slot = described[:-1].T
    assert of("num_warps") == layout.sizes["num_warps"]
    assert of("num_bins") == layout.sizes["num_bins"] == len(limits)
    assert of("bin_first_warp") == tuple(first_warp)
    assert of("bin_past_warp") == tuple(described[1:, 0])
    assert of("bin_lanes") == tuple(lanes) == tuple(2**shift for shift in np.atleast_1d(of("bin_shift")))
    warps = np.diff(described[:, 0])
    assert of("bin_warps") == tuple(warps)
    assert of("bin_rows") == tuple(np.diff(described[:, 2]))
    assert of("bin_steps") == tuple(np.diff(described[:, 3]) // warps // WARP)
    assert of("most_steps") == max(np.diff(described[:, 3]) // warps // WARP)
    assert tuple(np.array(of("bin_place")) + first_warp * WARP // lanes) == tuple(first_row)
    assert tuple(np.array(of("bin_slot")) + first_warp * np.array(of("bin_steps")) * WARP) == tuple(first_slot)
    assert of("wide_warps") == sum(warps[lanes > WARP])
    assert numbers(str(given["widths"])) == tuple(reversed(np.atleast_1d(of("bin_width")).tolist()))
    if given["index"] != "i32":
        slots = {"u18": 4, "u20": 2}[str(given["index"])]
        a_warp = -(-np.array(of("bin_steps")) // slots) * WARP
        starts = np.concatenate([[0], np.cumsum(warps * a_warp)])
        assert starts[-1] == layout.indices["high_bits"].size
        assert tuple(np.array(of("bin_high_byte")) + first_warp * a_warp) == tuple(starts[:-1])


def test_facts_of_the_problem_and_the_device_are_told_by_them() -> None:
    pattern = golden.PATTERNS["tiny"]()
    assert fact("num_dense_cols", pattern) == 24
    assert fact("num_sms", pattern) == 108
    assert (fact("num_rows", pattern), fact("num_cols", pattern), fact("nnz", pattern)) == (50, 40, pattern.nnz)


def test_bins_of_rows_that_are_too_long_for_the_widths_are_refused() -> None:
    with pytest.raises(InvalidProgram, match="the longest row has 133 nonzeros, the last width is 100"):
        fact("num_bins", golden.PATTERNS["one row"](), "row_bins", widths="100")


def test_a_fact_is_found_once_for_a_pattern_and_forgotten_with_it() -> None:
    pattern = golden.PATTERNS["tiny"]()
    assert facts_of(pattern) is facts_of(pattern)
    assert facts_of(pattern).diagonals is facts_of(pattern).diagonals
    assert facts_of(golden.PATTERNS["tiny"]()) is not facts_of(pattern)


def test_the_page_lists_every_fact() -> None:
    assert fact_table() in PAGE.read_text(encoding="utf-8"), "write it anew: python -m tests.program.fact_page"
