"""SpMM where several groups of lanes share a row and join their sums by shuffles: for few rows, or rather long ones."""

from collections.abc import Iterator
from math import ceil, log2

from sparsesmith.families.axes import ANY_BLOCK, DEPENDENCY, INDEX, LOAD, REGISTERS, UNROLL
from sparsesmith.families.estimates.cost import RESIDENT_THREADS, Prospect, Work, combine, indices, near, number
from sparsesmith.families.family import Family
from sparsesmith.families.spmm.dense_tiles import ONE_CHUNK_PARAMETERS, DenseTile, tile_fits, tile_of
from sparsesmith.families.spmm.prospects import Tile, corrected, placements, shared, tiles_of_groups
from sparsesmith.families.text.program import FULL_WARP, Choice, Fact, main_launch, program
from sparsesmith.families.text.template import cuda_beside, fill
from sparsesmith.formats.format import IntegerRange, OneOf, ParameterSpec, ParameterValue

_CUDA = cuda_beside(__name__)

MAX_FEW = 128
PLACEMENT = OneOf("spread", ("spread", "near"))
"""near: blocks of neighbouring rows go to one multiprocessor, whose L1 keeps the rows of B that they share."""

WIDTH = "WIDTH"
"""The longest row, in the text of `spmm_ell`."""

MAX_SLOTS = 32
"""Slots of an ell row that one thread reads at once."""


def own_column(tile: DenseTile) -> str:
    """Declares `column`; where tiles overhang the last column, it stays within and `inside` tells who may store."""
    first = tile.column("blockIdx.z" if tile.choice.word("placement") == "near" else "blockIdx.y")
    if not tile.overhangs:
        return f"int column = {first};"
    return tile.fill(_CUDA["own_column"], first=first, last=tile.num_dense_cols - tile.vector)


def block_number(choice: Choice) -> str:
    """Which piece of the matrix a block takes."""
    return "blockIdx.x" if choice.word("placement") == "spread" else "blockIdx.x * gridDim.y + blockIdx.y"


def grid_of(blocks: str, tile: DenseTile) -> str:
    """A grid of `blocks` blocks for each tile of dense columns; blocks that start together differ in x."""
    if tile.choice.word("placement") == "spread":
        return f"{blocks}{tile.grid}"
    return f"num_sms,ceil_div({blocks},num_sms){tile.grid}"


def group(tile: DenseTile) -> str:
    """The number of a thread's group within the block."""
    return "threadIdx.x" if tile.lanes == 1 else f"threadIdx.x / {tile.lanes}"


def may_store(tile: DenseTile) -> str:
    """The rest of a condition for storing."""
    return " && inside" if tile.overhangs else ""


def store_vector(tile: DenseTile, address: str) -> str:
    """Writes `sum`; inside loops the compiler takes a plain store of a vector apart."""
    return f"__stcg({address if tile.vector == 1 else f'({tile.c_type}*)({address})'}, sum);"


def few_suffice(choice: Choice, in_flight: int) -> bool:
    """Whether `in_flight` nonzeros fit in the registers the compiler allots by itself, without spills (measured)."""
    return choice.word("registers") == "free" or in_flight * choice.element_bytes**2 <= MAX_FEW


def shuffle_sum(tile: DenseTile, groups: int, *, braces: bool | None = None) -> str:
    """Sums `sum` over `groups` neighbouring groups of lanes of a warp."""
    if groups == 1:
        return ""
    each = " ".join(f"sum{field} += __shfl_xor_sync({FULL_WARP}, sum{field}, step);" for field in tile.fields)
    braces = tile.vector > 1 if braces is None else braces
    body = f" {{\n  {each}\n}}" if braces else f" {each}"
    return fill(_CUDA["shuffle_sum"], first=groups * tile.lanes // 2, lanes=tile.lanes, body=body)


def _joined(tile: DenseTile) -> str:
    """Joins the sums of a row's groups and stores them."""
    splits = tile.choice.integer("splits")
    in_warp = min(splits, 32 // tile.lanes)
    warps = splits // in_warp
    return tile.fill(
        _CUDA["join"],
        shuffle_sum=shuffle_sum(tile, in_warp),
        join_warps=tile.fill(_CUDA["join_warps"], warps=warps) if warps > 1 else "",
        inside=may_store(tile),
    )


def _row(tile: DenseTile) -> str:
    """The row of a thread."""
    threads, number = tile.lanes * tile.choice.integer("splits"), block_number(tile.choice)
    rows = tile.choice.integer("block") // threads
    if rows == 1:
        return number
    first = f"({number}) * {rows}" if " " in number else f"{number} * {rows}"
    return f"{first} + threadIdx.x" + (f" / {threads}" if threads > 1 else "")


def _write(
    choice: Choice,
    section: str,
    settings: dict[str, ParameterValue],
    facts: tuple[Fact, ...] = (),
    **places: object,
) -> str:
    tile, splits, block = tile_of(choice), choice.integer("splits"), choice.integer("block")
    partials = f"__shared__ {tile.c_type} partials[{block // 32 * tile.lanes}];"
    body = tile.fill(
        _CUDA[section],
        partials=partials if splits * tile.lanes > 32 else "",
        row=_row(tile),
        part="0" if splits == 1 else f"{group(tile)} % {splits}",
        own_column=own_column(tile),
        finish=_joined(tile),
        **places,
    )
    grid = grid_of(f"ceil_div(num_rows,{block // (tile.lanes * splits)})", tile)
    width = next((fact for fact in facts if fact.name == WIDTH), None)
    require = None if width is None else {"width": width}
    return program(choice, settings, main_launch(choice, grid, body), require=require, facts=facts)


def _write_rows(choice: Choice) -> str:
    splits = choice.integer("splits")
    times = " + u" if splits == 1 else f" + u * {splits}"
    stride = splits * choice.integer("unroll")
    return _write(choice, "rows_split", {"index": choice.word("index")}, stride=stride, times=times)


def _slots(choice: Choice) -> int:
    """Slots of an ell row that each of its groups takes."""
    return -(-choice.integer("width") // choice.integer("splits"))


def _write_ell(choice: Choice) -> str:
    splits, longest = choice.integer("splits"), choice.integer("width")
    width = choice.fact(WIDTH, "row_length_max", longest)
    slots = choice.fact("SLOTS", f"ceil_div({WIDTH},{splits})", _slots(choice)) if splits > 1 else width
    last = choice.fact("LAST", f"{WIDTH}-1", longest - 1)
    slot, in_brackets = (f"part + u * {splits}", f"(part + u * {splits})") if splits > 1 else ("u", "u")
    overhangs = longest % splits != 0
    return _write(
        choice,
        "ell",
        {},
        (width, *((slots,) if splits > 1 else ()), *((last,) if overhangs else ())),
        width=width,
        unroll=slots,
        slot=f"min({slot}, {last})" if overhangs else in_brackets,
        mask=f"if ({slot} >= {width}) value[u] = 0;" if overhangs else "",
    )


def _splits_fit(choice: Choice) -> bool:
    """A row's threads fill whole blocks; vectors are aligned."""
    return tile_fits(choice) and choice.integer("lanes") * choice.integer("splits") <= choice.integer("block")


def _rows_prospects(work: Work) -> Iterator[Prospect]:
    mean, longest = work.statistics.mean, work.statistics.longest
    splits = sorted({*near(mean / 2, (1, 2, 4, 8, 16, 32), 3), *near(longest / 8, (2, 4, 8, 16, 32), 2)})
    for tile in tiles_of_groups(work):
        for rest in combine(
            splits=(*splits, *_for_few_rows(work, tile)), unroll=(4, 2, 1, 8), block=(128, 256, 64, 512),
            load=("ldg",), index=indices(work.statistics.narrow), placement=placements(work),
        ):  # fmt: skip
            if (number(rest, "block") > 256) != (number(rest, "splits") > 32):
                continue
            batch = number(rest, "splits") * number(rest, "unroll")
            if batch > 4 * max(mean, longest / 16):
                continue
            read = work.rows * batch * ceil(mean / batch)
            chain = 2.5 + 1.2 * ceil(longest / batch) + 0.3 * log2(number(rest, "splits"))
            groups = float(work.rows * number(rest, "splits"))
            yield shared(work, {**tile, **rest}, work.csr_bytes(str(rest["index"])), groups, read, chain)


def _for_few_rows(work: Work, tile: Tile) -> tuple[int, ...]:
    """More groups a row where rows are long and so few that all groups are resident."""
    many = tuple(splits for splits in (64, 128) if work.rows * splits * number(tile, "lanes") <= RESIDENT_THREADS)
    return tuple(splits for splits in many if work.statistics.mean >= 2 * splits)


def _ell_prospects(work: Work) -> Iterator[Prospect]:
    width = work.statistics.longest
    slots = float(width * work.rows)
    for tile in tiles_of_groups(work):
        for rest in combine(
            splits=(1, 2, 4, 8, 16), block=(128, 64, 256, 32), load=("ldg",), placement=placements(work)
        ):
            splits = number(rest, "splits")
            chain = 2 + 0.3 * log2(splits) + 0.1 * width / splits
            values = {**tile, **rest, "width": width}
            if splits <= width:
                yield shared(work, values, slots * (4 + work.element_bytes), work.rows * splits, slots, chain)


_SPLIT_PARAMETERS: dict[str, ParameterSpec] = {
    **ONE_CHUNK_PARAMETERS,
    "block": ANY_BLOCK,
    "load": LOAD,
    "placement": PLACEMENT,
}

SPMM_ROWS_SPLIT = Family(
    name="spmm_rows_split",
    operation="spmm",
    format="csr",
    strategy="Several groups of lanes a row, joined by shuffles and shared memory: no long chain of batches; small "
    "matrices, rows of some length.",
    parameters={
        **_SPLIT_PARAMETERS,
        "splits": OneOf(4, (1, 2, 4, 8, 16, 32, 64, 128)),
        "unroll": UNROLL,
        "registers": REGISTERS,
        "index": INDEX,
        "dependency": DEPENDENCY,
    },
    suits=lambda pattern: pattern.num_rows < 2**22,
    write=_write_rows,
    allows=_splits_fit,
    prospects=corrected(0.88, _rows_prospects),
)

SPMM_ELL = Family(
    name="spmm_ell",
    operation="spmm",
    format="ell",
    strategy="Rows padded to one width known at compile time: every column is loaded at once, then every row of B; "
    "small matrices with even rows, where one dependent load less counts.",
    parameters={
        **_SPLIT_PARAMETERS,
        "width": IntegerRange(8, 1, 64),
        "splits": OneOf(1, (1, 2, 4, 8, 16)),
        "registers": REGISTERS,
        "dependency": DEPENDENCY,
    },
    suits=lambda pattern: (
        pattern.num_rows < 2**22
        and pattern.row_lengths.max() <= 64
        and pattern.row_lengths.max() * pattern.num_rows <= 6 * pattern.nnz
    ),
    write=_write_ell,
    has_facts=True,
    allows=lambda choice: _splits_fit(choice) and _slots(choice) <= MAX_SLOTS,
    prospects=corrected(0.8, _ell_prospects),
)

FAMILIES = (SPMM_ROWS_SPLIT, SPMM_ELL)
