"""SpMV over rows gathered by length, the bins written into the program: no offsets to wait for.

A second family does the same with rows and columns by other numbers: it copies x into that order first.
"""

from sparsesmith.families.axes import ANY_BLOCK, streamed
from sparsesmith.families.family import Family
from sparsesmith.families.spmv import reordered_prospects
from sparsesmith.families.spmv import row_bins_prospects as prospects
from sparsesmith.families.spmv.row_bins_prospects import MOST_IN_FLIGHT
from sparsesmith.families.text.program import Choice, Fact, Launch, main_launch, program
from sparsesmith.families.text.template import cuda_beside, fill
from sparsesmith.formats.building.high_bits import HIGH_BITS, slots_a_byte
from sparsesmith.formats.building.numbering import MOVES_ROWS, NUMBERINGS
from sparsesmith.formats.format import NumberList, OneOf, ParameterSpec, numbers
from sparsesmith.formats.row_bins import LONGEST_ROW, MAX_BINS, WARP, Bin, place_bins
from sparsesmith.program.facts import high_bytes

_CUDA = cuda_beside(__name__)

INDEX = OneOf("i32", ("i32", "u16", "u18", "u20"))
"""`u16`: counted from the warp's smallest column. `u18` and `u20`: absolute, bits above 16 in bytes of their own."""
MAX_WARPS = 2**26
LONGEST_ROW_AT_ONCE = 32768
"""A longer row would keep its threads busy when all others have ended."""
MIN_REORDERED_NNZ = 200_000
"""Below that two launches take longer than any order saves."""
COPY_BLOCK = 256


def _bins(choice: Choice) -> tuple[Bin, ...]:
    return place_bins(
        numbers(choice.word("widths")),
        numbers(choice.word("warps")),
        choice.integer("steps"),
        choice.integer("max_lanes"),
    )


def _renumbers(choice: Choice) -> bool:
    return "numbering" in choice.values


def _keeps_rows(choice: Choice, bins: tuple[Bin, ...]) -> bool:
    """Whether rows have kept their places, as those of a single bin have."""
    return len(bins) == 1 and choice.values.get("numbering") not in MOVES_ROWS


def _place(bin_: Bin, keeps_rows: bool) -> str:
    """Where a warp of the bin finds its rows and slots; the first warp's number is taken off beforehand."""
    shift, steps = bin_.lanes.bit_length() - 1, bin_.steps
    place = "" if keeps_rows else f"place = {bin_.first_row - bin_.first_warp * WARP // bin_.lanes}, "
    return f"shift = {shift}, steps = {steps}, {place}slot = {bin_.first_slot - bin_.first_warp * steps * WARP}"


def _choose(choice: Choice, bins: tuple[Bin, ...]) -> str:
    """The bin of a warp: the narrowest, unless the warp lies before it."""
    has_high_bits = choice.word("index") in HIGH_BITS
    if choice.is_open:
        place, high_byte = "" if _keeps_rows(choice, bins) else " place", " high_byte" if has_high_bits else ""
        return f"//@ pick shift steps{place} slot{high_byte} = bins[warp]"
    places = [_place(bin_, _keeps_rows(choice, bins)) for bin_ in bins]
    if has_high_bits:
        starts = high_bytes(bins, choice.word("index"))
        places = [f"{place}, high_byte = {byte}" for place, byte in zip(places, starts, strict=True)]
    lines = [f"int {places[-1]};"]
    lines += [
        f"{'else ' if i else ''}if (warp < {bin_.past_warp}) {place};"
        for i, (bin_, place) in enumerate(zip(bins[:-1], places[:-1], strict=True))
    ]
    return "\n".join(lines)


def _batch(choice: Choice, bins: tuple[Bin, ...]) -> tuple[Fact, Fact]:
    """Slots of a lane that are loaded together, and the bytes of their high bits."""
    slots = slots_a_byte(choice.word("index")) if choice.word("index") in HIGH_BITS else 1
    size = min(MOST_IN_FLIGHT, _most_steps(bins))
    # Without a loop over batches a text is right for every matrix as long as one batch holds all there is.
    batch = choice.fact("BATCH", f"min({MOST_IN_FLIGHT},most_steps)" if _has_more(bins) else "most_steps", size)
    return batch, choice.fact("BYTES", f"ceil_div(BATCH,{slots})", -(-size // slots))


def _most_steps(bins: tuple[Bin, ...]) -> int:
    return max(bin_.steps for bin_ in bins)


def _has_more(bins: tuple[Bin, ...]) -> bool:
    """Whether a lane's slots take more than one batch."""
    return _most_steps(bins) > MOST_IN_FLIGHT


def _high_loads(choice: Choice, bytes_: Fact, start: str) -> str:
    """High bits of a batch."""
    if choice.word("index") not in HIGH_BITS:
        return ""
    slots = slots_a_byte(choice.word("index"))
    step = f"{start} + u * {slots}" if start else f"u * {slots}"
    offset = f"({start} / {slots} + u) * 32" if start else "u * 32"
    return choice.fill(_CUDA["high_loads"], bytes=bytes_, step=step, offset=offset)


def _column(choice: Choice) -> str:
    """The column of slot u of a batch."""
    index = choice.word("index")
    if index in HIGH_BITS:
        slots, bits = slots_a_byte(index), HIGH_BITS[index]
        return f"(high[u / {slots}] >> u % {slots} * {bits} & {2**bits - 1}) << 16 | col[u]"
    return "base + col[u]" if index == "u16" else "col[u]"


def _loads(choice: Choice, batch: Fact, step: str) -> str:
    """Columns and values of a batch, as many as the lane has left."""
    offset = "u * 32" if step == "u" else f"({step}) * 32"
    return choice.fill(_CUDA["loads"], batch=batch, step=step, offset=offset)


def _products(choice: Choice, batch: Fact, step: str) -> str:
    operand = "ordered_x" if _renumbers(choice) else "x"
    return fill(_CUDA["products"], batch=batch, step=step, operand=operand, column=_column(choice))


def _more(choice: Choice, batch: Fact, bytes_: Fact) -> str:
    """Further batches of rows so long that one does not hold them."""
    return fill(
        _CUDA["more"],
        batch=batch,
        high_loads=_high_loads(choice, bytes_, "start"),
        loads=_loads(choice, batch, "start + u"),
        products=_products(choice, batch, "start + u"),
    )


def _high_place(choice: Choice, bytes_: Fact) -> str:
    """The lane's first byte of high bits, and where a batch's go."""
    if choice.word("index") not in HIGH_BITS:
        return ""
    slots = slots_a_byte(choice.word("index"))
    return f"high_byte += warp * ((steps + {slots - 1}) / {slots}) * 32 + lane;\nint high[{bytes_}] = {{}};"


def _base(wide: bool) -> str:
    return "int base = steps ? warp_col_base[warp] : 0;" if wide else "int base = warp_col_base[warp];"


def _row(keeps_rows: bool, wide: bool) -> str:
    """The row of a thread."""
    if keeps_rows:
        return "warp * 32 + lane >> shift"
    row = "row_permutation[place + (warp * 32 + lane >> shift)]"
    return f"steps ? {row} : -1" if wide else row


def _is_row(keeps_rows: bool) -> str:
    return "row < num_rows" if keeps_rows else "row >= 0"


def _wide_blocks(choice: Choice, bins: tuple[Bin, ...]) -> Fact:
    """Blocks that hold rows of several warps: the first ones."""
    block, past_warp = choice.integer("block"), max((bin_.past_warp for bin_ in bins if bin_.lanes > WARP), default=0)
    return choice.fact("BLOCKS", f"ceil_div(wide_warps*{WARP},{block})", -(-past_warp * WARP // block))


def _row_of_warps(blocks: Fact, keeps_rows: bool) -> str:
    """Ends the sums where rows have several warps."""
    return fill(_CUDA["row_of_warps"], blocks=blocks, is_row=_is_row(keeps_rows))


def _copy_of_x(choice: Choice) -> tuple[Launch, ...]:
    """What brings x into the order of the columns."""
    if not _renumbers(choice):
        return ()
    body = choice.fill(_CUDA["order_x"], copy_block=COPY_BLOCK)
    return (Launch("order_x", f"ceil_div(num_cols,{COPY_BLOCK})", COPY_BLOCK, body),)


def _write(choice: Choice) -> str:
    block, bins, copies = choice.integer("block"), _bins(choice), _copy_of_x(choice)
    keeps_rows = _keeps_rows(choice, bins)
    narrow, wide = choice.word("index") == "u16", bins[0].lanes > WARP
    limits, warps = _limits(choice), choice.fact("WARPS", "num_warps", bins[-1].past_warp)
    (batch, bytes_), blocks = _batch(choice, bins), _wide_blocks(choice, bins)
    leads = f"if ((lane & (1 << shift) - 1) == 0 && {_is_row(keeps_rows)}) y[row] = sum;"
    body = choice.fill(
        _CUDA["row_bins"],
        partials=f"__shared__ {choice.scalar} partials[{block // WARP}];" if wide else "",
        past=f"{'' if wide else 'warp >= num_warps || '}num_warps != {warps}",
        choose=_choose(choice, bins),
        stop="if (warp >= num_warps) steps = 0;" if wide else "",
        base=_base(wide) if narrow else "",
        row=_row(keeps_rows, wide),
        high_place=_high_place(choice, bytes_),
        high_loads=_high_loads(choice, bytes_, ""),
        batch=batch,
        loads=_loads(choice, batch, "u"),
        products=_products(choice, batch, "u"),
        more=_more(choice, batch, bytes_) if _has_more(bins) else "",
        half="min(1 << shift, 32) / 2" if wide else "1 << shift >> 1",
        store=_row_of_warps(blocks, keeps_rows) if wide else leads,
        wait="" if copies else choice.wait,
    )
    named = ("steps", "max_lanes", "index", *(("numbering",) if copies else ()))
    settings = {"widths": limits, **{name: choice.values[name] for name in named}}
    high = (bytes_,) if choice.word("index") in HIGH_BITS else ()
    facts = (limits, warps, batch, *high, *((blocks,) if wide else ()))
    main = main_launch(choice, f"ceil_div(num_warps,{block // 32})", body)
    return program(choice, settings, *copies, main, facts=facts)


def _limits(choice: Choice) -> Fact:
    """Where the bins are cut; a list as long as the prospects' is cut as one of theirs is."""
    count = len(numbers(choice.word("widths")))
    most = next((most for most in sorted(prospects.CUTS) if most >= count), MAX_BINS)
    steps, max_lanes = choice.integer("steps"), choice.integer("max_lanes")
    return choice.fact("LIMITS", f"cut_widths({steps},{max_lanes},{most})", choice.word("widths"))


def _bins_fit(choice: Choice) -> bool:
    """Whether the lists match, and a row's threads lie in one block."""
    if len(numbers(choice.word("widths"))) != len(numbers(choice.word("warps"))):
        return False
    return _bins(choice)[0].lanes <= choice.integer("block")


_PARAMETERS: dict[str, ParameterSpec] = {
    "widths": NumberList("2000", 1, LONGEST_ROW, MAX_BINS),
    "warps": NumberList("16", 1, MAX_WARPS, MAX_BINS),
    "steps": OneOf(4, (1, 2, 4, 8, 16, 32)),
    "max_lanes": OneOf(32, (32, 128, 512)),
    "block": ANY_BLOCK,
    **streamed(index=INDEX),
}
"""`widths`: the longest row of each bin. `warps`: the warps up to the end of each bin, the widest bin first."""

ROW_BINS = Family(
    name="row_bins",
    operation="spmv",
    format="row_bins",
    strategy="Rows gathered by length into bins that the kernel knows by heart, a few lanes a row, all loads of a row "
    "in flight at once; rows of any lengths, small matrices above all.",
    parameters=_PARAMETERS,
    suits=lambda pattern: int(pattern.row_lengths.max()) <= LONGEST_ROW_AT_ONCE,
    write=_write,
    has_facts=True,
    allows=_bins_fit,
    prospects=prospects.row_bins,
)

REORDERED_ROW_BINS = Family(
    name="row_bins_reordered",
    operation="spmv",
    format="row_bins",
    strategy="As row_bins, with rows and columns numbered so that what is multiplied together lies close, x copied "
    "into that order first and y written where it belongs; large irregular matrices in an order that says nothing.",
    parameters={**_PARAMETERS, "numbering": OneOf(NUMBERINGS[0], NUMBERINGS)},
    suits=lambda pattern: pattern.nnz >= MIN_REORDERED_NNZ and ROW_BINS.suits(pattern),
    write=_write,
    has_facts=True,
    allows=_bins_fit,
    prospects=reordered_prospects.row_bins,
    reorders=True,
)

FAMILIES = (ROW_BINS, REORDERED_ROW_BINS)
