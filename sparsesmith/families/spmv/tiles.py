"""SpMV over tiles: every load but that of x is addressed by the tile's number alone, and one launch does it all."""

from sparsesmith.families.axes import ANY_BLOCK, INDEX, streamed
from sparsesmith.families.family import Family
from sparsesmith.families.spmv import tiles_prospects as prospects
from sparsesmith.families.spmv.tiles_prospects import LONG_ROW
from sparsesmith.families.text.idioms import block_sum, warp_sum
from sparsesmith.families.text.program import (
    MAX_STATIC_SHARED_BYTES,
    Choice,
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


def _bounds(choice: Choice, threads: int) -> str:
    """Reads, early, which rows a thread sums and where they begin and end in the tile."""
    lanes, rows = choice.integer("lanes"), choice.integer("rows")
    groups = threads // lanes
    natural = _sequence(choice) == "natural"
    return choice.fill(
        _CUDA["bounds"],
        range="int2 range = *(const int2*)(tile_rows + tile * 2);" if natural else "",
        own="thread" if lanes == 1 else f"thread / {lanes}",
        groups=groups,
        stride=groups * rows + 1,
        row="range.x + place" if natural else f"row_ids[tile * {groups * rows} + place]",
    )


def _sequence(choice: Choice) -> str:
    return str(choice.values.get("sequence", "natural"))


def _sums(choice: Choice) -> str:
    """Sums each row of the tile from shared memory and stores it: by its lanes, or by the warp where it is long."""
    lanes = choice.integer("lanes")
    mixed = choice.word("long") == "warp"
    return choice.fill(
        _CUDA["sums_of_mixed_rows" if mixed else "sums"],
        longest=LONG_ROW * lanes,
        leader="" if lanes == 1 else f" && thread % {lanes} == 0",
        leads="" if lanes == 1 else f"thread % {lanes} == 0 && ",
        is_row="row[r] < range.y" if _sequence(choice) == "natural" else "row[r] >= 0",
        own_lane="" if lanes == 1 else f" + thread % {lanes}",
        group_sum=warp_sum(lanes),
        warp_sum=warp_sum(32, "part"),
    )


def _share(choice: Choice, threads: int) -> str:
    """Loads a thread's share of the tile."""
    c_index = c_index_type(choice.word("index"))
    place = _copies(choice, "target", "places", "unsigned short", threads)
    return choice.fill(
        _CUDA["share"],
        capacity=threads * choice.integer("items"),
        I=c_index,
        cols=_copies(choice, "col", "col_indices", c_index, threads),
        values=_copies(choice, "value", "values", choice.scalar, threads),
        places=f"__align__(16) unsigned short target[{choice.integer('items')}];\n{place}"
        if _is_sorted(choice)
        else "",
        bounds=_bounds(choice, threads),
        base=_base(choice, threads) if choice.word("index") == "u16" else "",
    )


def _base(choice: Choice, threads: int) -> str:
    """What 16-bit columns count from: those of a sorted chunk, or of the whole tile."""
    if not _is_sorted(choice):
        return "int base = tile_col_base[tile];"
    warps, chunks = threads // 32, choice.integer("items") // choice.integer("vector")
    first = f"tile * {warps * chunks}" + ("" if warps == 1 else " + thread / 32")
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
    body = choice.fill(
        _CUDA[section],
        capacity=threads * items,
        staged=block * items,
        tiles=block // threads,
        share=_share(choice, threads),
        product=_product(choice),
        block_sum=block_sum(block, "carry[tile - num_whole_tiles]", "products"),
        place=_place(choice, threads),
        sums=_sums(choice),
    )
    settings: dict[str, ParameterValue] = {
        "chunks": threads * items // (32 * width),
        "vector": width,
        "max_rows": threads // choice.integer("lanes") * choice.integer("rows"),
        "index": choice.word("index"),
        "order": str(choice.values.get("order", "row")),
        "rows": _sequence(choice),
        "long_rows": "split" if more else "refuse",
    }
    function = choice.value_function(_step(choice, choice.scalar))
    return program(choice, settings, main_launch(choice, grid, body), *more, functions=(function,))


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
    allows=lambda choice: _legal(choice, choice.integer("block")),
    prospects=prospects.tiles_split,
)

FAMILIES = (CSR_TILES, CSR_WARP_TILES, CSR_TILES_SORTED, CSR_TILES_SPLIT)
