"""Packs of patterns: what goes in comes out."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsesmith.matrix.pack import decode_pattern, encode_pattern, pack_index, read_pack, write_pack
from sparsesmith.matrix.pattern import Pattern, pattern_from_indices


def make_pattern(num_rows: int, num_cols: int, nnz: int, seed: int, symmetric: bool = False) -> Pattern:
    generator = np.random.default_rng(seed)
    rows, cols = generator.integers(num_rows, size=nnz), generator.integers(num_cols, size=nnz)
    if symmetric:
        rows, cols = np.concatenate([rows, cols]), np.concatenate([cols, rows])
    return pattern_from_indices(num_rows, num_cols, rows, cols)


def same(one: Pattern, other: Pattern) -> bool:
    return one.digest == other.digest and one.row_offsets.dtype == other.row_offsets.dtype


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 60), st.integers(1, 60), st.integers(1, 300), st.integers(0, 2**31))
def test_any_pattern_survives_packing(num_rows: int, num_cols: int, nnz: int, seed: int) -> None:
    pattern = make_pattern(num_rows, num_cols, nnz, seed)
    assert same(decode_pattern(encode_pattern(pattern)), pattern)


def test_of_a_symmetric_pattern_about_half_is_stored() -> None:
    symmetric, plain = make_pattern(3000, 3000, 10_000, 0, symmetric=True), make_pattern(3000, 3000, 20_000, 1)
    assert same(decode_pattern(encode_pattern(symmetric)), symmetric)
    assert len(encode_pattern(symmetric)) < 0.65 * len(encode_pattern(plain))


def test_columns_near_the_32_bit_limit_survive() -> None:
    pattern = pattern_from_indices(3, 2**31 - 1, [0, 0, 2], [0, 2**31 - 2, 2**31 - 2])
    assert same(decode_pattern(encode_pattern(pattern)), pattern)


def test_a_pack_gives_back_all_or_the_patterns_asked_for(tmp_path: Path) -> None:
    patterns = {f"m{seed}": make_pattern(50, 40, 200, seed) for seed in range(4)}
    path = tmp_path / "four.pack"
    write_pack(path, {name: encode_pattern(pattern) for name, pattern in patterns.items()})
    assert list(pack_index(path)) == list(patterns)
    assert all(same(pattern, patterns[name]) for name, pattern in read_pack(path))
    assert [name for name, _ in read_pack(path, ["m2", "m0"])] == ["m0", "m2"]


def test_another_file_is_no_pack(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"PK\x03\x04 something else")
    with pytest.raises(ValueError, match="not a pack"):
        pack_index(tmp_path / "other")
