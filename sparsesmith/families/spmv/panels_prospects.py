"""Which parameters of the families made for scattered columns are worth trying."""

from collections.abc import Iterator

from sparsesmith.families.estimates.cost import (
    DRAM_BYTES_A_US,
    L2_BYTES,
    L2_BYTES_A_US,
    LAUNCH_US,
    NUM_SMS,
    Prospect,
    Values,
    Work,
    combine,
    loads,
    near,
    number,
)
from sparsesmith.families.estimates.scatter import SCATTERED, sectors_a_nonzero
from sparsesmith.formats.format import ParameterValue
from sparsesmith.program.directives import MAX_SHARED_BYTES

SHARED_BYTES_AN_SM = 233472
PANEL_COLS = (4096, 8192, 16384, 24576, 32768, 49152)
BINS = (264, 396, 528, 792, 1584, 3168)
PANEL_BYTES = (65536, 32768, 98304, 196608)
RESIDENT_BLOCKS = 3
"""Of 512 threads with 40 registers on a multiprocessor."""
RESIDENT_BLOCKS_OF_LONG_BATCHES = 2
"""The same with the 56 registers that unroll=4 takes."""
ALIGNED_SEGMENT = 32
"""Nonzeros a segment, below which padding and short reads eat the gain."""


def panels(work: Work) -> Iterator[Prospect]:
    """Products through scratch, where they cost less than the scattered reads of x."""
    if sectors_a_nonzero(work.statistics.pattern, work.element_bytes) < SCATTERED:
        return
    for cut in _cuts(work):
        for place, rest in enumerate(_variations(work, number(cut, "rounds"))):
            values = {**cut, **rest}
            if values["unroll"] == 4:
                values["parts"] = min(number(values, "parts"), NUM_SMS * RESIDENT_BLOCKS_OF_LONG_BATCHES)
            if _fits(work, values):
                yield Prospect(_estimated_us(work, values) * (1 + 0.03 * place), values)


def _cuts(work: Work) -> Iterator[dict[str, ParameterValue]]:
    """Panels of some widths and the parts that are resident at once, in one round or several."""
    chosen = dict.fromkeys(near(size / work.element_bytes, PANEL_COLS, 1)[0] for size in PANEL_BYTES)
    for values in combine(panel_cols=tuple(chosen), rounds=(2, 1, 4)):
        blocks = SHARED_BYTES_AN_SM // (number(values, "panel_cols") * work.element_bytes + 1024)
        yield {**values, "parts": NUM_SMS * min(blocks, RESIDENT_BLOCKS), "block": 1024 if blocks == 1 else 512}


def _variations(work: Work, rounds: int) -> Iterator[dict[str, ParameterValue]]:
    """What is left, first the likeliest and then one thing changed at a time."""
    bins = near(work.nnz * work.element_bytes / (50_000 * rounds), BINS, 3)
    lanes = near(work.statistics.mean / 16, (1, 4), 2)
    likeliest: dict[str, ParameterValue] = {"bins": bins[0], "unroll": 2, "lanes": lanes[0]}
    likeliest |= {"add_unroll": 2, "add_block": 512, "load": loads(work)[0]}
    yield likeliest
    changes = (("add_block", 256), ("load", loads(work)[1]), ("bins", bins[1]), ("unroll", 4))
    for name, value in (*changes, ("bins", bins[2]), ("add_unroll", 4), ("lanes", lanes[1])):
        yield {**likeliest, name: value}


def _estimated_us(work: Work, values: Values) -> float:
    """Every product is written and read once, in L2 if a round's fit; every part reads its panel of x."""
    rounds, parts, panel_cols = (number(values, name) for name in ("rounds", "parts", "panel_cols"))
    matrix = work.nnz * (work.element_bytes + 4)
    products = work.nnz * work.element_bytes
    bandwidth = L2_BYTES_A_US if products / rounds < L2_BYTES * 0.8 else DRAM_BYTES_A_US
    staged = rounds * parts * panel_cols * work.element_bytes
    return 2 * rounds * LAUNCH_US + matrix / DRAM_BYTES_A_US + 2 * products / bandwidth + staged / L2_BYTES_A_US


def _fits(work: Work, values: Values) -> bool:
    """Whether bins fit shared memory, parts do for the panels, and segments are long enough."""
    bins = number(values, "bins") * number(values, "rounds")
    panels = -(-work.statistics.pattern.num_cols // number(values, "panel_cols"))
    bin_slots = work.nnz / bins + 3 * panels
    return (
        1.04 * bin_slots * work.element_bytes <= MAX_SHARED_BYTES
        and bin_slots <= 65536
        and panels <= number(values, "parts")
        and work.nnz >= ALIGNED_SEGMENT * panels * bins
    )
