"""Which library routines a workload is compared with."""

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.matrices.generated import banded, fem_blocks, stencil_2d, uniform_rows
from services.evaluator.cuda.library.blocks import (
    MIN_BLOCK_FILL,
    block_fill,
    useful_block_sizes,
    useful_ell_block_sizes,
)
from sparsesmith.cuda.routines import (
    BLOCK_SIZES,
    DEFAULT_ROUTINE,
    ELL_BLOCK_SIZES,
    Storage,
    default_routine,
    routines_for,
)
from sparsesmith.matrix.features import NUM_WINDOWS, WINDOW_NNZ
from sparsesmith.matrix.pattern import Pattern, pattern_from_scipy
from tests.matrix.patterns import mask_of, patterns


def blocked(size: int, num_blocks: int = 200, extent: int = 100) -> Pattern:
    random = np.random.default_rng(1)
    blocks = scipy.sparse.random(extent, extent, num_blocks / extent**2, random_state=random)
    return pattern_from_scipy(scipy.sparse.kron(blocks, np.ones((size, size)), format="csr"))


def test_spmv_is_compared_with_every_csr_coo_and_sell_routine() -> None:
    assert [routine.name for routine in routines_for("spmv", ())] == [
        DEFAULT_ROUTINE,
        "cusparse_csr_alg1",
        "cusparse_csr_alg2",
        "cusparse_coo_default",
        "cusparse_coo_alg1",
        "cusparse_coo_alg2",
        "cusparse_sell_alg1",
    ]


def test_a_newer_library_is_compared_by_its_plans_and_its_descriptors_too() -> None:
    older = [routine.name for routine in routines_for("spmv", ())]
    newer = [routine.name for routine in routines_for("spmv", (), has=lambda _: True)]
    assert newer == [*older, "cusparse_spmvop_alg1", "cusparse_spmvop_alg2", "cusparse_generic_csr"]
    planned = [routine.name for routine in routines_for("spmv", (), has=lambda symbol: symbol == "cusparseSpMVOp")]
    assert planned == [*older, "cusparse_spmvop_alg1", "cusparse_spmvop_alg2"]


def test_what_came_with_a_newer_library_is_of_spmv_and_promises_no_equal_bits() -> None:
    assert routines_for("spmm", (), has=lambda _: True) == routines_for("spmm", ())
    of_equal_bits = routines_for("spmv", (), deterministic=True, has=lambda _: True)
    assert of_equal_bits == routines_for("spmv", (), deterministic=True)


def test_spmm_is_compared_with_every_csr_and_coo_routine() -> None:
    names = [routine.name for routine in routines_for("spmm", ())]
    assert names[0] == DEFAULT_ROUTINE
    assert names[1:4] == ["cusparse_csr_alg1", "cusparse_csr_alg2", "cusparse_csr_alg3"]
    assert names[4:] == [f"cusparse_coo_{algorithm}" for algorithm in ("default", "alg1", "alg2", "alg3", "alg4")]


def test_blocked_ell_is_of_spmm_and_tried_once_for_each_block_size() -> None:
    added = [routine for routine in routines_for("spmm", (), (16, 64)) if routine not in routines_for("spmm", ())]
    assert [(routine.name, routine.storage, routine.algorithm) for routine in added] == [
        ("cusparse_blocked_ell16_alg1", Storage("blocked_ell", 16), 13),
        ("cusparse_blocked_ell64_alg1", Storage("blocked_ell", 64), 13),
    ]
    assert routines_for("spmv", (), (16, 64)) == routines_for("spmv", ())
    assert routines_for("spmm", (), (16,), deterministic=True) == routines_for("spmm", (), deterministic=True)


def test_blocked_ell_is_tried_where_its_blocks_are_full_enough_and_fit_the_matrix() -> None:
    nearly_dense = pattern_from_scipy(scipy.sparse.random(256, 192, 0.3, "csr", random_state=np.random.default_rng(1)))
    assert useful_ell_block_sizes(nearly_dense) == ELL_BLOCK_SIZES
    small = pattern_from_scipy(scipy.sparse.csr_matrix(np.ones((30, 40))))
    assert useful_ell_block_sizes(small) == (8, 16)
    assert {8} <= set(useful_ell_block_sizes(blocked(8))) <= {8, 16}
    assert useful_ell_block_sizes(stencil_2d(60, 5)) == ()


def test_half_of_a_symmetric_matrix_is_stored_where_its_values_are_known_and_the_library_is_new() -> None:
    newer = routines_for("spmv", (), has=lambda _: True)
    symmetric = routines_for("spmv", (), is_symmetric=True, has=lambda _: True)
    assert [routine.name for routine in symmetric[len(newer) :]] == ["cusparse_generic_lower"]
    assert routines_for("spmv", (), is_symmetric=True) == routines_for("spmv", ())
    equal_bits = routines_for("spmv", (), is_symmetric=True, deterministic=True, has=lambda _: True)
    assert equal_bits == routines_for("spmv", (), deterministic=True)


def test_bsr_is_tried_once_for_each_block_size() -> None:
    bsr = [routine for routine in routines_for("spmv", (2, 4)) if routine.storage.kind == "bsr"]
    assert [(routine.name, routine.storage.block_size) for routine in bsr] == [
        ("cusparse_bsr2_default", 2),
        ("cusparse_bsr4_default", 4),
        ("cusparse_bsr2_alg1", 2),
        ("cusparse_bsr4_alg1", 4),
    ]


@pytest.mark.parametrize(("size", "useful"), [(1, ()), (2, (2,)), (3, (3,)), (4, (2, 4)), (8, (2, 4, 8))])
def test_only_block_sizes_that_fit_the_pattern_are_tried(size: int, useful: tuple[int, ...]) -> None:
    found = useful_block_sizes(blocked(size))
    assert set(useful) <= set(found)
    assert (found == ()) == (useful == ())


def test_the_fill_of_a_pattern_of_full_blocks_is_one() -> None:
    assert block_fill(blocked(3), 3) == 1.0
    assert block_fill(blocked(2), 4) < 0.6


@pytest.mark.parametrize("size", BLOCK_SIZES)
@pytest.mark.parametrize(
    "pattern", [stencil_2d(260, 9), fem_blocks(120, 3), banded(40_000, 8), uniform_rows(40_000, 9)], ids=lambda p: p.nnz
)
def test_a_sample_decides_as_all_blocks_would(pattern: Pattern, size: int) -> None:
    assert pattern.nnz > NUM_WINDOWS * WINDOW_NNZ
    assert (size in useful_block_sizes(pattern)) == (block_fill(pattern, size) >= MIN_BLOCK_FILL)


@given(pattern=patterns(), size=st.sampled_from(BLOCK_SIZES))
def test_the_fill_is_the_share_of_nonzeros_in_blocks_that_hold_one(pattern: Pattern, size: int) -> None:
    mask = mask_of(pattern)
    padded = np.pad(mask, [(0, -extent % size) for extent in mask.shape])
    blocks = padded.reshape(padded.shape[0] // size, size, -1, size).any(axis=(1, 3)).sum()
    assert block_fill(pattern, size) == pattern.nnz / (blocks * size * size)


def test_the_transpose_is_compared_with_routines_on_a_and_on_a_copy() -> None:
    routines = {routine.name: routine for routine in routines_for("spmv_t", (), has=lambda _: True)}
    plain = [routine.name for routine in routines_for("spmv", (), has=lambda _: True)]
    copies = [name for name, routine in routines.items() if routine.storage.is_transposed]
    assert copies == [name.replace("cusparse_", "cusparse_copy_") for name in plain]
    assert set(plain) - set(routines) == {"cusparse_sell_alg1"}  # Not for op(A) = T.
    assert next(iter(routines)) == DEFAULT_ROUTINE


def test_equal_bits_of_the_transpose_need_a_copy() -> None:
    routines = routines_for("spmv_t", (), deterministic=True, has=lambda _: True)
    assert all(routine.storage.is_transposed for routine in routines)
    assert default_routine("spmv_t", deterministic=True) in {routine.name for routine in routines}
