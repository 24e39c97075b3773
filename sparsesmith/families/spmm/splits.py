"""SpMM where several groups of lanes share a row and join their sums by shuffles: for few rows, or rather long ones."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
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

WARP = 32

MAX_SLOTS = 32
"""Slots of an ell row that one thread reads at once."""


@dataclass(frozen=True)
class Cut:
    """How threads share rows and dense columns: numbers that stand all over a text, which an open one names once."""

    tile: DenseTile
    splits: Fact
    threads: Fact
    """Of a row."""
    rows: Fact
    """Of a block."""
    farthest: Fact
    """The first step of the sum over a row's groups within a warp."""
    warps: Fact
    """Of a row."""
    partials: Fact
    """Vectors that a block's warps exchange."""

    @property
    def facts(self) -> tuple[Fact, ...]:
        """Those that the text holds, each behind what it follows from."""
        is_split, crosses_warps = self.splits.value != 1, self.warps.value != 0
        return (
            self.tile.dense_cols,
            self.tile.lanes_fact,
            *((self.splits,) if is_split else ()),
            *((self.threads,) if self.threads.value != 1 else ()),
            self.rows,
            self.tile.width_fact,
            self.tile.tiles_fact,
            self.tile.edge_fact,
            *((self.farthest,) if is_split else ()),
            *((self.warps, self.partials) if crosses_warps else ()),
        )

    @property
    def part(self) -> str:
        """Which of a row's groups a thread belongs to."""
        return "0" if self.splits.value == 1 else f"{group(self.tile)} % {self.splits}"

    @property
    def row(self) -> str:
        """The row of a thread."""
        number = block_number(self.tile.choice)
        if self.rows.value == 1:
            return number
        first = f"({number}) * {self.rows}" if " " in number else f"{number} * {self.rows}"
        return f"{first} + threadIdx.x" + (f" / {self.threads}" if self.threads.value != 1 else "")


def cut_of(tile: DenseTile) -> Cut:
    """By what the tile's choice says of splits and block."""
    choice, lanes, splits = tile.choice, tile.lanes, tile.choice.integer("splits")
    block, threads = choice.integer("block"), lanes * splits
    of_row = "*".join(name for name, number in (("SPLITS", splits), ("LANES", lanes)) if number > 1)
    per_lane = "*LANES" if lanes > 1 else ""
    return Cut(
        tile,
        splits=choice.fact("SPLITS", _splits_meant(splits, lanes, block), splits),
        threads=choice.fact("THREADS", of_row, threads),
        rows=choice.fact("ROWS", f"{block}//THREADS" if threads > 1 else str(block), block // threads),
        farthest=choice.fact("FARTHEST", f"min(THREADS,{WARP})//2", min(threads, WARP) // 2),
        warps=choice.fact("WARPS", f"THREADS//{WARP}", threads // WARP if threads > WARP else 0),
        partials=choice.fact("PARTIALS", f"{block // WARP}{per_lane}", block // WARP * lanes),
    )


def _splits_meant(splits: int, lanes: int, block: int) -> str:
    """What an open text says of its splits: kept to numbers for which a row's threads are where the text has them, in a
    warp, in several, or a whole block."""
    threads, per_lane = splits * lanes, "//LANES" if lanes > 1 else ""
    if splits == 1:
        return "1"
    if threads == block:
        return f"{block}{per_lane}"
    if threads <= WARP:
        return f"min({splits},{WARP}{per_lane})"
    return f"min(max({splits},{2 * WARP}{per_lane}),{block // 2}{per_lane})"


def own_column(tile: DenseTile) -> str:
    """Declares `column`; where tiles overhang the last column, it stays within and `inside` tells who may store."""
    number = "blockIdx.z" if tile.choice.word("placement") == "near" else "blockIdx.y"
    first = tile.column(number)
    if not tile.overhangs:
        return f"int column = {first};"
    return tile.fill(_CUDA["own_column"], first=first, last=tile.edge_fact)


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
    return "threadIdx.x" if tile.lanes == 1 else f"threadIdx.x / {tile.lanes_fact}"


def may_store(tile: DenseTile) -> str:
    """The rest of a condition for storing."""
    return " && inside" if tile.overhangs else ""


def store_vector(tile: DenseTile, address: str) -> str:
    """Writes `sum`; inside loops the compiler takes a plain store of a vector apart."""
    return f"__stcg({address if tile.vector == 1 else f'({tile.c_type}*)({address})'}, sum);"


def few_suffice(choice: Choice, in_flight: int) -> bool:
    """Whether `in_flight` nonzeros fit in the registers the compiler allots by itself, without spills (measured)."""
    return choice.word("registers") == "free" or in_flight * choice.element_bytes**2 <= MAX_FEW


def shuffle_sum(tile: DenseTile, groups: int, *, braces: bool | None = None, cut: Cut | None = None) -> str:
    """Sums `sum` over `groups` neighbouring groups of lanes of a warp. `cut`: whose names the text uses."""
    if groups == 1:
        return ""
    first = groups * tile.lanes // 2 if cut is None else cut.farthest
    each = " ".join(f"sum{field} += __shfl_xor_sync({FULL_WARP}, sum{field}, step);" for field in tile.fields)
    braces = tile.vector > 1 if braces is None else braces
    body = f" {{\n  {each}\n}}" if braces else f" {each}"
    return fill(_CUDA["shuffle_sum"], first=first, lanes=tile.lanes_fact, body=body)


def _joined(cut: Cut) -> str:
    """Joins the sums of a row's groups and stores them."""
    tile, splits = cut.tile, cut.tile.choice.integer("splits")
    places = {"lanes": tile.lanes_fact, "warps": cut.warps}
    return tile.fill(
        _CUDA["join"],
        shuffle_sum=shuffle_sum(tile, min(splits, WARP // tile.lanes), cut=cut),
        join_warps=tile.fill(_CUDA["join_warps"], **places) if cut.warps.value else "",
        inside=may_store(tile),
    )


def _write(
    cut: Cut,
    section: str,
    settings: Mapping[str, ParameterValue],
    facts: tuple[Fact, ...] = (),
    require: Mapping[str, Fact] | None = None,
    **places: object,
) -> str:
    tile, choice = cut.tile, cut.tile.choice
    body = tile.fill(
        _CUDA[section],
        partials=f"__shared__ {tile.c_type} partials[{cut.partials}];" if cut.warps.value else "",
        row=cut.row,
        part=cut.part,
        own_column=own_column(tile),
        finish=_joined(cut),
        **places,
    )
    launch = main_launch(choice, grid_of(f"ceil_div(num_rows,{cut.rows})", tile), body)
    return program(choice, settings, launch, require=require, facts=(*cut.facts, *facts))


def _write_rows(choice: Choice) -> str:
    cut, splits, unroll = cut_of(tile_of(choice, is_named=True)), choice.integer("splits"), choice.integer("unroll")
    settings = {"index": choice.word("index")}
    if splits == 1:
        return _write(cut, "rows_split", settings, stride=unroll, times=" + u")
    stride = choice.fact("STRIDE", f"SPLITS*{unroll}", splits * unroll)
    return _write(cut, "rows_split", settings, (stride,), stride=stride, times=f" + u * {cut.splits}")


def _slots(choice: Choice) -> int:
    """Slots of an ell row that each of its groups takes."""
    return -(-choice.integer("width") // choice.integer("splits"))


def _write_ell(choice: Choice) -> str:
    cut, splits, longest = cut_of(tile_of(choice, is_named=True)), choice.integer("splits"), choice.integer("width")
    width = choice.fact("WIDTH", "row_length_max", longest)
    require = {"width": width}
    if splits == 1:
        return _write(cut, "ell", {}, (width,), require, width=width, unroll=width, slot="u", mask="")
    slots = choice.fact("SLOTS", "ceil_div(WIDTH,SPLITS)", _slots(choice))
    last = choice.fact("LAST", "WIDTH-1", longest - 1)
    slot = f"part + u * {cut.splits}"
    # Where splits divide the width, the compiler sees that no slot lies behind it: the machine code is the same.
    return _write(
        cut,
        "ell",
        {},
        (width, slots, last),
        require,
        width=width,
        unroll=slots,
        slot=f"min({slot}, {last})",
        mask=f"if ({slot} >= {width}) value[u] = 0;",
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
    has_facts=True,
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
