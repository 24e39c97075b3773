"""The catalogue is a contract: families, policies and users write kernels against it."""

import numpy as np
import pytest

from sparsesmith.errors import InvalidProgram
from sparsesmith.formats import FORMATS, complete_parameters, format_named
from sparsesmith.formats.format import ParameterValue
from sparsesmith.matrix.pattern import Pattern, pattern_from_indices
from tests.matrix.patterns import make_pattern, pattern_of

SIGNATURES: list[tuple[str, dict[str, ParameterValue], str]] = [
    ("csr", {}, "const int* row_offsets, const int* col_indices, const T* values"),
    ("csr", {"index": "u16"}, "const int* row_offsets, const unsigned short* col_indices, const T* values"),
    (
        "csr",
        {"index": "u8"},
        "const int* row_offsets, const int* row_col_base, const unsigned char* col_indices, const T* values",
    ),
    (
        "csr",
        {"index": "u16_row"},
        "const int* row_offsets, const int* row_col_base, const unsigned short* col_indices, const T* values",
    ),
    (
        "csr_rowblocks",
        {},
        "int num_blocks, const int* block_rows, const int* row_offsets, const int* col_indices, const T* values",
    ),
    (
        "csr_rowblocks",
        {"index": "u16"},
        "int num_blocks, const int* block_rows, const int* block_col_base, const int* row_offsets, "
        "const unsigned short* col_indices, const T* values",
    ),
    (
        "csr_tiles",
        {},
        "int num_tiles, const int* tile_rows, const unsigned short* local_offsets, const int* col_indices, "
        "const T* values",
    ),
    (
        "csr_tiles",
        {"index": "u16", "order": "column", "rows": "length", "long_rows": "split"},
        "int num_tiles, int num_whole_tiles, int num_split_rows, const int* row_ids, "
        "const unsigned short* local_offsets, const int* col_base, const unsigned short* col_indices, "
        "const unsigned short* places, const T* values, const int* split_rows, const int* split_pieces, T* carry",
    ),
    (
        "csr_tiles",
        {"hub_cols": 192, "long_rows": "split"},
        "int num_tiles, int num_whole_tiles, int num_split_rows, int num_hubs, const int* hub_columns, "
        "const int* tile_rows, const unsigned short* local_offsets, const int* col_indices, const T* values, "
        "const int* split_rows, const int* split_pieces, T* carry",
    ),
    (
        "csr_distinct",
        {},
        "int num_blocks, int max_block_cols, const int* block_rows, const int* block_col_offsets, "
        "const int* block_cols, const int* row_offsets, const unsigned short* col_indices, const T* values",
    ),
    (
        "csr_distinct",
        {"rows": "breadth"},
        "int num_blocks, int max_block_cols, const int* row_ids, const int* block_rows, const int* block_col_offsets, "
        "const int* block_cols, const int* row_offsets, const unsigned short* col_indices, const T* values",
    ),
    (
        "csr_merge",
        {},
        "int num_segments, const int* segment_rows, const int* segment_offsets, const int* row_offsets, "
        "const int* col_indices, const T* values, T* carry",
    ),
    (
        "csr_merge",
        {"index": "u8"},
        "int num_segments, const int* segment_rows, const int* segment_offsets, const int* segment_col_base, "
        "const int* row_offsets, const unsigned char* col_indices, const T* values, T* carry",
    ),
    ("coo", {}, "const int* row_indices, const int* col_indices, const T* values"),
    ("coo", {"index": "u16"}, "const int* row_indices, const unsigned short* col_indices, const T* values"),
    ("csc", {}, "const int* col_offsets, const int* row_indices, const int* places, const T* values"),
    ("ell", {}, "int width, int stride, const int* col_indices, const T* values"),
    (
        "sell",
        {},
        "int num_slices, const int* slice_offsets, const int* row_permutation, const int* col_indices, const T* values",
    ),
    (
        "sell",
        {"index": "u16"},
        "int num_slices, const int* slice_offsets, const int* row_permutation, const int* slice_col_base, "
        "const unsigned short* col_indices, const T* values",
    ),
    (
        "sell",
        {"index": "u8"},
        "int num_slices, const int* slice_offsets, const int* row_permutation, const int* slot_col_base, "
        "const unsigned char* col_indices, const T* values",
    ),
    (
        "sell",
        {"index": "u16_slot"},
        "int num_slices, const int* slice_offsets, const int* row_permutation, const int* slot_col_base, "
        "const unsigned short* col_indices, const T* values",
    ),
    ("dia", {}, "int num_diagonals, const int* diagonal_offsets, const T* values"),
    (
        "bsr",
        {},
        "int num_block_rows, const int* block_row_offsets, const int* block_col_indices, const T* values",
    ),
    (
        "row_bins",
        {},
        "int num_bins, int num_warps, const int* bins, const int* row_permutation, const int* col_indices, "
        "const T* values",
    ),
    (
        "row_bins",
        {"index": "u16"},
        "int num_bins, int num_warps, const int* bins, const int* row_permutation, const int* warp_col_base, "
        "const unsigned short* col_indices, const T* values",
    ),
    (
        "row_bins",
        {"index": "u18"},
        "int num_bins, int num_warps, const int* bins, const int* row_permutation, const unsigned char* high_bits, "
        "const unsigned short* col_indices, const T* values",
    ),
    (
        "row_bins",
        {"index": "u16", "numbering": "breadth"},
        "int num_bins, int num_warps, const int* bins, const int* row_permutation, const int* col_order, "
        "const int* warp_col_base, const unsigned short* col_indices, const T* values, T* ordered_x",
    ),
    (
        "panels",
        {},
        "int num_panels, int num_parts, int num_bins, int bin_nnz, int bin_slots, const int* part_panels, "
        "const int* part_offsets, const int* segment_offsets, const int* bin_rows, const int* cut_rows, "
        "const int* row_offsets, const unsigned short* col_indices, const unsigned short* positions, const T* values, "
        "T* products",
    ),
    (
        "hyb",
        {},
        "int stride, int num_rest_rows, const int* rest_mask, const int* rest_rows, const int* rest_offsets, "
        "const int* col_indices, const int* rest_cols, const T* values",
    ),
    (
        "hyb",
        {"rest": "coo", "index": "u16"},
        "int stride, int num_rest, const int* rest_rows, const int* slice_col_base, "
        "const unsigned short* col_indices, const int* rest_cols, const T* values",
    ),
    (
        "hubs",
        {},
        "int num_hubs, int num_segments, const int* hub_columns, const int* row_starts, const int* row_ranks, "
        "const int* col_indices, const T* values, T* hub_x",
    ),
    (
        "bsell",
        {},
        "int num_slices, const int* slice_offsets, const int* block_row_permutation, const int* block_col_indices, "
        "const T* values",
    ),
    (
        "bsell",
        {"index": "u16"},
        "int num_slices, const int* slice_offsets, const int* block_row_permutation, const int* slice_col_base, "
        "const unsigned short* block_col_indices, const T* values",
    ),
    (
        "cells",
        {},
        "int num_windows, int num_panels, int cell_slots, const int* cell_offsets, const int* strip_offsets, "
        "const unsigned char* col_indices, const T* values",
    ),
    (
        "cells",
        {"parts": 2},
        "int num_windows, int num_panels, int cell_slots, const int* cell_offsets, const int* strip_offsets, "
        "const unsigned char* col_indices, const T* values, T* partial",
    ),
    (
        "bitmap",
        {},
        "int num_strips, int num_parts, int part_lines, const int* line_offsets, const int* quarter_chunks, "
        "const int* masks, const T* values",
    ),
]


@pytest.mark.parametrize(("name", "given", "signature"), SIGNATURES)
def test_a_format_has_these_arguments(name: str, given: dict[str, ParameterValue], signature: str) -> None:
    format_ = format_named(name)
    arguments = format_.arguments(complete_parameters(format_, given))
    assert ", ".join(f"{argument.c_type} {argument.name}" for argument in arguments) == signature


def test_every_format_has_a_signature_here() -> None:
    assert {name for name, _, _ in SIGNATURES} == set(FORMATS)


def test_defaults_complete_what_is_given() -> None:
    assert complete_parameters(format_named("sell"), {"sigma": 256}) == {
        "slice": 32,
        "sigma": 256,
        "index": "i32",
        "rows": "natural",
    }


@pytest.mark.parametrize(
    ("name", "given", "field", "limit"),
    [
        ("csr", {"width": 4}, "width", "index"),
        ("ell", {"width": 4}, "width", "none"),
        ("csr", {"index": "u32"}, "index", "i32, u16, u8, u16_row"),
        ("coo", {"index": "u8"}, "index", "i32, u16"),
        ("sell", {"slice": 33}, "slice", "4, 8, 16, 32, 64, 128, 256"),
        ("sell", {"sigma": -1}, "sigma", "0..1048576"),
        ("csr_merge", {"items": "many"}, "items", "8..65536"),
        ("bsr", {"block_rows": 17}, "block_rows", "1..16"),
    ],
)
def test_a_parameter_outside_the_catalogue_is_named_with_its_limit(
    name: str, given: dict[str, ParameterValue], field: str, limit: str
) -> None:
    with pytest.raises(InvalidProgram) as refusal:
        complete_parameters(format_named(name), given)
    assert (refusal.value.field, refusal.value.limit) == (field, limit)


def test_an_unknown_format_is_refused_with_those_there_are() -> None:
    with pytest.raises(InvalidProgram, match=r"csr5.*csr_rowblocks"):
        format_named("csr5")


@pytest.mark.parametrize("name", ["csr", "coo", "csr_rowblocks", "csr_merge", "sell", "row_bins"])
def test_sixteen_bits_reach_65536_columns_and_no_further(name: str) -> None:
    format_ = format_named(name)
    parameters = complete_parameters(format_, {"index": "u16"})
    fits, too_wide = (make_pattern("x" + "." * (num_cols - 2) + "x") for num_cols in (65536, 65537))
    assert format_.build(fits, parameters).indices["col_indices"].max() == 65535
    with pytest.raises(InvalidProgram) as refusal:
        format_.build(too_wide, parameters)
    assert (refusal.value.field, refusal.value.value, refusal.value.limit) == ("index", "65537", "65536")


@pytest.mark.parametrize(("index", "reach"), [("u18", 2**18), ("u20", 2**20)])
def test_high_bits_reach_absolute_columns_as_far_as_they_go(index: str, reach: int) -> None:
    format_ = format_named("row_bins")
    parameters = complete_parameters(format_, {"index": index, "steps": 1, "widths": "1,9"})
    columns = (np.arange(200) * (reach // 200)).tolist()
    rows = [0, *range(200)] + [3] * 5
    fits = pattern_from_indices(200, reach + 1, rows, [reach - 1, *columns, 1, 2, 3, 4, 5])
    layout = format_.build(fits, parameters)
    assert layout.indices["high_bits"].max() > 0
    assert format_.restore(layout, parameters, 200, reach + 1).digest == fits.digest
    with pytest.raises(InvalidProgram) as refusal:
        format_.build(pattern_from_indices(1, reach + 1, [0], [reach]), parameters)
    assert (refusal.value.field, refusal.value.value, refusal.value.limit) == ("index", str(reach + 1), str(reach))


@pytest.mark.parametrize(("name", "index"), [("csr", "u8"), ("csr", "u16_row"), ("csr_merge", "u8")])
def test_offsets_from_a_row_or_a_segment_reach_as_far_as_their_width(name: str, index: str) -> None:
    format_ = format_named(name)
    parameters = complete_parameters(format_, {"index": index})
    reach = 256 if index == "u8" else 65536
    fits, too_wide = (make_pattern("...x" + "." * (span - 2) + "x") for span in (reach, reach + 1))
    assert format_.build(fits, parameters).indices["col_indices"].max() == reach - 1
    with pytest.raises(InvalidProgram, match=f"index={index} needs") as refusal:
        format_.build(too_wide, parameters)
    assert (refusal.value.field, refusal.value.value, refusal.value.limit) == ("index", str(reach + 1), str(reach))


@pytest.mark.parametrize("name", ["csr_rowblocks", "sell", "row_bins"])
def test_relative_columns_fit_where_absolute_ones_do_not(name: str) -> None:
    mask = np.zeros((40, 80_000), bool)
    mask[:32, 79_000:79_100] = True
    mask[32:, :100] = True
    pattern = pattern_of(mask)
    format_ = format_named(name)
    given: dict[str, ParameterValue] = {"max_rows": 32, "nnz_per_block": 16384} if name == "csr_rowblocks" else {}
    parameters = complete_parameters(format_, {"index": "u16", **given})
    layout = format_.build(pattern, parameters)
    assert layout.indices["col_indices"].max() == 99
    assert format_.restore(layout, parameters, 40, 80_000).digest == pattern.digest


def scattered_pattern(num_rows: int, num_dense_rows: int) -> Pattern:
    """One nonzero a row, each in a column of its own, and some rows that are full."""
    mask = np.eye(num_rows, dtype=bool)[:, np.random.default_rng(3).permutation(num_rows)]
    mask[: num_dense_rows * 256 : 256] = True
    return pattern_of(mask)


@pytest.mark.parametrize(
    ("name", "given", "num_dense_rows"),
    [
        ("ell", {}, 1),
        ("hyb", {"width": 256}, 0),
        ("sell", {"slice": 256}, 12),
        ("dia", {}, 0),
        ("bsr", {"block_rows": 16, "block_cols": 16}, 0),
    ],
)
def test_a_layout_that_is_mostly_padding_is_refused_before_it_is_allocated(
    name: str, given: dict[str, ParameterValue], num_dense_rows: int
) -> None:
    format_ = format_named(name)
    pattern = scattered_pattern(5000, num_dense_rows)
    with pytest.raises(InvalidProgram) as refusal:
        format_.build(pattern, complete_parameters(format_, given))
    assert refusal.value.field == "format"
    assert int(refusal.value.value or 0) > int(refusal.value.limit or 0)
