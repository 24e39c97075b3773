"""Prospects of every spmv family."""

from collections.abc import Callable, Iterator, Mapping
from math import ceil

from sparsesmith.families import (
    block_slices_prospects,
    diagonals_prospects,
    hyb_prospects,
    panels_prospects,
    row_bins_prospects,
    tiles_prospects,
)
from sparsesmith.families.prospects import (
    BYTES_COUNT_NNZ,
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
from sparsesmith.formats.building.windows import REACHES
from sparsesmith.formats.csr import FROM_ROW
from sparsesmith.formats.format import ParameterValue

SIGMAS = (1, 64, 256, 1024, 4096, 16384, 0)
LANES = (2, 4, 8, 16, 32)
SLICE_INDICES = ("u16", "i32", "u8", "u16_slot")
MAX_WINDOW_PADDING = 1.1
"""Slots in windows of columns for each slot without: with more, 16 bits from the slice's base are no larger."""
CAPACITIES = (512, 1024, 2048, 3072, 4096, 6144, 8192, 12288)


def _row_indices(work: Work) -> tuple[ParameterValue, ...]:
    """Column widths of CSR that the pattern allows, the narrowest first."""
    shape, bytes_count = work.shape, work.nnz >= BYTES_COUNT_NNZ and work.shape.mean >= 3
    eight: tuple[ParameterValue, ...] = ("u8",) if bytes_count and shape.row_reach <= 256 else ()
    if bytes_count and not shape.narrow and shape.row_reach <= 65536:
        return (*eight, "u16_row", "i32")
    return (*eight, *indices(shape.narrow))


def _csr_rows(work: Work, values: Values, lanes: int, unroll: int) -> Prospect:
    """A row of CSR for each `lanes` lanes."""
    shape = work.shape
    step = lanes * unroll
    slots = work.rows * max(1.0, ceil(shape.mean / step)) * step
    index = str(values.get("index", "i32"))
    scattered = 1 + 0.04 * min(shape.mean, 24) if lanes == 1 else 1 + 0.1 * min(shape.mean / lanes, 4) * (lanes < 8)
    uneven = 1 + 0.3 * shape.variation if lanes < 32 else 1
    chain = 2 + 2 * ceil(shape.longest / step)
    instructions = slots * (11 + 8 / unroll) / 32 + work.rows * lanes * 12 / 32
    size = work.csr_bytes(index) + 4.0 * work.rows * (index in FROM_ROW)
    us = estimate(work, size * scattered, instructions * uneven, chain, float(work.rows * lanes))
    return Prospect(us, dict(values))


def _csr_scalar(work: Work) -> Iterator[Prospect]:
    unrolls = near(min(work.shape.mean, 8), (1, 2, 4, 8, 16), 3)
    blocks = (32, 64, 128) if work.rows < 30_000 else (128, 256)
    for values in combine(unroll=unrolls, block=blocks, load=loads(work), index=_row_indices(work)):
        yield _csr_rows(work, values, 1, number(values, "unroll"))


def _csr_vector(work: Work) -> Iterator[Prospect]:
    lanes = near(work.shape.mean / 2, LANES, 3)
    blocks = (64, 128) if work.nnz < 300_000 else (128, 256)
    for values in combine(lanes=lanes, unroll=(2, 1, 4), block=blocks, load=loads(work), index=_row_indices(work)):
        yield _csr_rows(work, values, number(values, "lanes"), number(values, "unroll"))


def _csr_vector_persistent(work: Work) -> Iterator[Prospect]:
    for values in combine(
        lanes=near(work.shape.mean / 2, LANES, 2),
        unroll=(2, 4),
        block=(256, 128),
        load=loads(work)[:1],
        index=_row_indices(work)[:1],
        blocks_per_sm=(8, 16),
    ):
        prospect = _csr_rows(work, values, number(values, "lanes"), number(values, "unroll"))
        yield Prospect(1.05 * prospect.estimated_us, prospect.parameters)


def _csr_vector_wide(work: Work) -> Iterator[Prospect]:
    width = 16 // work.element_bytes
    for values in combine(
        lanes=near(work.shape.mean / width, (4, 8, 16, 32), 2),
        block=(128, 256),
        load=loads(work),
        index=_row_indices(work),
    ):
        yield _csr_rows(work, values, number(values, "lanes"), width)


def _csr_block(work: Work) -> Iterator[Prospect]:
    for values in combine(
        unroll=(4, 2, 8),
        block=near(work.shape.mean / 4, (32, 64, 128, 256, 512, 1024), 3),
        load=loads(work),
        index=_row_indices(work)[:1],
    ):
        yield _csr_rows(work, values, number(values, "block"), number(values, "unroll"))


def _csr_shared_x(work: Work) -> Iterator[Prospect]:
    capacity = min(entry for entry in CAPACITIES if entry >= work.shape.pattern.num_cols)
    for values in combine(
        capacity=(capacity,),
        lanes=near(work.shape.mean / 4, LANES, 2),
        unroll=(2, 4),
        block=(512, 1024, 256),
        blocks_per_sm=(2, 1),
        load=loads(work),
        index=_row_indices(work)[:1],
    ):
        prospect = _csr_rows(work, values, number(values, "lanes"), number(values, "unroll"))
        copying = 1.0 + capacity * work.element_bytes / 32e3
        yield Prospect(0.9 * prospect.estimated_us + copying, prospect.parameters)


def _staged(work: Work, values: Values, lanes: int, launches: int = 1) -> Prospect:
    """Products through shared memory; uneven rows only hurt where lanes are fixed."""
    shape = work.shape
    capacity = number(values, "block") * number(values, "unroll")
    index = str(values.get("index", "i32"))
    widest = min(shape.longest, capacity)
    serial = widest / lanes * (0.1 if lanes else 0)
    long_row = 2 * ceil(max(shape.longest - capacity, 0) / capacity)
    chain = 5 + min(serial, 60) + long_row + 0.15 * number(values, "unroll")
    instructions = work.nnz * 26 / 32 + work.rows * 14 / 32
    return Prospect(
        estimate(work, work.csr_bytes(index), instructions, chain, work.nnz / number(values, "unroll"), launches),
        dict(values),
    )


def _staging_blocks(work: Work) -> tuple[int, ...]:
    return (64, 128, 256) if work.nnz < 300_000 else (128, 256, 64, 512)


def _csr_stream(work: Work) -> Iterator[Prospect]:
    for values in combine(
        lanes=near(work.shape.mean / 6, (1, 2, 4, 8, 16, 32), 3),
        unroll=(4, 2, 8),
        block=_staging_blocks(work),
        load=loads(work),
        index=indices(work.shape.narrow_row_blocks(1024)),
    ):
        if values["index"] == "i32" or work.shape.narrow_row_blocks(number(values, "block") * number(values, "unroll")):
            yield _staged(work, values, number(values, "lanes"))


def _csr_adaptive(work: Work) -> Iterator[Prospect]:
    for values in combine(
        lanes=near(work.shape.mean / 6, (1, 2, 4, 8), 2),
        unroll=(4, 8, 2),
        block=_staging_blocks(work),
        load=loads(work),
        index=indices(work.shape.narrow_row_blocks(1024)),
    ):
        if values["index"] == "i32" or work.shape.narrow_row_blocks(number(values, "block") * number(values, "unroll")):
            yield _staged(work, values, 32)


def _csr_binned(work: Work) -> Iterator[Prospect]:
    for prospect in _csr_adaptive(work):
        for warp_row_nnz in near(work.shape.mean, (32, 64, 128), 2):
            yield Prospect(1.03 * prospect.estimated_us, {"warp_row_nnz": warp_row_nnz, **prospect.parameters})


def _csr_merge(work: Work) -> Iterator[Prospect]:
    for values in combine(
        lanes=near(work.shape.mean / 6, (1, 2, 4, 8), 2),
        unroll=(4, 8, 2),
        block=_staging_blocks(work),
        balance=("merge", "nnz"),
        load=loads(work),
        index=_segment_indices(work),
    ):
        segment = number(values, "block") * number(values, "unroll")
        if not _segments_fit(work, segment, values["index"]):
            continue
        instructions = work.nnz * 30 / 32 + work.rows * 14 / 32
        size = work.csr_bytes(str(values["index"]))
        us = estimate(work, size, instructions, 7, work.nnz / number(values, "unroll"), 2)
        yield Prospect(us, dict(values))


def _segment_indices(work: Work) -> tuple[ParameterValue, ...]:
    """Column widths that segments of some length may allow."""
    near_rows = work.nnz >= BYTES_COUNT_NNZ and work.shape.row_reach <= 256
    sixteen = work.shape.narrow or work.shape.row_reach <= 65536
    return ("u8", *indices(sixteen)) if near_rows else indices(sixteen)


def _segments_fit(work: Work, segment: int, index: ParameterValue) -> bool:
    """Whether every segment of so many nonzeros spans no more columns than the width allows."""
    if index == "i32" or (index == "u16" and work.shape.narrow):
        return True
    return work.shape.reach_of_nonzeros(segment) <= (256 if index == "u8" else 65536)


def _coo_segmented(work: Work) -> Iterator[Prospect]:
    for values in combine(
        items=(4, 2, 8, 1) if work.nnz > 100_000 else (2, 4, 1),
        block=(256, 128, 64),
        load=loads(work),
        index=indices(work.shape.narrow),
    ):
        size = work.nnz * (4.0 + index_bytes(values["index"]) + work.element_bytes)
        items = number(values, "items")
        instructions = work.nnz * (20 + 60 / items) / 32
        yield Prospect(estimate(work, size, instructions, 4, work.nnz / items, 2), dict(values))


def _padded_rows(
    work: Work, values: Values, padding: float, lanes: int, unroll: int, chain: float, slice_: int = 0
) -> Prospect:
    index = values.get("index", "i32")
    base_bytes = 4 / slice_ if index in REACHES else 0.0
    slots = work.nnz * padding
    longest = ceil(work.shape.longest / (lanes * unroll))
    instructions = slots * (9 + 6 / unroll) / 32 + work.rows * 10 / 32
    us = estimate(
        work,
        slots * (work.element_bytes + index_bytes(index) + base_bytes),
        instructions,
        chain + 2 * longest,
        float(work.rows * lanes),
    )
    return Prospect(us, dict(values))


def _ell(work: Work) -> Iterator[Prospect]:
    blocks = (32, 64, 128) if work.rows < 30_000 else (128, 256, 512)
    for values in combine(unroll=near(work.shape.longest, (1, 2, 4, 8), 3), block=blocks, load=loads(work)):
        yield _padded_rows(work, values, work.shape.ell_padding, 1, number(values, "unroll"), 1)


def _ell_fixed(work: Work) -> Iterator[Prospect]:
    blocks = (32, 64, 128) if work.rows < 30_000 else (128, 256, 512)
    for values in combine(width=(work.shape.longest,), block=blocks, load=loads(work)):
        yield _padded_rows(work, values, work.shape.ell_padding, 1, work.shape.longest, 1)


def _ell_parts(work: Work) -> Iterator[Prospect]:
    for values in combine(parts=near(work.shape.longest / 4, (2, 4, 8, 16), 3), unroll=(4, 2, 8), load=loads(work)):
        yield _padded_rows(work, values, work.shape.ell_padding, number(values, "parts"), number(values, "unroll"), 2)


def sigmas(work: Work, lanes: int) -> tuple[int, ...]:
    """Sorting windows that store less than smaller ones do."""
    kept = [1]
    for sigma in SIGMAS[1:]:
        if work.shape.sell_padding(lanes, sigma) < 0.97 * work.shape.sell_padding(lanes, kept[-1]):
            kept.append(sigma)
    return tuple(kept[-3:])


def _sliced(work: Work, values: Values, slice_: int, lanes: int) -> Iterator[Prospect]:
    sigma, index = number(values, "sigma"), str(values["index"])
    if index == "u16" and not work.shape.narrow_slices(slice_, sigma):
        return
    padding = work.shape.sell_padding(slice_, sigma)
    if padding >= 8:
        return
    if index in REACHES:
        if work.nnz < BYTES_COUNT_NNZ or (index == "u16_slot" and work.shape.narrow_slices(slice_, sigma)):
            return
        in_windows = work.shape.window_padding(slice_, sigma, index)
        if in_windows > MAX_WINDOW_PADDING:
            return
        padding *= in_windows
    yield _padded_rows(work, values, padding, lanes, number(values, "unroll"), 2 + 0.5 * (sigma != 1), slice_)


def _sell(work: Work) -> Iterator[Prospect]:
    blocks = (32, 64, 128) if work.rows < 30_000 else (128, 256)
    for values in combine(
        slice=(32, 64),
        sigma=sigmas(work, 32),
        unroll=near(work.shape.mean, (1, 2, 4, 8), 3),
        block=blocks,
        load=loads(work),
        index=SLICE_INDICES,
    ):
        yield from _sliced(work, values, number(values, "slice"), 1)


def _sell_lanes(work: Work) -> Iterator[Prospect]:
    for values in combine(
        slice=(8, 4, 16),
        lanes=(4, 8, 2),
        sigma=sigmas(work, 8),
        unroll=near(work.shape.mean / 4, (1, 2, 4), 2),
        block=(64, 128) if work.nnz < 300_000 else (128, 256),
        load=loads(work)[:1],
        index=SLICE_INDICES,
    ):
        yield from _sliced(work, values, number(values, "slice"), number(values, "lanes"))


def _sell_wide(work: Work) -> Iterator[Prospect]:
    for values in combine(
        rows=(2, 4),
        sigma=sigmas(work, 64),
        unroll=(4, 2),
        block=(128, 64, 256),
        load=loads(work),
        index=SLICE_INDICES,
    ):
        for prospect in _sliced(work, values, 32 * number(values, "rows"), 1):
            yield Prospect(prospect.estimated_us + 0.2, prospect.parameters)


def _diagonal(work: Work, values: Values, batch: int) -> Prospect:
    slots = float(work.shape.diagonals * work.rows)
    chain = 1 + 2 * ceil(work.shape.diagonals / batch)
    return Prospect(estimate(work, slots * work.element_bytes, slots * 10 / 32, chain, work.rows), dict(values))


def _dia(work: Work) -> Iterator[Prospect]:
    blocks = (32, 64, 128) if work.rows < 30_000 else (128, 256, 512)
    for values in combine(unroll=(4, 8, 2), block=blocks, load=loads(work)):
        yield _diagonal(work, values, number(values, "unroll"))


def _dia_batched(work: Work) -> Iterator[Prospect]:
    blocks = (32, 64, 128) if work.rows < 30_000 else (128, 256, 512)
    batches = near(min(work.shape.diagonals, 16), (2, 3, 4, 5, 7, 8, 9, 14, 16, 27), 3)
    for values in combine(batch=batches, block=blocks, load=loads(work)):
        yield _diagonal(work, values, number(values, "batch"))


def _blocked(work: Work, rows: int, cols: int, lanes: int, values: Values) -> Prospect:
    slots = work.nnz / work.shape.block_fill(rows, cols)
    size = slots * work.element_bytes + slots / (rows * cols) * 4
    chain = 2 + 2 * ceil(work.shape.longest / (cols * lanes))
    threads = work.rows / rows * lanes
    return Prospect(estimate(work, size, slots * (3 + 8 / (rows * cols)) / 32 * 2, chain, threads), dict(values))


def _bsr_lanes(work: Work) -> Iterator[Prospect]:
    for rows, cols in work.shape.block_shapes()[:4]:
        for values in combine(
            block_rows=(rows,),
            block_cols=(cols,),
            lanes=near(work.shape.mean / cols / 2, (1, 2, 4, 8, 16, 32), 3),
            block=(64, 128, 256),
            load=loads(work),
        ):
            yield _blocked(work, rows, cols, number(values, "lanes"), values)


def _bsr_rows(work: Work) -> Iterator[Prospect]:
    for rows, cols in work.shape.block_shapes()[:4]:
        for values in combine(
            block_rows=(rows,),
            block_cols=(cols,),
            unroll=(2, 4),
            block=(192, 64) if rows % 3 == 0 else (128, 64),
            load=loads(work),
        ):
            yield _blocked(work, rows, cols, rows, values)


PROSPECTS: Mapping[str, Callable[[Work], Iterator[Prospect]]] = {
    "csr_scalar": _csr_scalar,
    "csr_vector": _csr_vector,
    "csr_vector_persistent": _csr_vector_persistent,
    "csr_vector_wide": _csr_vector_wide,
    "csr_block": _csr_block,
    "csr_shared_x": _csr_shared_x,
    "csr_stream": _csr_stream,
    "csr_adaptive": _csr_adaptive,
    "csr_binned": _csr_binned,
    "csr_merge": _csr_merge,
    "coo_segmented": _coo_segmented,
    "ell": _ell,
    "ell_fixed": _ell_fixed,
    "ell_parts": _ell_parts,
    "sell": _sell,
    "sell_lanes": _sell_lanes,
    "sell_wide": _sell_wide,
    "dia": _dia,
    "dia_batched": _dia_batched,
    "bsr_lanes": _bsr_lanes,
    "bsr_rows": _bsr_rows,
    **block_slices_prospects.PROSPECTS,
    **diagonals_prospects.PROSPECTS,
    **row_bins_prospects.PROSPECTS,
    **tiles_prospects.PROSPECTS,
    **panels_prospects.PROSPECTS,
    **hyb_prospects.PROSPECTS,
}
"""Parameters worth trying, by family."""
