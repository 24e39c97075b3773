"""Prospects of every spmm family."""

from collections.abc import Callable, Iterator, Mapping
from math import ceil

from sparsesmith.families import spmm_hyb_prospects, spmm_split_prospects
from sparsesmith.families.prospects import (
    GATHER_SHARE,
    L2_BYTES_A_US,
    Prospect,
    Values,
    Work,
    combine,
    estimate,
    index_bytes,
    indices,
    loads,
    near,
    number,
)
from sparsesmith.families.spmv_prospects import sigmas
from sparsesmith.formats.format import ParameterValue


def _tiles(work: Work) -> list[dict[str, ParameterValue]]:
    """Ways to share the dense columns among lanes, widest vectors first."""
    tiles: list[dict[str, ParameterValue]] = []
    widest = work.max_vector
    for vector in (widest, widest // 2):
        if vector < 1:
            continue
        for chunks in (1, 2, 4):
            lanes = min(32, 1 << max(0, ceil(work.num_dense_cols / (vector * chunks)) - 1).bit_length())
            tiles.append({"vector": vector, "lanes": lanes, "chunks": chunks})
    if work.num_dense_cols > 32:
        tiles.append({"vector": widest, "lanes": max(1, 32 // widest), "chunks": 1})
    return _distinct(tiles)


def _one_chunk_tiles(work: Work) -> list[dict[str, ParameterValue]]:
    """As _tiles, for families whose threads own one vector."""
    return _distinct([{"vector": tile["vector"], "lanes": tile["lanes"]} for tile in _tiles(work)])


def _distinct(tiles: list[dict[str, ParameterValue]]) -> list[dict[str, ParameterValue]]:
    unique: list[dict[str, ParameterValue]] = []
    for tile in tiles:
        if tile not in unique:
            unique.append(tile)
    return unique


def _gathered(
    work: Work, values: Values, matrix_bytes: float, padding: float, chain: float, reuse: float = 1.0, launches: int = 1
) -> Prospect:
    vector, lanes = number(values, "vector"), number(values, "lanes")
    chunks = number(values, "chunks") if "chunks" in values else 1
    tiles = ceil(work.num_dense_cols / (vector * lanes * chunks))
    gathers = work.nnz * padding * work.num_dense_cols * work.element_bytes * GATHER_SHARE / reuse
    vectors = work.nnz * padding * work.num_dense_cols / vector
    instructions = vectors * (3 + vector) / 32 + work.nnz * padding * lanes * tiles * 8 / 32
    threads = float(work.rows * lanes * tiles)
    us = estimate(work, matrix_bytes * tiles, instructions, chain, threads, launches)
    return Prospect(us + gathers / L2_BYTES_A_US, dict(values))


def _spmm_rows(work: Work) -> Iterator[Prospect]:
    unrolls = near(min(work.shape.mean, 6), (1, 2, 4, 8), 3)
    for tile in _tiles(work):
        for rest in combine(
            unroll=unrolls, block=(128, 64, 256), load=loads(work)[:1], index=indices(work.shape.narrow)
        ):
            unroll = number(rest, "unroll")
            padding = ceil(work.shape.mean / unroll) * unroll / work.shape.mean
            chain = 2 + 2 * ceil(work.shape.longest / unroll)
            yield _gathered(work, {**tile, **rest}, work.csr_bytes(str(rest["index"])), min(padding, 2), chain)


def _spmm_rows_shuffle(work: Work) -> Iterator[Prospect]:
    for tile in _tiles(work):
        for rest in combine(
            unroll=(4, 8), block=(128, 64, 256), load=loads(work)[:1], index=indices(work.shape.narrow)
        ):
            chain = 2 + 1.6 * ceil(work.shape.longest / number(rest, "unroll"))
            yield _gathered(work, {**tile, **rest}, work.csr_bytes(str(rest["index"])), 1.1, chain)


def _spmm_rows_staged(work: Work) -> Iterator[Prospect]:
    for tile in _one_chunk_tiles(work):
        for rest in combine(
            unroll=(4, 8),
            block=(128, 256),
            load=loads(work)[:1],
            index=indices(work.shape.narrow_row_blocks(512)),
            nnz_per_block=(256, 512, 128),
        ):
            if rest["index"] == "u16" and not work.shape.narrow_row_blocks(number(rest, "nnz_per_block")):
                continue
            groups = max(1, number(rest, "block") // number(tile, "lanes"))
            capacity = number(rest, "nnz_per_block")
            chain = 5 + 0.5 * min(work.shape.longest, capacity) + max(0, work.shape.longest - capacity) / groups
            yield _gathered(work, {**tile, **rest}, work.csr_bytes(str(rest["index"])), 1.0, chain)


def _spmm_merge(work: Work) -> Iterator[Prospect]:
    for tile in _tiles(work):
        for rest in combine(
            items=(64, 32, 128, 256), balance=("merge", "nnz"), unroll=(4, 8), block=(128, 64), load=loads(work)[:1]
        ):
            chain = 4 + 2 * number(rest, "items") / min(number(rest, "unroll"), max(1.0, work.shape.mean))
            carries = 2.0 * work.nnz / number(rest, "items") * work.num_dense_cols * work.element_bytes
            yield _gathered(work, {**tile, **rest}, work.csr_bytes() + carries, 1.15, min(chain, 60), launches=2)


def _spmm_bsr(work: Work) -> Iterator[Prospect]:
    for rows, cols in work.shape.block_shapes()[:4]:
        fill = work.shape.block_fill(rows, cols)
        for tile in _one_chunk_tiles(work):
            for rest in combine(
                block_rows=(rows,), block_cols=(cols,), unroll=(2, 1, 4), block=(128, 64, 256), load=loads(work)[:1]
            ):
                size = work.nnz / fill * (work.element_bytes + 4 / (rows * cols))
                chain = 2 + 2 * ceil(work.shape.longest / cols / number(rest, "unroll"))
                yield _gathered(work, {**tile, **rest}, size, 1 / fill, chain, reuse=rows)


def _spmm_dia(work: Work) -> Iterator[Prospect]:
    padding = work.shape.dia_padding
    for tile in _tiles(work):
        for rest in combine(unroll=(4, 8), block=(128, 64, 256), load=loads(work)):
            chain = 1 + 2 * ceil(work.shape.diagonals / number(rest, "unroll"))
            yield _gathered(work, {**tile, **rest}, work.nnz * padding * work.element_bytes, padding, chain, reuse=2)


def _spmm_sell(work: Work) -> Iterator[Prospect]:
    for tile in _tiles(work):
        for rest in combine(
            slice=(8, 32),
            sigma=sigmas(work, 8),
            unroll=(4, 2),
            block=(128, 64),
            load=loads(work)[:1],
            index=("u16", "i32"),
        ):
            slice_, sigma = number(rest, "slice"), number(rest, "sigma")
            if rest["index"] == "u16" and not work.shape.narrow_slices(slice_, sigma):
                continue
            padding = work.shape.sell_padding(slice_, sigma)
            size = work.nnz * padding * (work.element_bytes + index_bytes(rest["index"]))
            if padding < 4:
                chain = 3 + 2 * ceil(work.shape.longest / number(rest, "unroll"))
                yield _gathered(work, {**tile, **rest}, size, padding, chain)


def _spmm_panel(work: Work) -> Iterator[Prospect]:
    density = work.shape.mean / work.shape.pattern.num_cols
    for tile in _one_chunk_tiles(work):
        for rest in combine(
            panel=(64, 32, 128, 256), rows=(4, 2, 8), block=(256, 128, 512), index=indices(work.shape.narrow)
        ):
            rows = number(rest, "rows") * number(rest, "block") // number(tile, "lanes")
            chain = 4 * work.shape.mean * number(rest, "rows")
            reuse = max(0.2, density * rows)
            yield _gathered(work, {**tile, **rest}, work.csr_bytes(str(rest["index"])), 1.0, min(chain, 400), reuse)


PROSPECTS: Mapping[str, Callable[[Work], Iterator[Prospect]]] = {
    "spmm_rows": _spmm_rows,
    "spmm_rows_shuffle": _spmm_rows_shuffle,
    "spmm_rows_staged": _spmm_rows_staged,
    "spmm_merge": _spmm_merge,
    "spmm_bsr": _spmm_bsr,
    "spmm_dia": _spmm_dia,
    "spmm_sell": _spmm_sell,
    "spmm_panel": _spmm_panel,
    **spmm_split_prospects.PROSPECTS,
    **spmm_hyb_prospects.PROSPECTS,
}
"""Parameters worth trying, by family."""
