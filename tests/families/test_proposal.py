"""Proposals: legal, buildable, different, and the expected strategies first."""

import gc
import weakref
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
import scipy.sparse as sp

from sparsesmith.families import FAMILIES, FamilyInstance, propose
from sparsesmith.families.proposal import prospects_of, shortlist, work_of
from sparsesmith.formats.format import ParameterValue
from sparsesmith.matrix.pattern import Pattern, pattern_from_indices, pattern_from_scipy
from sparsesmith.program.program import parse_program


def stencil(side: int = 60) -> Pattern:
    line = sp.diags([1.0, 1.0, 1.0], [-1, 0, 1], shape=(side, side))
    return pattern_from_scipy((sp.kron(line, sp.identity(side)) + sp.kron(sp.identity(side), line)).tocsr())


def scattered(rows: int = 3000, cols: int = 2500, nnz: int = 30_000) -> Pattern:
    generator = np.random.default_rng(1)
    return pattern_from_indices(rows, cols, generator.integers(0, rows, nnz), generator.integers(0, cols, nnz))


def with_giant_rows(rows: int = 200_000, giants: int = 3) -> Pattern:
    generator = np.random.default_rng(2)
    short = generator.integers(0, rows, 2 * rows)
    giant = np.repeat(np.arange(giants), 150_000)
    cols = generator.integers(0, rows, short.size + giant.size)
    return pattern_from_indices(rows, rows, np.concatenate([short, giant]), cols)


def dense_blocks(extent: int = 3) -> Pattern:
    blocks = sp.random(4000, 4000, 0.003, format="csr", random_state=np.random.default_rng(3))
    return pattern_from_scipy(sp.kron(blocks, np.ones((extent, extent)), format="csr"))


def pruned_layer() -> Pattern:
    return pattern_from_scipy(sp.random(1024, 1024, 0.2, format="csr", random_state=np.random.default_rng(4)))


def full(extent: int = 3000) -> Pattern:
    offsets = np.arange(0, (extent + 1) * extent, extent, np.int32)
    return Pattern(extent, extent, offsets, np.tile(np.arange(extent, dtype=np.int32), extent))


def one_entry() -> Pattern:
    return pattern_from_indices(1, 1, [0], [0])


def mostly_empty_rows() -> Pattern:
    return pattern_from_indices(5000, 70_000, [7, 7, 4999], [0, 69_999, 3])


PATTERNS = [stencil(), scattered(), with_giant_rows(), dense_blocks(), pruned_layer(), one_entry(), mostly_empty_rows()]
WORKLOADS = [("spmv", "float32", 1), ("spmv", "float64", 1), ("spmm", "float32", 32), ("spmm", "float64", 128)]


def families(instances: list[FamilyInstance], first: int) -> set[str]:
    return {instance.family for instance in instances[:first]}


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: f"{pattern.num_rows}x{pattern.num_cols}")
@pytest.mark.parametrize(("operation", "element_type", "num_dense_cols"), WORKLOADS)
def test_every_proposal_can_be_built_and_no_two_are_alike(pattern, operation, element_type, num_dense_cols) -> None:  # type: ignore[no-untyped-def]
    instances = propose(pattern, operation, element_type, num_dense_cols, 200)
    assert instances
    assert len({instance.program for instance in instances}) == len(instances) <= 200
    built = set()
    for instance in instances:
        family = FAMILIES[instance.family]
        assert instance.program == family.render(instance.parameters, element_type, num_dense_cols)
        program = parse_program(instance.program, operation, element_type)
        key = (program.format.name, *program.parameters.items())
        if key not in built:
            program.format.build(pattern, program.parameters)
            built.add(key)


def test_proposals_start_with_different_families() -> None:
    assert len(families(propose(scattered(), "spmv", "float32", limit=64), 8)) >= 5
    assert len(families(propose(scattered(), "spmm", "float32", 32, limit=64), 6)) >= 3


def test_a_large_limit_varies_parameters_and_no_family_takes_all() -> None:
    counts = Counter(instance.family for instance in propose(scattered(), "spmv", "float32", limit=200))
    assert sum(counts.values()) == 200
    assert len(counts) >= 8
    assert max(counts.values()) <= 50


def test_a_stencil_gets_diagonals_early() -> None:
    assert families(propose(stencil(), "spmv", "float32", limit=20), 4) & {"dia", "dia_batched"}
    assert "spmm_dia" in families(propose(stencil(), "spmm", "float32", 32, limit=20), 4)


def test_dense_blocks_get_block_formats_early() -> None:
    spmv = propose(dense_blocks(), "spmv", "float64", limit=20)
    blocked = [instance.parameters for instance in spmv if instance.family.startswith("bsr")]
    assert {"block_rows": 3, "block_cols": 3}.items() <= blocked[0].items()
    assert "spmm_bsr" in families(propose(dense_blocks(), "spmm", "float32", 32, limit=20), 4)


def test_giant_rows_get_balanced_strategies_first_and_no_padding() -> None:
    spmv = families(propose(with_giant_rows(), "spmv", "float32", limit=64), 2)
    assert spmv <= {"csr_merge", "coo_segmented"}
    assert families(propose(with_giant_rows(), "spmm", "float32", 32, limit=64), 1) <= {"spmm_merge", "spmm_tiles"}
    assert not families(propose(with_giant_rows(), "spmv", "float32", limit=200), 200) & {"ell", "ell_fixed", "dia"}


def test_a_full_matrix_of_long_rows_gets_dense_blocks() -> None:
    assert families(propose(full(), "spmv", "float32", limit=64), 8) & {"bsell", "bsr_lanes", "bsr_rows"}
    for num_dense_cols in (32, 128):
        assert "spmm_bsr_split" in families(propose(full(), "spmm", "float32", num_dense_cols, limit=64), 8)


def with_full_rows(rows: int = 200_000, full_rows: int = 20) -> Pattern:
    diagonal = np.arange(rows)
    full_row = np.repeat(np.arange(full_rows), rows)
    return pattern_from_indices(
        rows, rows, np.concatenate([diagonal, full_row]), np.concatenate([diagonal, np.tile(diagonal, full_rows)])
    )


def test_a_row_of_hundreds_of_thousands_is_never_left_to_a_few_lanes() -> None:
    spmv = propose(with_full_rows(), "spmv", "float32", limit=2000)
    assert not families(spmv, 2000) & {"csr_scalar", "csr_vector", "sell", "sell_lanes", "bsr_lanes"}
    spmm = propose(with_full_rows(), "spmm", "float32", 8, limit=2000)
    assert not families(spmm, 2000) & {"spmm_rows", "spmm_rows_shuffle", "spmm_sell"}
    assert {"spmm_merge", "spmm_tiles"} <= families(spmm, 8)


def test_a_pattern_is_free_when_its_proposals_are_made() -> None:
    pattern = scattered()
    is_held = weakref.ref(pattern)
    propose(pattern, "spmv", "float32")
    propose(pattern, "spmm", "float32", 32)
    del pattern
    gc.collect()
    assert is_held() is None


def uneven(rows: int = 800, long: int = 300) -> Pattern:
    generator = np.random.default_rng(5)
    short = generator.integers(0, rows, 4 * rows)
    cols = generator.integers(0, rows, short.size + long)
    return pattern_from_indices(rows, rows, np.concatenate([short, np.full(long, 7)]), cols)


def test_a_small_matrix_of_uneven_rows_gets_tiles_early_and_its_long_row_whole() -> None:
    spmv = propose(uneven(), "spmv", "float32", limit=40)
    assert families(spmv, 8) & {"csr_tiles", "csr_tiles_sorted"}
    longest = int(uneven().row_lengths.max())
    for instance in spmv:
        if instance.family == "csr_tiles":
            assert int(instance.parameters["block"]) * int(instance.parameters["items"]) >= longest


def nearly_dense(share: float) -> Pattern:
    kept = np.random.default_rng(5).random((2048, 1024)) < share
    return pattern_from_scipy(sp.csr_matrix(kept))


def test_a_nearly_dense_matrix_gets_cells_whose_strips_share_columns_the_fuller_it_is() -> None:
    def best_height(share: float) -> int:
        prospects = prospects_of(work_of(nearly_dense(share), "float32", 128), "spmm", "float32")
        of_cells = [entry for entry in prospects if entry.family.name == "spmm_cells"]
        return int(min(of_cells, key=lambda entry: entry.estimated_us).parameters["height"])

    assert "spmm_cells" in families(propose(nearly_dense(0.2), "spmm", "float32", 32, limit=8), 8)
    assert best_height(0.05) < best_height(0.3) < best_height(0.9)


def test_a_sparse_matrix_gets_no_cells() -> None:
    assert "spmm_cells" not in families(propose(nearly_dense(0.02), "spmm", "float32", 32, limit=64), 64)


@pytest.mark.parametrize("most", [1, 12])
@pytest.mark.parametrize("make", [stencil, scattered, uneven])
def test_a_shortlist_in_a_hurry_is_the_one_that_all_prospects_would_give(
    make: Callable[[], Pattern], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def shortlisted() -> list[tuple[str, dict[str, ParameterValue], float]]:
        found = shortlist(work_of(make(), "float32"), "spmv", "float32", (), most)
        return [(each.family.name, each.parameters, each.estimated_us) for each in found]

    hurried = shortlisted()
    monkeypatch.setattr("sparsesmith.families.proposal.TRIED_FIRST", 10**6)
    assert hurried == shortlisted()
    assert len({name for name, _, _ in hurried}) > 10


def graph(exponent: float) -> Pattern:
    """20,000 rows of 16 columns; the larger the exponent, the more of them are among the first."""
    chance = np.random.default_rng(6).random((20_000, 16))
    columns = (8_000 * chance**exponent).astype(np.int64)
    rows = np.repeat(np.arange(20_000), 16)
    return pattern_from_scipy(sp.csr_matrix((np.ones(rows.size), (rows, columns.ravel())), shape=(20_000, 8_000)))


def test_a_graph_with_popular_columns_gets_hubs_in_shared_memory_and_one_without_does_not() -> None:
    assert "spmm_hubs" in families(propose(graph(6), "spmm", "float32", 128, limit=8), 8)
    assert "spmm_hubs" not in families(propose(graph(1), "spmm", "float32", 128, limit=64), 64)


def test_few_long_rows_get_more_groups_a_row_than_a_warp_has_lanes() -> None:
    pruned = nearly_dense(0.5)
    few = pattern_from_scipy(pruned.to_scipy(np.ones(pruned.nnz))[:256])

    def most_splits(pattern: Pattern) -> int:
        prospects = prospects_of(work_of(pattern, "float32", 32), "spmm", "float32")
        return max(int(each.parameters["splits"]) for each in prospects if each.family.name == "spmm_rows_split")

    assert most_splits(few) == 128
    assert most_splits(pruned) == 32


def test_a_mesh_in_a_local_order_gets_its_distinct_rows_of_b_copied_and_one_in_random_order_does_not() -> None:
    side = 128
    grid = sp.diags([1.0] * 5, [-side, -1, 0, 1, side], shape=(side * side, side * side), format="csr")
    moved = np.random.default_rng(7).permutation(side * side)
    local, scattered = (pattern_from_scipy(matrix) for matrix in (grid, grid[moved][:, moved]))
    assert "spmm_distinct" in families(propose(local, "spmm", "float32", 128, limit=16), 16)
    assert "spmm_distinct" not in families(propose(scattered, "spmm", "float32", 128, limit=64), 64)
