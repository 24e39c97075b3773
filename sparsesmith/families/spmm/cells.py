"""SpMM over cells: a block keeps many rows' sums in registers and goes through panels of B in shared memory.

For nearly dense matrices of thousands of rows and columns, such as pruned layers: there a row of B is read once for
each nonzero of its column, from L2 where B does not fit the L1, and a float32 product with 128 columns waits for these
512 bytes a nonzero. Here a panel of B is read from L2 once a window of rows, a cell of A once, both by `cp.async`.

What is left is shared memory, 128 bytes a cycle of a multiprocessor. With `height` 1 a nonzero takes a vector of B a
lane: 4 cycles for 128 float32 columns, where the multiply-adds take 1. A strip of `height` rows reads a row of B once
for all of them and multiplies zeros as well: filled at random by a share d, 1 - (1 - d)^height of the columns have
something, so that at d = 0.3 and height 4 a nonzero takes 2.5 cycles of either. Above d = 0.5 height 8 wins; below 0.1
there is nothing to share and height 1 is best. Rows of similar columns share more.

`splits` groups of lanes walk one strip side by side and join their sums at the end, once: with few dense columns all
lanes of a warp then end together. `parts` cuts the panels where windows are too few for the device; a second launch
adds up their sums, in one order. Reckoned, not measured on a GPU yet.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import nsmallest
from math import ceil, exp, log2

from sparsesmith.families.axes import DEPENDENCY, REGISTERS
from sparsesmith.families.estimates.cost import (
    DRAM_BYTES_A_US,
    L2_BYTES,
    L2_BYTES_A_US,
    LAUNCH_US,
    LOAD_US,
    NUM_SMS,
    Prospect,
    Values,
    Work,
    combine,
    near,
    number,
)
from sparsesmith.families.family import Family
from sparsesmith.families.spmm.dense_tiles import ONE_CHUNK_PARAMETERS, DenseTile, tile_fits, tile_of
from sparsesmith.families.spmm.prospects import tiles_of_groups
from sparsesmith.families.spmm.splits import shuffle_sum
from sparsesmith.families.text.program import Choice, Fact, Launch, main_launch, program, vector
from sparsesmith.families.text.template import cuda_beside
from sparsesmith.formats.cells import CELL_COLS, HEIGHT, PAD
from sparsesmith.formats.format import OneOf, ParameterValue
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.program.directives import MAX_SHARED_BYTES

_CUDA = cuda_beside(__name__)

VECTOR_BYTES = 16
ADDING_BLOCK = 256
MAX_SUM_WORDS = 96
"""Sums of a thread, in registers."""
LEAST_SHARE = 0.03
"""Of all entries, below which a cell's strips have next to nothing."""
LEAST_NNZ = 1 << 14

CYCLES_A_US = 1700
SHARED_BYTES_A_CYCLE = 128
INSTRUCTIONS_A_CYCLE = 4
PRODUCTS_A_CYCLE = {4: 128, 8: 64}
"""By bytes of an element."""
WARPS_TO_HIDE_LATENCY = 12
REGISTERS_OF_SM = 65536
OTHER_REGISTERS = 56
"""Of a thread, beside its sums."""
MOST_PROSPECTS = 160


def _cell_strips(choice: Choice) -> int:
    """Strips of a cell: those of all groups of a block."""
    return choice.integer("block") // (choice.integer("lanes") * choice.integer("splits")) * choice.integer("strips")


def _own_column(tile: DenseTile, within: str) -> str:
    """A column of the dense operands, from one within the tile."""
    return f"blockIdx.y * {tile.width} + {within}" if tile.grid else within


def _source_column(tile: DenseTile, row_vectors: int) -> str:
    """The first column of vector i of a panel; tiles that overhang read the last columns again."""
    own = _own_column(tile, f"i % {row_vectors} * {tile.vector}")
    return f"min({own}, {tile.edge_fact})" if tile.overhangs else own


def _write(choice: Choice) -> str:
    tile, size, parts = tile_of(choice), choice.element_bytes, choice.integer("parts")
    height, batch, splits, cell_cols = (choice.integer(name) for name in ("height", "batch", "splits", "cell_cols"))
    strips, cell_strips, row_vectors = choice.integer("strips"), _cell_strips(choice), tile.width // tile.vector
    factors = batch * height
    step = min(factors, VECTOR_BYTES // size)
    own_column = _own_column(tile, "column")
    panel_bytes, slot_bytes = cell_cols * tile.width * size, height * size + 1
    cut = parts > 1
    places: dict[str, object] = {
        "window": "blockIdx.x % num_windows" if cut else "blockIdx.x",
        "first": f"blockIdx.x / num_windows * ((num_panels + {parts - 1}) / {parts})" if cut else "0",
        "last": f"min(first + (num_panels + {parts - 1}) / {parts}, num_panels)" if cut else "num_panels",
        "threads": tile.lanes * splits,
        "panel_bytes": panel_bytes,
        "slot_bytes": slot_bytes,
        "value_bytes": height * size,
        "row_vectors": row_vectors,
        "source_column": _source_column(tile, row_vectors),
        "num_sums": strips * height,
        "factors": factors,
        "step": step,
        "pad": splits * batch,
        "width": tile.width,
        "C": vector("unsigned char", batch),
        "F": vector(choice.scalar, step),
        "bounds": cell_strips + 1,
        "rows": strips * height,
        "cell_rows": cell_strips * height,
        "reduce": shuffle_sum(tile, splits, braces=True),
        "inside": f" && {own_column} < {tile.dense_cols}" if tile.overhangs else "",
        "own_column": own_column,
        "target": f"partial + (size_t)(blockIdx.x / num_windows) * num_rows * {tile.dense_cols}" if cut else "c",
    }
    stages = choice.integer("stages")
    walk = tile.fill(_CUDA["two_stages" if stages == 2 else "one_stage"], **places)
    body = tile.fill(_CUDA["cells"], walk=walk, **places)
    blocks = f"num_windows*{parts}" if cut else "num_windows"
    shared = f"{stages}*({panel_bytes}+cell_slots*{slot_bytes})"
    main = main_launch(choice, f"{blocks}{tile.grid}", body, shared=shared)
    settings: dict[str, ParameterValue] = {
        "strips": cell_strips,
        "height": height,
        "cell_cols": cell_cols,
        "pad": splits * batch,
        "parts": parts,
    }
    across = tile.fact("ACROSS", f"N//{tile.vector}", tile.num_dense_cols // tile.vector, exists=cut)
    ends = (_add_parts(tile, across),) if cut else ()
    facts = (*tile.facts, tile.edge_fact, across)
    return program(choice, settings, main, *ends, functions=(_CUDA["copy"].strip(),), facts=facts)


def _add_parts(tile: DenseTile, row_vectors: Fact) -> Launch:
    """A thread a vector of the result, of which a row has `row_vectors`."""
    body = tile.fill(_CUDA["add_parts"], row_vectors=row_vectors)
    return Launch("add_parts", f"ceil_div(num_rows*{row_vectors},{ADDING_BLOCK})", ADDING_BLOCK, body)


def _fits(choice: Choice) -> bool:
    """Vectors of 16 bytes, a strip's groups within one warp, sums and factors in registers, panels in shared memory."""
    tile, size = tile_of(choice), choice.element_bytes
    words, height, batch = size // 4, choice.integer("height"), choice.integer("batch")
    held = choice.integer("strips") * height * tile.vector * words
    in_flight = batch * (height + tile.vector) * words
    panels = choice.integer("stages") * choice.integer("cell_cols") * tile.width * size
    return (
        tile_fits(choice)
        and tile.vector * size == VECTOR_BYTES
        and tile.lanes * choice.integer("splits") <= 32
        and choice.integer("splits") * batch in PAD.values
        and _cell_strips(choice) <= 512
        and held <= MAX_SUM_WORDS
        and in_flight <= 48
        and held * choice.integer("block") <= 48 * 1024
        and panels < MAX_SHARED_BYTES
    )


def _suits(pattern: Pattern) -> bool:
    return pattern.nnz >= max(LEAST_NNZ, LEAST_SHARE * pattern.num_rows * pattern.num_cols)


def _prospects(work: Work) -> Iterator[Prospect]:
    """The best of the model: some thousand choices differ in what only it tells apart."""
    yield from nsmallest(MOST_PROSPECTS, _all_prospects(work), key=lambda prospect: prospect.estimated_us)


def _all_prospects(work: Work) -> Iterator[Prospect]:
    tiles = [tile for tile in tiles_of_groups(work) if number(tile, "vector") * work.element_bytes == VECTOR_BYTES]
    for tile in tiles:
        lanes = number(tile, "lanes")
        for values in combine(
            splits=tuple(splits for splits in (1, 2, 4, 8, 16) if splits * lanes in (8, 16, 32)),
            height=(1, 2, 4, 8), strips=(2, 4, 8), batch=(4, 2), cell_cols=(128, 64, 256), block=(256, 128, 512),
        ):  # fmt: skip
            rows = number(values, "block") // (lanes * number(values, "splits")) * number(values, "strips")
            windows = ceil(work.rows / (rows * number(values, "height")))
            across = ceil(work.num_dense_cols / (lanes * number(tile, "vector")))
            for parts in sorted({1, *near(2.5 * NUM_SMS / (windows * across), (1, 2, 4, 8, 16), 2)}):
                for stages in (1, 2):
                    prospect = _prospect(work, {**tile, **values, "parts": parts, "stages": stages})
                    if prospect is not None:
                        yield prospect


@dataclass(frozen=True)
class _Cells:
    """What a choice makes of a matrix, on average."""

    windows: int
    panels: int
    slots: float
    """Of all cells, padding included."""


def _cells_of(work: Work, values: Values) -> _Cells:
    """Strips have their entries by chance: about half of `pad` is lost at the end of those that have any."""
    height, pad = number(values, "height"), number(values, "splits") * number(values, "batch")
    lanes, splits = number(values, "lanes"), number(values, "splits")
    cell_strips = number(values, "block") // (lanes * splits) * number(values, "strips")
    windows, panels = (
        ceil(work.rows / (cell_strips * height)),
        ceil(work.statistics.pattern.num_cols / number(values, "cell_cols")),
    )
    fill = 1.0 if height == 1 else work.statistics.block_fill(height, 1)
    entries = work.nnz / (height * max(fill, 1e-3))
    strips = panels * ceil(work.rows / height)
    return _Cells(windows, panels, entries + strips * (pad - 1) / 2 * (1 - exp(-entries / strips)))


def _prospect(work: Work, values: Values) -> Prospect | None:
    """None where a block's shared memory would not do."""
    size, height, batch = work.element_bytes, number(values, "height"), number(values, "batch")
    lanes, wide, block = number(values, "lanes"), number(values, "vector"), number(values, "block")
    parts, stages = number(values, "parts"), number(values, "stages")
    cells, across = _cells_of(work, values), ceil(work.num_dense_cols / (lanes * wide))
    slots_a_cell = 1.2 * cells.slots / (cells.windows * cells.panels) + 16
    shared = stages * (number(values, "cell_cols") * lanes * VECTOR_BYTES + slots_a_cell * (height * size + 1))
    if shared > MAX_SHARED_BYTES:
        return None
    sums = number(values, "strips") * height * VECTOR_BYTES // 4
    registers = (OTHER_REGISTERS + sums) * block
    a_warp = batch * 32 / lanes
    factor_reads = max(1.0, batch * height * size / VECTOR_BYTES)
    shared_cycles = lanes * VECTOR_BYTES / SHARED_BYTES_A_CYCLE + (1 + factor_reads) / a_warp
    product_cycles = lanes * wide * height / PRODUCTS_A_CYCLE.get(size, 128)
    instructions = (6 + factor_reads + batch * (3 + wide * height)) / a_warp
    cycles = max(shared_cycles, product_cycles, instructions / INSTRUCTIONS_A_CYCLE)
    blocks = cells.windows * parts * across
    a_multiprocessor = ceil(blocks / NUM_SMS)
    resident = max(1, min(MAX_SHARED_BYTES // shared, REGISTERS_OF_SM // registers, a_multiprocessor))
    hidden = min(1.0, resident * block / 32 / WARPS_TO_HIDE_LATENCY)
    uneven = a_multiprocessor * NUM_SMS / blocks
    groups = max(1, 32 // (lanes * number(values, "splits")))
    apart = 1 + 0.25 * log2(groups) / max(1.0, cells.slots * height / (cells.panels * work.rows)) ** 0.5
    multiplied = 1.15 * apart * cells.slots * across * cycles / (NUM_SMS * CYCLES_A_US) * uneven / hidden
    matrix_bytes = cells.slots * (height * size + 1) * across
    panel_bytes = cells.windows * work.statistics.pattern.num_cols * work.num_dense_cols * size
    result_bytes = work.rows * work.num_dense_cols * size
    bandwidth = L2_BYTES_A_US if matrix_bytes + work.vector_bytes < L2_BYTES else DRAM_BYTES_A_US
    moved = matrix_bytes / bandwidth + panel_bytes / L2_BYTES_A_US
    adding = 2.0 * parts * result_bytes / L2_BYTES_A_US + LAUNCH_US if parts > 1 else result_bytes / L2_BYTES_A_US
    waits = ceil(cells.panels / parts) * (4.0 if stages == 1 else 1.5) * a_multiprocessor / resident
    return Prospect(LAUNCH_US + LOAD_US * (4 + waits) + max(multiplied, moved) + adding, dict(values))


SPMM_CELLS = Family(
    name="spmm_cells",
    operation="spmm",
    format="cells",
    strategy="A block goes through panels of B in shared memory with the sums of a window of rows in registers, strips "
    "of rows sharing what they read; nearly dense matrices of thousands of rows, such as pruned layers.",
    parameters={
        **ONE_CHUNK_PARAMETERS,
        "splits": OneOf(1, (1, 2, 4, 8, 16)),
        "height": HEIGHT,
        "strips": OneOf(4, (1, 2, 4, 8)),
        "batch": OneOf(4, (1, 2, 4)),
        "cell_cols": CELL_COLS,
        "parts": OneOf(1, (1, 2, 4, 8, 16)),
        "stages": OneOf(1, (1, 2)),
        "block": OneOf(256, (128, 256, 512)),
        "registers": REGISTERS,
        "dependency": DEPENDENCY,
    },
    suits=_suits,
    write=_write,
    has_facts=True,
    allows=_fits,
    takes=lambda choice, storage: False,
    prospects=_prospects,
)
"""Values are copied as they are stored."""

FAMILIES = (SPMM_CELLS,)
