"""SpMM over tiles of whole rows: equal shares of a tile's nonzeros for groups of lanes, cut rows joined at the end.

Columns, values and row bounds are addressed by the tile's number; the gathers of B are under way before the block
learns which rows they belong to.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from sparsesmith.families.axes import INDEX, LARGE_BLOCK, streamed
from sparsesmith.families.estimates.cost import Prospect, Values, Work, combine, index_bytes, near, number
from sparsesmith.families.estimates.suitability import any_pattern
from sparsesmith.families.family import Family
from sparsesmith.families.spmm.dense_tiles import ONE_CHUNK_PARAMETERS, DenseTile, tile_fits, tile_of
from sparsesmith.families.spmm.prospects import corrected, placements, shared, tiles_of_groups
from sparsesmith.families.spmm.splits import (
    PLACEMENT,
    block_number,
    few_suffice,
    grid_of,
    group,
    own_column,
    store_vector,
)
from sparsesmith.families.text.program import Choice, Fact, Launch, c_index_type, main_launch, program, vector
from sparsesmith.families.text.template import cuda_beside
from sparsesmith.formats.csr_tiles import LANES, LONG_ROWS
from sparsesmith.formats.format import OneOf, ParameterValue

_CUDA = cuda_beside(__name__)

GATHERS = OneOf("early", ("early", "late"))
"""Before the block learns its rows, or after, for launches that start before B is ready."""

ADDING_BLOCK = 256
REGISTER_BYTES = 128 * 1024
"""What a block's columns, values and rows of B may take of the registers."""
MAX_PADDING = 8
"""Slots a nonzero beyond which tiles are not worth building."""


@dataclass(frozen=True)
class _Cut:
    """How a block's groups share a tile: numbers that stand all over a text, which an open one names once."""

    tile: DenseTile
    groups: Fact
    share: Fact
    """Slots of a group. An open text takes more where the longest row would not fit otherwise: it is right for every
    matrix, if not fast."""
    capacity: Fact
    """Slots of a tile."""
    chunks: Fact
    rows: Fact
    bounds: Fact
    """Stored of each tile: where its rows begin, and the end."""
    never: Fact
    """Beyond any slot of a group."""

    @property
    def facts(self) -> tuple[Fact, ...]:
        """Those that the text holds, each behind what it follows from."""
        of_slots = (self.groups, self.share, self.capacity, self.chunks)
        return (*self.tile.facts, self.tile.edge_fact, *of_slots, self.rows, self.bounds, self.never)


def _cut_of(tile: DenseTile) -> _Cut:
    choice, lanes = tile.choice, tile.lanes
    block, share = choice.integer("block"), choice.integer("share")
    groups, rows = block // lanes, choice.integer("rows")
    unit = max(min(share, 4), LANES // groups)
    needed = f"max({share},ceil_div(row_length_max,GROUPS*{unit})*{unit})"
    return _Cut(
        tile,
        groups=choice.fact("GROUPS", f"{block}//LANES" if lanes > 1 else str(block), groups),
        share=choice.fact("SHARE", needed if choice.word("long_rows") == "refuse" else str(share), share),
        capacity=choice.fact("CAPACITY", "GROUPS*SHARE", _capacity(choice)),
        chunks=choice.fact("CHUNKS", f"CAPACITY//{LANES}", _capacity(choice) // LANES),
        rows=choice.named("ROWS", rows),
        bounds=choice.fact("BOUNDS", "ROWS+1", rows + 1),
        never=choice.fact("NEVER", "SHARE+1", share + 1),
    )


def _capacity(choice: Choice) -> int:
    """Slots of a tile: a share for each group of the block."""
    return choice.integer("block") // choice.integer("lanes") * choice.integer("share")


def step_of(choice: Choice, size: int) -> int:
    """Entries of the widest vector that divides what a group reads at once: its share, or a batch of it."""
    return min(_at_once(choice), 4, 16 // size)


def _at_once(choice: Choice) -> int:
    return choice.integer("unroll" if "unroll" in choice.values else "share")


def _reads(choice: Choice, array: str, c_type: str, step: int, read: str, share: Fact | None) -> str:
    """Loads a group's share, so many entries at once."""
    entry = f"*({vector(c_type, step)}*)({array} + u)" if step > 1 else f"{array}[u]"
    return choice.fill(_CUDA["reads"], at_once=share or _at_once(choice), step=step, entry=entry, read=read)


def read_cols(choice: Choice, share: Fact | None = None) -> str:
    """Fills `col` from `slot` on, as many as are read at once. `share`: that number where the text names it."""
    c_type = c_index_type(choice.word("index"))
    step = step_of(choice, 2 if choice.word("index") == "u16" else 4)
    address = f"(const {vector(c_type, step)}*)(col_indices + slot + u)" if step > 1 else "col_indices + slot + u"
    return _reads(choice, "col", c_type, step, choice.load(address), share)


def read_values(choice: Choice, share: Fact | None = None) -> str:
    """Fills `value` from `slot` on, as many as are read at once. `share`: that number where the text names it."""
    step = step_of(choice, choice.element_bytes)
    return _reads(choice, "value", choice.scalar, step, choice.value_vector(step, "slot + u"), share)


def output_of_tile(tile: DenseTile) -> str:
    """Where the tile's first row goes: pieces of long rows wait in `carry`."""
    whole = f"c + (size_t)range.x * {tile.dense_cols}"
    if tile.choice.word("long_rows") == "refuse":
        return whole
    return f"tile < num_whole_tiles ? {whole} : carry + (size_t)(tile - num_whole_tiles) * {tile.dense_cols}"


def _write(choice: Choice) -> str:
    tile, rows, narrow = tile_of(choice, is_named=True), choice.integer("rows"), choice.word("index") == "u16"
    cut = _cut_of(tile)
    gather = tile.fill(_CUDA["gather"], col="(base + col[u])" if narrow else "col[u]", share=cut.share)
    is_early, few_bounds = choice.word("gathers") == "early", rows + 1 <= choice.integer("block")
    store = store_vector(tile, f"out + row * {tile.dense_cols} + column")
    body = tile.fill(
        _CUDA["tiles"],
        lanes=tile.lanes_fact,
        share=cut.share,
        bounds=cut.bounds,
        number=block_number(choice),
        group=group(tile),
        beyond="if (tile >= num_tiles) return;" if choice.word("placement") == "near" else "",
        own_column=own_column(tile),
        capacity=cut.capacity,
        never=cut.never,
        I=c_index_type(choice.word("index")),
        read_cols=read_cols(choice, cut.share),
        read_values=read_values(choice, cut.share),
        base="int base = tile_col_base[tile];" if narrow else "",
        read_offsets=choice.fill(_CUDA["few_offsets" if few_bounds else "offsets"], bounds=cut.bounds),
        early=gather if is_early else "",
        late="" if is_early else gather,
        output=output_of_tile(tile),
        store_row=f"if (inside) {store}" if tile.overhangs else store,
    )
    settings: dict[str, ParameterValue | Fact] = {
        "chunks": cut.chunks,
        "vector": 1,
        "max_rows": cut.rows,
        "index": choice.word("index"),
        "long_rows": choice.word("long_rows"),
    }
    main = main_launch(choice, grid_of("num_tiles", tile), body)
    ends, facts = added_pieces(tile)
    function = choice.value_function(step_of(choice, choice.element_bytes))
    return program(choice, settings, main, *ends, functions=(function,), facts=(*cut.facts, *facts))


def added_pieces(tile: DenseTile) -> tuple[tuple[Launch, ...], tuple[Fact, ...]]:
    """Where long rows are split: a block a long row, whose groups take every so many pieces, then join. And the facts
    of it that the text holds, each behind what it follows from."""
    if tile.choice.word("long_rows") != "split":
        return (), ()
    width = tile.num_dense_cols
    most = min(LANES, 1 << (width - 1).bit_length())
    overhangs, blocks = width % most != 0, -(-width // most)
    cols = tile.fact("COLS", f"min({LANES},N)" if most == min(LANES, width) else str(most), most)
    groups = tile.fact("ADDERS", f"{ADDING_BLOCK}//COLS", ADDING_BLOCK // most)
    across = tile.fact("ACROSS", "ceil_div(N,COLS)", blocks, exists=blocks > 1)
    last = tile.fact("LAST", "N-1", width - 1, exists=overhangs)
    body = tile.fill(
        _CUDA["add_pieces"],
        block=ADDING_BLOCK,
        column=f"blockIdx.y * {cols} + threadIdx.x % {cols}" if blocks > 1 else f"threadIdx.x % {cols}",
        cols=cols,
        groups=groups,
        within=f"min(column, {last})" if overhangs else "column",
        guard=f" || column >= {tile.dense_cols}" if overhangs else "",
    )
    grid = "max(1,num_split_rows)" + (f",{across}" if blocks > 1 else "")
    return (Launch("add_pieces", grid, ADDING_BLOCK, body),), (cols, groups, across, last)


def _tiles_fit(choice: Choice) -> bool:
    """Groups share the tile evenly, gathers fit in registers."""
    size, share = choice.element_bytes, choice.integer("share")
    held = choice.integer("block") * share * (4 + size + size * choice.integer("vector"))
    chunks, rest = divmod(_capacity(choice), LANES)
    fits = held <= REGISTER_BYTES and few_suffice(choice, share)
    return tile_fits(choice) and fits and rest == 0 and chunks <= 128


def _prospects(work: Work) -> Iterator[Prospect]:
    for tile in tiles_of_groups(work):
        for rest in combine(
            share=(4, 8, 2, 16),
            block=(128, 256, 64, 512),
            load=("ldg",),
            index=("u16", "i32"),
            placement=placements(work),
        ):
            share = number(rest, "share")
            capacity = number(rest, "block") // number(tile, "lanes") * share
            if rest["index"] == "u16" and not work.statistics.narrow_row_blocks(capacity):
                continue
            for rows in near(1.5 * capacity / work.statistics.mean, (16, 32, 64, 128, 256), 2):
                for gathers, later in (("early", 0.0), ("late", 1.0)):
                    values: dict[str, ParameterValue] = {**tile, **rest, "rows": rows, "gathers": gathers}
                    yield from _tiles_of(work, values, capacity, later)


def _tiles_of(work: Work, values: Values, capacity: int, later: float) -> Iterator[Prospect]:
    longest, mean = work.statistics.longest, work.statistics.mean
    rows, share = number(values, "rows"), number(values, "share")
    num_tiles = max(work.nnz / capacity * (1 + min(mean / capacity, 1)), work.rows / rows)
    slots = num_tiles * capacity
    if slots > MAX_PADDING * work.nnz:
        return
    split = longest > capacity
    size = slots * (index_bytes(values["index"]) + work.element_bytes) + num_tiles * (2 * rows + 8)
    chain = 3 + later + 0.1 * min(longest, capacity) / share + 0.02 * rows + 0.01 * (longest // capacity)
    yield shared(
        work,
        {**values, "long_rows": "split" if split else "refuse"},
        size,
        slots / share,
        slots,
        chain,
        launches=2 if split else 1,
    )


SPMM_TILES = Family(
    name="spmm_tiles",
    operation="spmm",
    format="csr_tiles",
    strategy="A block a tile of whole rows, equal shares of its nonzeros for groups of lanes, all gathers in flight "
    "before rows are known, cut rows joined in shared memory; any lengths, small matrices above all.",
    parameters={
        **ONE_CHUNK_PARAMETERS,
        "share": OneOf(8, (2, 4, 8, 16)),
        "rows": OneOf(64, (16, 32, 64, 128, 256)),
        "block": LARGE_BLOCK,
        "long_rows": LONG_ROWS,
        "gathers": GATHERS,
        "placement": PLACEMENT,
        **streamed(index=INDEX),
    },
    suits=any_pattern,
    write=_write,
    has_facts=True,
    allows=_tiles_fit,
    prospects=corrected(1.25, _prospects),
)

FAMILIES = (SPMM_TILES,)
