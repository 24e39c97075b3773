"""Prospects of the spmm families that share a row or a tile among groups of lanes."""

from collections.abc import Callable, Iterator, Mapping
from math import ceil, log2

from sparsesmith.families.prospects import (
    GATHER_SHARE,
    L2_BYTES_A_US,
    NUM_SMS,
    Prospect,
    Values,
    Work,
    combine,
    estimate,
    index_bytes,
    indices,
    near,
    number,
)
from sparsesmith.formats.format import ParameterValue
from sparsesmith.program.directives import MAX_SHARED_BYTES

SHARED_BYTES_A_US = 25e6

MANY_PRODUCTS = 2_000_000
NEAR_SHARE = 0.8
"""Part of the gathers that neighbouring blocks on one multiprocessor leave to L2."""

MEASURED = {"spmm_rows_split": 0.88, "spmm_ell": 0.8, "spmm_tiles": 1.25}
"""Measured over estimated time of each family's best program, geometric mean of 33 workloads on an H200."""

MAX_PADDING = 8
"""Slots a nonzero beyond which tiles are not worth building."""


def _tiles(work: Work) -> list[dict[str, ParameterValue]]:
    """Ways to share the dense columns among lanes: all in one group, then fewer columns a group and more groups."""
    widest = work.max_vector
    tiles: list[dict[str, ParameterValue]] = []
    for vector in (widest, max(1, widest // 2)):
        covering = min(32, 1 << max(0, ceil(work.num_dense_cols / vector) - 1).bit_length())
        choices = [covering, covering // 2, covering // 4] if vector == widest else [covering]
        tiles += [{"vector": vector, "lanes": lanes} for lanes in choices if lanes >= 1]
    return [tile for place, tile in enumerate(tiles) if tile not in tiles[:place]]


def _placements(work: Work) -> tuple[ParameterValue, ...]:
    """Neighbouring blocks on one multiprocessor only help where each gets several."""
    return ("near", "spread") if work.nnz * work.num_dense_cols > MANY_PRODUCTS else ("spread",)


def _shared(
    work: Work, values: Values, matrix_bytes: float, groups: float, read: float, chain: float, launches: int = 1
) -> Prospect:
    """A prospect whose `groups` groups read `read` nonzeros, padding and repeats included."""
    vector, lanes = number(values, "vector"), number(values, "lanes")
    tiles = ceil(work.num_dense_cols / (vector * lanes))
    instructions = (read * (8 + vector) + groups * 60) * lanes * tiles / 32
    us = estimate(work, matrix_bytes * tiles, instructions, chain, groups * lanes * tiles, launches)
    return Prospect(us + _gathered_us(work, str(values["placement"])), dict(values))


def _gathered_us(work: Work, placement: str) -> float:
    """What reading a row of B for each nonzero takes."""
    missed = GATHER_SHARE * (NEAR_SHARE if placement == "near" else 1.0)
    return missed * work.nnz * work.num_dense_cols * work.element_bytes / L2_BYTES_A_US


def _spmm_rows_split(work: Work) -> Iterator[Prospect]:
    mean, longest = work.shape.mean, work.shape.longest
    splits = sorted({*near(mean / 2, (1, 2, 4, 8, 16, 32), 3), *near(longest / 8, (2, 4, 8, 16, 32), 2)})
    for tile in _tiles(work):
        for rest in combine(
            splits=tuple(splits), unroll=(4, 2, 1, 8), block=(128, 256, 64), load=("ldg",),
            index=indices(work.shape.narrow), placement=_placements(work),
        ):  # fmt: skip
            batch = number(rest, "splits") * number(rest, "unroll")
            if batch > 4 * max(mean, longest / 16):
                continue
            read = work.rows * batch * ceil(mean / batch)
            chain = 2.5 + 1.2 * ceil(longest / batch) + 0.3 * log2(number(rest, "splits"))
            groups = float(work.rows * number(rest, "splits"))
            yield _shared(work, {**tile, **rest}, work.csr_bytes(str(rest["index"])), groups, read, chain)


def _spmm_ell(work: Work) -> Iterator[Prospect]:
    width = work.shape.longest
    slots = float(width * work.rows)
    for tile in _tiles(work):
        for rest in combine(
            splits=(1, 2, 4, 8, 16), block=(128, 64, 256, 32), load=("ldg",), placement=_placements(work)
        ):
            splits = number(rest, "splits")
            chain = 2 + 0.3 * log2(splits) + 0.1 * width / splits
            values = {**tile, **rest, "width": width}
            if splits <= width:
                yield _shared(work, values, slots * (4 + work.element_bytes), work.rows * splits, slots, chain)


def _spmm_tiles(work: Work) -> Iterator[Prospect]:
    for tile in _tiles(work):
        for rest in combine(
            share=(4, 8, 2, 16),
            block=(128, 256, 64, 512),
            load=("ldg",),
            index=("u16", "i32"),
            placement=_placements(work),
        ):
            share = number(rest, "share")
            capacity = number(rest, "block") // number(tile, "lanes") * share
            if rest["index"] == "u16" and not work.shape.narrow_row_blocks(capacity):
                continue
            for rows in near(1.5 * capacity / work.shape.mean, (16, 32, 64, 128, 256), 2):
                for gathers, later in (("early", 0.0), ("late", 1.0)):
                    values: dict[str, ParameterValue] = {**tile, **rest, "rows": rows, "gathers": gathers}
                    yield from _tiles_of(work, values, capacity, later)


def _tiles_of(work: Work, values: Values, capacity: int, later: float) -> Iterator[Prospect]:
    longest, mean = work.shape.longest, work.shape.mean
    rows, share = number(values, "rows"), number(values, "share")
    num_tiles = max(work.nnz / capacity * (1 + min(mean / capacity, 1)), work.rows / rows)
    slots = num_tiles * capacity
    if slots > MAX_PADDING * work.nnz:
        return
    split = longest > capacity
    size = slots * (index_bytes(values["index"]) + work.element_bytes) + num_tiles * (2 * rows + 8)
    chain = 3 + later + 0.1 * min(longest, capacity) / share + 0.02 * rows + 0.01 * (longest // capacity)
    yield _shared(
        work,
        {**values, "long_rows": "split" if split else "refuse"},
        size,
        slots / share,
        slots,
        chain,
        launches=2 if split else 1,
    )


def _spmm_resident(work: Work) -> Iterator[Prospect]:
    num_cols = work.shape.pattern.num_cols
    capacity = min(size for size in (256, 512, 1024, 2048, 4096, 7168) if size >= num_cols)
    for tile in _tiles(work):
        lanes = number(tile, "lanes")
        for rest in combine(
            splits=(32 // lanes, 16 // lanes, 8 // lanes), passes=(1, 2, 4, 8), unroll=(4, 8), block=(512, 1024, 256),
            load=("ldg",), index=indices(work.shape.narrow),
        ):  # fmt: skip
            yield _resident(work, {**tile, **rest, "capacity": capacity})


def _resident(work: Work, values: Values) -> Prospect:
    """Slabs are copied from L2 once a block; after that all reads of B stay on the multiprocessor."""
    lanes, block, passes = number(values, "lanes"), number(values, "block"), number(values, "passes")
    splits = max(1, number(values, "splits"))
    width = number(values, "vector") * lanes * work.element_bytes
    slab = number(values, "capacity") * width
    tiles = work.num_dense_cols * work.element_bytes / width
    blocks = ceil(work.rows * lanes * splits / (block * passes)) * tiles
    at_once = NUM_SMS * max(1, min(2048 // block, MAX_SHARED_BYTES // max(slab, 1)))
    waves = ceil(blocks / at_once)
    conflicts = min(2.0, 128 / width)
    gathered = work.nnz * work.num_dense_cols * work.element_bytes * conflicts / SHARED_BYTES_A_US
    copied = blocks * work.shape.pattern.num_cols * width / L2_BYTES_A_US
    batches = ceil(work.shape.longest / (splits * number(values, "unroll")))
    chain = waves * (4 + passes * (2 + batches))
    read = estimate(work, work.csr_bytes(str(values["index"])) * tiles, 0.0, chain, 0.0)
    return Prospect(read + copied + gathered * max(1.0, NUM_SMS / blocks), dict(values))


def _spmm_bsr_split(work: Work) -> Iterator[Prospect]:
    for rows, cols in work.shape.block_shapes()[:4]:
        if rows == 1:
            continue
        fill = work.shape.block_fill(rows, cols)
        a_row = max(1.0, work.shape.mean / cols / fill)
        for tile in _tiles(work):
            in_a_warp = tuple(splits for splits in (2, 4, 8, 16) if splits * number(tile, "lanes") <= 32)
            for rest in combine(
                block_rows=(rows,), block_cols=(cols,), splits=near(a_row / 3, in_a_warp, 2), unroll=(2, 1, 4),
                block=(128, 64, 256), load=("ldg",), placement=_placements(work),
            ):  # fmt: skip
                size = work.nnz / fill * (work.element_bytes + 4 / (rows * cols))
                chain = 2.5 + 2 * ceil(work.shape.longest / cols / number(rest, "splits") / number(rest, "unroll"))
                groups = work.rows / rows * number(rest, "splits")
                shared = _shared(work, {**tile, **rest}, size, groups, work.nnz / fill / rows, chain)
                saved = (1 - 1 / rows) * _gathered_us(work, str(rest["placement"]))
                yield Prospect(shared.estimated_us - saved, shared.parameters)


def _measured(name: str, prospects: Callable[[Work], Iterator[Prospect]]) -> Callable[[Work], Iterator[Prospect]]:
    """The prospects with their estimates corrected by what was measured."""

    def corrected(work: Work) -> Iterator[Prospect]:
        for prospect in prospects(work):
            yield Prospect(MEASURED[name] * prospect.estimated_us, prospect.parameters)

    return corrected


PROSPECTS: Mapping[str, Callable[[Work], Iterator[Prospect]]] = {
    "spmm_rows_split": _measured("spmm_rows_split", _spmm_rows_split),
    "spmm_ell": _measured("spmm_ell", _spmm_ell),
    "spmm_tiles": _measured("spmm_tiles", _spmm_tiles),
    "spmm_resident": _spmm_resident,
    "spmm_bsr_split": _spmm_bsr_split,
}
"""Parameters worth trying, by family."""
