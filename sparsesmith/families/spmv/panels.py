"""SpMV by column panels: x of a panel in shared memory, products handed on to bins of rows in a second launch."""

from dataclasses import replace

from sparsesmith.families.axes import streamed
from sparsesmith.families.family import Family
from sparsesmith.families.spmv import panels_prospects as prospects
from sparsesmith.families.text.idioms import warp_sum
from sparsesmith.families.text.program import Choice, main_launch, program, vector
from sparsesmith.families.text.template import cuda_beside
from sparsesmith.formats.format import OneOf
from sparsesmith.program.directives import MAX_SHARED_BYTES

_CUDA = cuda_beside(__name__)

MIN_NNZ = 200_000


def _write(choice: Choice) -> str:
    launches = []
    for number in range(choice.integer("rounds")):
        again = f",{number + 1}" if number else ""
        panel = f"{choice.integer('panel_cols')}*{choice.element_bytes}"
        launches.append(main_launch(choice, f"num_parts{again}", _multiply(choice), kernel="multiply", shared=panel))
        bin_ = f"(bin_slots+ceil_div(bin_slots,32))*{choice.element_bytes}"
        add = main_launch(
            choice, f"num_bins{again}", _add(choice), kernel="add", block=choice.integer("add_block"), shared=bin_
        )
        launches.append(replace(add, reads_values=False))
    settings = {name: choice.values[name] for name in ("panel_cols", "parts", "bins", "rounds")}
    return program(choice, settings, *launches, functions=(choice.value_function(choice.widest),))


def _multiply(choice: Choice) -> str:
    step = choice.integer("block") * choice.widest
    return _filled(
        choice,
        "multiply",
        step=step,
        stride=step * choice.integer("unroll"),
        products="\n".join(f"value[u].{part} *= segment[col[u].{part}];" for part in "xyzw"[: choice.widest]),
    )


def _add(choice: Choice) -> str:
    block, lanes = choice.integer("add_block"), choice.integer("lanes")
    return _filled(
        choice,
        "add",
        warps=block // 32,
        panels_a_time=block // 32 * choice.integer("add_unroll"),
        first_segment="(bin + round)" if choice.integer("rounds") > 1 else "bin",
        step=32 * choice.widest,
        scatter="\n".join(f"put(to[u].{part}, product[u].{part});" for part in "xyzw"[: choice.widest]),
        rows=block // lanes,
        per_row="" if lanes == 1 else f" / {lanes}",
        longest=32 * lanes,
        own_lane="" if lanes == 1 else f" + lane % {lanes}",
        group_sum=warp_sum(lanes),
        leader="" if lanes == 1 else f" && lane % {lanes} == 0",
        warp_sum=warp_sum(32, "part"),
    )


def _filled(choice: Choice, section: str, **places: object) -> str:
    """What both kernels share filled in; a single round needs no arithmetic of rounds."""
    many = choice.integer("rounds") > 1
    return choice.fill(
        _CUDA[section],
        I=vector("unsigned short", choice.widest),
        V=vector(choice.scalar, choice.widest),
        width=choice.widest,
        first_bin="round * num_bins + " if many else "",
        first_part="round * num_parts + " if many else "",
        round=_CUDA["round"].strip() if many else "",
        out="int origin = part_offsets[round * num_parts];" if many else "",
        shift=" - origin" if many else "",
        **places,
    )


PANELS = Family(
    name="panels",
    operation="spmv",
    format="panels",
    strategy="Products panel by panel with the panel's x in shared memory, streamed to scratch, then added up by bins "
    "of rows in shared memory; large matrices whose columns are scattered beyond the caches.",
    parameters={
        "panel_cols": OneOf(16384, prospects.PANEL_COLS),
        "parts": OneOf(264, (132, 264, 396)),
        "bins": OneOf(792, prospects.BINS),
        "rounds": OneOf(1, (1, 2, 4)),
        "unroll": OneOf(2, (2, 4)),
        "block": OneOf(512, (512, 1024)),
        "lanes": OneOf(1, (1, 4)),
        "add_unroll": OneOf(2, (2, 4)),
        "add_block": OneOf(512, (256, 512)),
        **streamed(),
    },
    suits=lambda pattern: pattern.nnz >= MIN_NNZ,
    write=_write,
    allows=lambda choice: choice.integer("panel_cols") * choice.element_bytes <= MAX_SHARED_BYTES,
    prospects=prospects.panels,
)

FAMILIES = (PANELS,)
