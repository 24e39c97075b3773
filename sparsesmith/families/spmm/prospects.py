"""What the prospects of spmm families share: ways to cut the dense columns, and what gathering rows of B takes."""

from collections.abc import Callable, Iterator
from math import ceil

from sparsesmith.families.estimates.cost import GATHER_SHARE, L2_BYTES_A_US, Prospect, Values, Work, estimate, number
from sparsesmith.formats.format import ParameterValue

MANY_PRODUCTS = 2_000_000
NEAR_SHARE = 0.8
"""Part of the gathers that neighbouring blocks on one multiprocessor leave to L2."""

Tile = dict[str, ParameterValue]


def tiles(work: Work) -> list[Tile]:
    """Ways to share the dense columns among lanes, widest vectors first."""
    tiles: list[Tile] = []
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


def one_chunk_tiles(work: Work) -> list[Tile]:
    """As tiles, for families whose threads own one vector."""
    return _distinct([{"vector": tile["vector"], "lanes": tile["lanes"]} for tile in tiles(work)])


def _distinct(tiles: list[Tile]) -> list[Tile]:
    unique: list[Tile] = []
    for tile in tiles:
        if tile not in unique:
            unique.append(tile)
    return unique


def tiles_of_groups(work: Work) -> list[Tile]:
    """Ways to share the dense columns among lanes: all in one group, then fewer columns a group and more groups."""
    widest = work.max_vector
    tiles: list[Tile] = []
    for vector in (widest, max(1, widest // 2)):
        covering = min(32, 1 << max(0, ceil(work.num_dense_cols / vector) - 1).bit_length())
        choices = [covering, covering // 2, covering // 4] if vector == widest else [covering]
        tiles += [{"vector": vector, "lanes": lanes} for lanes in choices if lanes >= 1]
    return _distinct(tiles)


def gathered(
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


def placements(work: Work) -> tuple[ParameterValue, ...]:
    """Neighbouring blocks on one multiprocessor only help where each gets several."""
    return ("near", "spread") if work.nnz * work.num_dense_cols > MANY_PRODUCTS else ("spread",)


def shared(
    work: Work, values: Values, matrix_bytes: float, groups: float, read: float, chain: float, launches: int = 1
) -> Prospect:
    """A prospect whose `groups` groups read `read` nonzeros, padding and repeats included."""
    vector, lanes = number(values, "vector"), number(values, "lanes")
    tiles = ceil(work.num_dense_cols / (vector * lanes))
    instructions = (read * (8 + vector) + groups * 60) * lanes * tiles / 32
    us = estimate(work, matrix_bytes * tiles, instructions, chain, groups * lanes * tiles, launches)
    return Prospect(us + gathered_us(work, str(values["placement"])), dict(values))


def gathered_us(work: Work, placement: str) -> float:
    """What reading a row of B for each nonzero takes."""
    missed = GATHER_SHARE * (NEAR_SHARE if placement == "near" else 1.0)
    return missed * work.nnz * work.num_dense_cols * work.element_bytes / L2_BYTES_A_US


def corrected(factor: float, prospects: Callable[[Work], Iterator[Prospect]]) -> Callable[[Work], Iterator[Prospect]]:
    """The prospects with their estimates corrected by what was measured.

    `factor`: measured over estimated time of a family's best program, geometric mean of 33 workloads on an H200.
    """

    def closer(work: Work) -> Iterator[Prospect]:
        for prospect in prospects(work):
            yield Prospect(factor * prospect.estimated_us, prospect.parameters)

    return closer
