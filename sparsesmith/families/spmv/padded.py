"""SpMV over padded formats, ELL and SELL: neighbouring threads own neighbouring rows, so every load is coalesced."""

from sparsesmith.families.axes import ANY_BLOCK, BLOCK, SIGMA, UNROLL, WIDTH, streamed
from sparsesmith.families.estimates.suitability import any_pattern, ell_suits
from sparsesmith.families.family import Family
from sparsesmith.families.spmv import padded_prospects as prospects
from sparsesmith.families.text.idioms import warp_sum
from sparsesmith.families.text.program import Choice, c_index_type, main_launch, program, vector
from sparsesmith.families.text.template import cuda_beside
from sparsesmith.formats.building.windows import REACHES
from sparsesmith.formats.format import OneOf, ParameterValue

_CUDA = cuda_beside(__name__)

INDEX = OneOf("i32", ("i32", "u16", "u8", "u16_slot"))
"""`u16`: counted from the slice's smallest column. `u8` and `u16_slot`: from the slot's."""


def _base(choice: Choice) -> str:
    return "base + " if choice.values.get("index") == "u16" else ""


def _walk(choice: Choice, step: int | str, slice_: int = 0) -> str:
    """Adds slots begin, begin + step, ... < end; `unroll` slots at a time, past the end the first again as zero."""
    unroll = choice.integer("unroll")
    section = "walk_windows" if choice.values.get("index") in REACHES else "walk"
    return choice.fill(
        _CUDA[section if unroll > 1 else f"{section}_one"],
        stride=step * unroll if isinstance(step, int) else f"{unroll} * {step}",
        step=step,
        base=_base(choice),
        slot_base=lambda slot: _slot_base(slot, slice_),
    )


def _slot_base(slot: str, slice_: int) -> str:
    """Read of the base of a slot: slots of a slice's lanes share one."""
    return f"__ldg(slot_col_base + ({slot} >> {slice_.bit_length() - 1}))"


def _write_ell(choice: Choice) -> str:
    body = choice.fill(_CUDA["ell"], walk=_walk(choice, "stride"))
    return program(choice, {}, main_launch(choice, f"ceil_div(num_rows,{choice.integer('block')})", body))


def _write_ell_fixed(choice: Choice) -> str:
    width = choice.fact("WIDTH", "row_length_max", choice.integer("width"))
    body = choice.fill(_CUDA["ell_fixed"], width=width)
    launch = main_launch(choice, f"ceil_div(num_rows,{choice.integer('block')})", body)
    return program(choice, {}, launch, require={"width": width}, facts=(width,))


def _write_ell_parts(choice: Choice) -> str:
    body = choice.fill(_CUDA["ell_parts"], walk=_walk(choice, "step"))
    return program(choice, {}, main_launch(choice, "ceil_div(num_rows,32)", body, block=32 * choice.integer("parts")))


def _sell(choice: Choice, section: str, grid: str, slice_: int, slot: str, **places: object) -> str:
    """A program over slices of `slice_` rows; `slot`: the place of a lane's row, which unsorted slices leave alone."""
    natural = choice.integer("sigma") == 1
    body = choice.fill(
        _CUDA[section],
        slice_base="int base = slice_col_base[slice];" if choice.word("index") == "u16" else "",
        row=slot if natural else f"row_permutation[{slot}]",
        is_row="row < num_rows" if natural else "row >= 0",
        **places,
    )
    settings: dict[str, ParameterValue] = {
        "slice": slice_,
        "sigma": choice.integer("sigma"),
        "index": choice.word("index"),
    }
    function = choice.value_function(choice.integer("rows")) if section == "sell_wide" else ""
    return program(choice, settings, main_launch(choice, grid, body), functions=(function,))


def _write_sell(choice: Choice) -> str:
    slice_ = choice.integer("slice")
    grid = f"ceil_div(num_slices*{slice_},{choice.integer('block')})"
    return _sell(choice, "sell", grid, slice_, "slot", walk=_walk(choice, slice_, slice_))


def _write_sell_lanes(choice: Choice) -> str:
    slice_, lanes = choice.integer("slice"), choice.integer("lanes")
    group = slice_ * lanes
    return _sell(
        choice,
        "sell_lanes",
        f"ceil_div(num_slices,{choice.integer('block') // group})",
        slice_,
        f"slice * {slice_} + lane",
        group=group,
        walk=_walk(choice, group, slice_),
        warp_sum=warp_sum(lanes, lowest=slice_),
    )


def _wide_walk(choice: Choice, slice_: int) -> str:
    """Adds vectors begin, begin + slice, ... < end to as many sums."""
    rows, in_windows = choice.integer("rows"), choice.word("index") in REACHES
    base, own = ("base[u] + ", "[u]") if in_windows else (_base(choice), "")
    return choice.fill(
        _CUDA["wide_walk_windows" if in_windows else "wide_walk"],
        slice=slice_,
        stride=slice_ * choice.integer("unroll"),
        slot_base=lambda slot: _slot_base(slot, slice_),
        I=vector(c_index_type(choice.word("index")), rows),
        V=vector(choice.scalar, rows),
        products="\n".join(f"sum[{i}] += value{own}.{'xyzw'[i]} * x[{base}col{own}.{'xyzw'[i]}];" for i in range(rows)),
    )


def _write_sell_wide(choice: Choice) -> str:
    slice_ = 32 * choice.integer("rows")
    grid = f"ceil_div(num_slices,{choice.integer('block') // 32})"
    place = f"slice * {slice_} + lane + i"
    return _sell(choice, "sell_wide", grid, slice_, place, walk=_wide_walk(choice, slice_))


ELL = Family(
    name="ell",
    operation="spmv",
    format="ell",
    strategy="One thread a row over columns-major slots, no row offsets to wait for; rows of nearly one length.",
    parameters={"unroll": UNROLL, "block": ANY_BLOCK, **streamed()},
    suits=ell_suits,
    write=_write_ell,
    prospects=prospects.ell,
)

ELL_FIXED = Family(
    name="ell_fixed",
    operation="spmv",
    format="ell",
    strategy="ELL with the width written into the kernel, so that all loads of a row are in flight at once; small "
    "matrices with short rows.",
    parameters={"width": WIDTH, "block": ANY_BLOCK, **streamed()},
    suits=lambda pattern: int(pattern.row_lengths.max()) <= 32 and ell_suits(pattern),
    write=_write_ell_fixed,
    has_facts=True,
    prospects=prospects.ell_fixed,
)

ELL_PARTS = Family(
    name="ell_parts",
    operation="spmv",
    format="ell",
    strategy="ELL with several warps for the same 32 rows, joined in shared memory; few rows of one medium length.",
    parameters={"parts": OneOf(4, (2, 4, 8, 16)), "unroll": UNROLL, **streamed()},
    suits=lambda pattern: pattern.nnz >= 8 * pattern.num_rows and ell_suits(pattern),
    write=_write_ell_parts,
    prospects=prospects.ell_parts,
)

SELL = Family(
    name="sell",
    operation="spmv",
    format="sell",
    strategy="One thread a row inside slices padded to their longest row, sorted within windows of sigma rows; the "
    "workhorse for meshes and stencils.",
    parameters={
        "slice": OneOf(32, (32, 64, 128)),
        "sigma": SIGMA,
        "unroll": UNROLL,
        "block": ANY_BLOCK,
        **streamed(index=INDEX),
    },
    suits=any_pattern,
    write=_write_sell,
    prospects=prospects.sell,
)

SELL_LANES = Family(
    name="sell_lanes",
    operation="spmv",
    format="sell",
    strategy="Several lanes a row inside narrow slices; medium and long rows, or too few rows to fill the device.",
    parameters={
        "slice": OneOf(8, (4, 8, 16)),
        "lanes": OneOf(4, (2, 4, 8)),
        "sigma": SIGMA,
        "unroll": UNROLL,
        "block": BLOCK,
        **streamed(index=INDEX),
    },
    suits=lambda pattern: pattern.nnz >= 4 * pattern.num_rows,
    write=_write_sell_lanes,
    allows=lambda choice: choice.integer("slice") * choice.integer("lanes") <= 32,
    prospects=prospects.sell_lanes,
)

SELL_WIDE = Family(
    name="sell_wide",
    operation="spmv",
    format="sell",
    strategy="Each thread owns two or four neighbouring rows and loads their slots as one vector; large matrices bound "
    "by bandwidth.",
    parameters={
        "rows": OneOf(2, (2, 4)),
        "sigma": SIGMA,
        "unroll": OneOf(4, (1, 2, 4)),
        "block": BLOCK,
        **streamed(index=INDEX),
    },
    suits=lambda pattern: pattern.num_rows >= 2048,
    write=_write_sell_wide,
    allows=lambda choice: choice.integer("rows") <= choice.widest,
    prospects=prospects.sell_wide,
)

FAMILIES = (ELL, ELL_FIXED, ELL_PARTS, SELL, SELL_LANES, SELL_WIDE)
