"""SpMV over tiles: every load but that of x is addressed by the tile's number alone, and one launch does it all."""

from dataclasses import dataclass

from sparsesmith.families.axes import ANY_BLOCK, INDEX, streamed
from sparsesmith.families.family import Family
from sparsesmith.families.spmv import tiles_prospects as prospects
from sparsesmith.families.spmv.tiles_prospects import LONG_ROW
from sparsesmith.families.text.idioms import block_sum, warp_sum
from sparsesmith.families.text.program import (
    MAX_STATIC_SHARED_BYTES,
    Choice,
    Fact,
    Launch,
    c_index_type,
    main_launch,
    program,
    vector,
    with_values,
)
from sparsesmith.families.text.template import cuda_beside
from sparsesmith.formats.csr_tiles import ORDER, ROWS
from sparsesmith.formats.format import OneOf, ParameterSpec, ParameterValue

_CUDA = cuda_beside(__name__)

MAX_ROWS = 4096
MAX_CHUNKS = 128
MAX_ITEM_BYTES = 128 * 1024
"""Columns and values that a block holds in registers."""


@dataclass(frozen=True)
class _Cut:
    """How a tile's threads share slots and rows: numbers that stand all over a text, which an open one names once."""

    lanes: Fact
    rows: Fact
    """Of a thread."""
    groups: Fact
    """Rows that the tile's threads sum at once."""
    max_rows: Fact
    """Of a tile."""
    bounds: Fact
    """Stored of each tile: where its rows begin, and the end."""
    capacity: Fact
    """Slots of a tile."""
    chunks: Fact
    half: Fact
    """Of the lanes."""
    longest: Fact
    """Nonzeros of a row that its lanes still sum alone."""

    def facts(self, choice: Choice) -> tuple[Fact, ...]:
        """Those that the text holds, each behind what it follows from."""
        has_lanes, is_mixed = self.lanes.value != 1, choice.word("long") == "warp"
        return (
            *((self.lanes,) if has_lanes else ()),
            self.rows,
            self.groups,
            self.max_rows,
            self.bounds,
            self.capacity,
            self.chunks,
            *((self.half,) if has_lanes else ()),
            *((self.longest,) if is_mixed else ()),
        )


def _cut_of(choice: Choice, threads: int) -> _Cut:
    lanes, rows, slots = choice.integer("lanes"), choice.integer("rows"), choice.integer("items") * threads
    groups, chunk = threads // lanes, 32 * choice.integer("vector")
    return _Cut(
        lanes=choice.named("LANES", lanes),
        rows=choice.named("ROWS", rows),
        groups=choice.fact("GROUPS", f"{threads}//LANES" if lanes > 1 else str(threads), groups),
        max_rows=choice.fact("MAX_ROWS", "GROUPS*ROWS", groups * rows),
        bounds=choice.fact("BOUNDS", "MAX_ROWS+1", groups * rows + 1),
        capacity=choice.fact("CAPACITY", f"{threads}*{choice.integer('items')}", slots),
        chunks=choice.fact("CHUNKS", f"CAPACITY//{chunk}", slots // chunk),
        half=choice.fact("HALF", "LANES//2", lanes // 2),
        longest=choice.fact("LONGEST", f"{LONG_ROW}*LANES" if lanes > 1 else str(LONG_ROW), LONG_ROW * lanes),
    )


def _copies(choice: Choice, array: str, source: str, c_type: str, threads: int) -> str:
    """Vector loads of a thread's slots, a chunk of the tile after the other."""
    items, width = choice.integer("items"), choice.integer("vector")
    step = _step(choice, c_type)
    batch = f" + k * {threads}" if step == width else f" + k / {width} * {threads * width} + k % {width}"
    offset, place = (batch, " + k") if items > step else ("", "")
    wide = vector(c_type, step)
    if source == "values":
        read = choice.value_vector(step, f"slot{offset}")
    else:
        read = choice.load(f"(const {wide}*)({source} + slot{offset})")
    copy = f"*({wide}*){f'({array}{place})' if place else array} = {read};"
    if items == step:
        return copy
    return f"#pragma unroll\nfor (int k = 0; k < {items}; k += {step}) {copy}"


def _step(choice: Choice, c_type: str) -> int:
    """Slots of a vector of at most 16 bytes."""
    return min(choice.integer("vector"), 16 // {"float": 4, "double": 8, "int": 4, "unsigned short": 2}[c_type])


def _is_sorted(choice: Choice) -> bool:
    return choice.values.get("order") == "column"


def _place(choice: Choice, threads: int) -> str:
    """Where in the tile's shared memory the k-th product of a thread belongs."""
    if _is_sorted(choice):
        return "target[k]"
    items, width = choice.integer("items"), choice.integer("vector")
    own = f"thread / 32 * {32 * width} + thread % 32"
    within = "k * 32" if items == width else f"k / {width} * {threads * width} + k % {width} * 32"
    return f"{own} + {within}"


def _bounds(choice: Choice, cut: _Cut) -> str:
    """Reads, early, which rows a thread sums and where they begin and end in the tile."""
    natural = _sequence(choice) == "natural"
    return choice.fill(
        _CUDA["bounds"],
        range="int2 range = *(const int2*)(tile_rows + tile * 2);" if natural else "",
        own="thread" if cut.lanes.value == 1 else f"thread / {cut.lanes}",
        rows=cut.rows,
        groups=cut.groups,
        stride=cut.bounds,
        row="range.x + place" if natural else f"row_ids[tile * {cut.max_rows} + place]",
    )


def _sequence(choice: Choice) -> str:
    return str(choice.values.get("sequence", "natural"))


def _sums(choice: Choice, cut: _Cut) -> str:
    """Sums each row of the tile from shared memory and stores it: by its lanes, or by the warp where it is long."""
    lanes = choice.integer("lanes")
    mixed = choice.word("long") == "warp"
    return choice.fill(
        _CUDA["sums_of_mixed_rows" if mixed else "sums"],
        rows=cut.rows,
        lanes=1 if lanes == 1 else cut.lanes,
        longest=cut.longest,
        leader="" if lanes == 1 else f" && thread % {cut.lanes} == 0",
        leads="" if lanes == 1 else f"thread % {cut.lanes} == 0 && ",
        is_row="row[r] < range.y" if _sequence(choice) == "natural" else "row[r] >= 0",
        own_lane="" if lanes == 1 else f" + thread % {cut.lanes}",
        group_sum=warp_sum(lanes, first=cut.half),
        warp_sum=warp_sum(32, "part"),
    )


def _share(choice: Choice, threads: int, cut: _Cut) -> str:
    """Loads a thread's share of the tile."""
    c_index = c_index_type(choice.word("index"))
    place = _copies(choice, "target", "places", "unsigned short", threads)
    return choice.fill(
        _CUDA["share"],
        capacity=cut.capacity,
        I=c_index,
        cols=_copies(choice, "col", "col_indices", c_index, threads),
        values=_copies(choice, "value", "values", choice.scalar, threads),
        places=f"__align__(16) unsigned short target[{choice.integer('items')}];\n{place}"
        if _is_sorted(choice)
        else "",
        bounds=_bounds(choice, cut),
        base=_base(choice, threads, cut) if choice.word("index") == "u16" else "",
    )


def _base(choice: Choice, threads: int, cut: _Cut) -> str:
    """What 16-bit columns count from: those of a sorted chunk, or of the whole tile."""
    if not _is_sorted(choice):
        return "int base = tile_col_base[tile];"
    warps, chunks = threads // 32, choice.integer("items") // choice.integer("vector")
    first = f"tile * {cut.chunks}" + ("" if warps == 1 else " + thread / 32")
    if chunks == 1:
        return f"int base = col_base[{first}];"
    step = "c" if warps == 1 else f"c * {warps}"
    return (
        f"int base[{chunks}];\n#pragma unroll\nfor (int c = 0; c < {chunks}; c++) base[c] = col_base[{first} + {step}];"
    )


def _product(choice: Choice) -> str:
    if choice.word("index") == "i32":
        return "value[k] * x[col[k]]"
    width = choice.integer("vector")
    is_one = choice.integer("items") == width or not _is_sorted(choice)
    base = "base" if is_one else f"base[k / {width}]"
    return f"value[k] * x[{base} + col[k]]"


def _write(choice: Choice, section: str, grid: str, threads: int, *more: Launch) -> str:
    """A program whose tiles have `threads` threads each."""
    items, block, width = choice.integer("items"), choice.integer("block"), choice.integer("vector")
    cut = _cut_of(choice, threads)
    body = choice.fill(
        _CUDA[section],
        capacity=cut.capacity,
        staged=block * items,
        tiles=block // threads,
        share=_share(choice, threads, cut),
        product=_product(choice),
        block_sum=block_sum(block, "carry[tile - num_whole_tiles]", "products"),
        place=_place(choice, threads),
        sums=_sums(choice, cut),
    )
    settings: dict[str, ParameterValue | Fact] = {
        "chunks": cut.chunks,
        "vector": width,
        "max_rows": cut.max_rows,
        "index": choice.word("index"),
        "order": str(choice.values.get("order", "row")),
        "rows": _sequence(choice),
        "long_rows": "split" if more else "refuse",
    }
    function = choice.value_function(_step(choice, choice.scalar))
    main = main_launch(choice, grid, body)
    return program(choice, settings, main, *more, functions=(function,), facts=cut.facts(choice))


def _write_block(choice: Choice) -> str:
    return _write(choice, "block", "num_tiles", choice.integer("block"))


def _write_sorted(choice: Choice) -> str:
    return _write_block(with_values(choice, order="column"))


def _write_warp(choice: Choice) -> str:
    return _write(choice, "warp", f"ceil_div(num_tiles,{choice.integer('block') // 32})", 32)


def _write_split(choice: Choice) -> str:
    add = Launch("add", "max(num_split_rows,1)", 32, choice.fill(_CUDA["add"], warp_sum=warp_sum(32)))
    return _write(choice, "split", "num_tiles", choice.integer("block"), add)


def _legal(choice: Choice, threads: int) -> bool:
    """Whether a tile can be cut so, and its products and a block's registers suffice."""
    items, width, lanes = choice.integer("items"), choice.integer("vector"), choice.integer("lanes")
    element_bytes, block = choice.element_bytes, choice.integer("block")
    return (
        items % width == 0
        and 1 <= threads * items // (32 * width) <= MAX_CHUNKS
        and threads // lanes * choice.integer("rows") <= MAX_ROWS
        and block * items * element_bytes <= MAX_STATIC_SHARED_BYTES
        and block * items * (element_bytes + 4) <= MAX_ITEM_BYTES
    )


_SHARES: dict[str, ParameterSpec] = {
    "rows": OneOf(1, prospects.ROWS),
    "long": OneOf("lanes", ("lanes", "warp")),
    "items": OneOf(4, (2, 4, 8, 16)),
    "vector": OneOf(4, (2, 4)),
}
_SETTINGS = {**_SHARES, **streamed(index=INDEX, sequence=ROWS)}
_LANES = OneOf(4, (1, 2, 4, 8, 16, 32))

CSR_TILES = Family(
    name="csr_tiles",
    operation="spmv",
    format="csr_tiles",
    strategy="A block takes a tile of whole rows and knows every address from its number; columns, values and row "
    "bounds arrive together, then x, then sums in shared memory: the least latency for uneven rows.",
    parameters={"lanes": _LANES, "block": ANY_BLOCK, **_SETTINGS},
    suits=lambda pattern: int(pattern.row_lengths.max()) <= 12288,
    write=_write_block,
    has_facts=True,
    allows=lambda choice: _legal(choice, choice.integer("block")),
    prospects=prospects.tiles,
)

CSR_WARP_TILES = Family(
    name="csr_warp_tiles",
    operation="spmv",
    format="csr_tiles",
    strategy="As csr_tiles, with a small tile for each warp and no barrier of the block; short rows.",
    parameters={"lanes": _LANES, "block": OneOf(64, (64, 128, 256)), **_SETTINGS},
    suits=lambda pattern: int(pattern.row_lengths.max()) <= 512,
    write=_write_warp,
    has_facts=True,
    allows=lambda choice: _legal(choice, 32),
    prospects=prospects.warp_tiles,
)

CSR_TILES_SORTED = Family(
    name="csr_tiles_sorted",
    operation="spmv",
    format="csr_tiles",
    strategy="As csr_tiles, with each tile's nonzeros sorted by column, so that lanes read x side by side, and put in "
    "their rows' order in shared memory; scattered columns with repetitions.",
    parameters={"lanes": _LANES, "block": ANY_BLOCK, **_SETTINGS},
    suits=lambda pattern: int(pattern.row_lengths.max()) <= 12288,
    write=_write_sorted,
    has_facts=True,
    allows=lambda choice: _legal(choice, choice.integer("block")),
    prospects=prospects.tiles_sorted,
)

CSR_TILES_SPLIT = Family(
    name="csr_tiles_split",
    operation="spmv",
    format="csr_tiles",
    strategy="As csr_tiles, with rows longer than a tile split into pieces that a small second launch adds up; a few "
    "giant rows among short ones.",
    parameters={"lanes": _LANES, "block": ANY_BLOCK, "order": ORDER, **_SHARES, **streamed(index=INDEX)},
    suits=lambda pattern: int(pattern.row_lengths.max()) > 128,
    write=_write_split,
    has_facts=True,
    allows=lambda choice: _legal(choice, choice.integer("block")),
    prospects=prospects.tiles_split,
)

FAMILIES = (CSR_TILES, CSR_WARP_TILES, CSR_TILES_SORTED, CSR_TILES_SPLIT)
