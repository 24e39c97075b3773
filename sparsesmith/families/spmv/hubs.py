"""SpMV with the popular part of x in shared memory: a resident grid, a segmented sum across each warp."""

from collections.abc import Iterator

import numpy as np

from sparsesmith.families.axes import streamed
from sparsesmith.families.estimates.cost import (
    DRAM_BYTES_A_US,
    L2_BYTES_A_US,
    LAUNCH_US,
    NUM_SMS,
    Prospect,
    Work,
    combine,
    loads,
    near,
)
from sparsesmith.families.estimates.scatter import SCATTERED, SECTOR_BYTES, sectors_a_nonzero
from sparsesmith.families.family import Family
from sparsesmith.families.text.program import Choice, Launch, main_launch, program, vector
from sparsesmith.families.text.template import cuda_beside
from sparsesmith.formats.format import OneOf
from sparsesmith.program.directives import MAX_SHARED_BYTES

_CUDA = cuda_beside(__name__)

MIN_NNZ = 200_000
HUB_COLS = (4096, 8192, 16384, 24576, 28672, 32768, 40960, 49152, 57344)
HUB_BYTES = (131072, 196608, 98304, 229376, 65536)
COVERED = 0.4
"""Share of the nonzeros in columns of hubs, from which on they are worth their copies."""


def _write(choice: Choice) -> str:
    block, items, width = choice.integer("block"), choice.integer("items"), choice.widest
    wide = vector(choice.scalar, width)
    body = choice.fill(
        _CUDA["spmv"],
        V=wide,
        width=width,
        stride=block * width,
        warps=block // 32,
        slots=32 * items,
        mask=hex((1 << items) - 1),
        cols="\n".join(
            f"*(int4*)(col + {k}) = {choice.load(f'(const int4*)(col_indices + slot + {k})')};"
            for k in range(0, items, 4)
        ),
        values="\n".join(
            f"*({wide}*)(value + {k}) = {choice.value_vector(width, f'slot + {k}')};" for k in range(0, items, width)
        ),
    )
    prepare = Launch("prepare", "ceil_div(max(num_rows,num_hubs),256)", 256, choice.fill(_CUDA["prepare"]))
    shared = f"ceil_div(num_hubs,4)*{4 * choice.element_bytes}"
    return program(
        choice,
        {"hub_cols": choice.integer("hub_cols"), "items": items},
        prepare,
        main_launch(choice, "num_sms", body, shared=shared),
        functions=(choice.value_function(width),),
    )


def _prospects(work: Work) -> Iterator[Prospect]:
    """x of popular columns in shared memory, where they cover much of what is read at random."""
    pattern = work.statistics.pattern
    if sectors_a_nonzero(pattern, work.element_bytes) < SCATTERED:
        return
    counts = np.sort(np.bincount(pattern.col_indices, minlength=pattern.num_cols))[::-1]
    for size in HUB_BYTES:
        hub_cols = near(size / work.element_bytes, HUB_COLS, 1)[0]
        covered = float(counts[:hub_cols].sum()) / work.nnz
        if covered < COVERED:
            continue
        staged = NUM_SMS * min(hub_cols, pattern.num_cols) * work.element_bytes
        matrix = work.nnz * (work.element_bytes + 4.25) + work.vector_bytes
        far = work.nnz * (1 - covered) * SECTOR_BYTES
        us = 2 * LAUNCH_US + (staged + far) / L2_BYTES_A_US + matrix / DRAM_BYTES_A_US
        for place, values in enumerate(
            combine(hub_cols=(hub_cols,), load=loads(work), items=(8, 4), block=(1024, 512))
        ):
            yield Prospect(us * (1 + 0.03 * place), values)


HUBS = Family(
    name="hubs",
    operation="spmv",
    format="hubs",
    strategy="x of the most popular columns in shared memory of a resident grid, other columns gathered, segmented "
    "sums across warps; large graphs with power laws.",
    parameters={
        "hub_cols": OneOf(32768, HUB_COLS),
        "items": OneOf(8, (4, 8)),
        "block": OneOf(1024, (512, 768, 1024)),
        **streamed(),
    },
    suits=lambda pattern: pattern.nnz >= MIN_NNZ,
    write=_write,
    allows=lambda choice: choice.integer("hub_cols") * choice.element_bytes <= MAX_SHARED_BYTES,
    prospects=_prospects,
)

FAMILIES = (HUBS,)
