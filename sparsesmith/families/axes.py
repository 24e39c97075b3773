"""Parameters that many families share. What a family alone has stands with the family."""

from sparsesmith.formats.format import NumberList, OneOf, ParameterSpec

LOAD = OneOf("ldcs", ("ldcs", "ldg"))
"""`ldcs` streams the matrix past the caches' working set, `ldg` keeps it."""
REGISTERS = OneOf("free", ("free", "few"))
"""`free` keeps all loads of a batch in flight, `few` keeps more warps resident."""
DEPENDENCY = OneOf("full", ("full", "programmatic"))
"""`programmatic`: the first launch starts while the kernel before it drains (`text.program`, `$wait`)."""
INDEX = OneOf("i32", ("i32", "u16"))
BLOCK = OneOf(128, (64, 128, 256))
LARGE_BLOCK = OneOf(256, (64, 128, 256, 512))
ANY_BLOCK = OneOf(128, (32, 64, 128, 256, 512))
LANES = OneOf(8, (2, 4, 8, 16, 32))
UNROLL = OneOf(4, (1, 2, 4, 8))
SIGMA = OneOf(1, (1, 64, 256, 1024, 4096, 16384, 0))
"""Rows that are sorted by length together; 0: all."""
EXTENT = OneOf(2, (1, 2, 3, 4, 6, 8))
"""Of dense blocks."""
PERCENT_KEPT = (0, 10, 20, 30, 40, 50, 60, 80)
KEEP = OneOf(0, PERCENT_KEPT)
"""Percent of the thread blocks whose part of the matrix stays in the L2; 0: no policy (`text.residency`)."""

WIDEST = 32
WIDTH = OneOf(8, tuple(range(1, WIDEST + 1)))
"""Slots of a row in the regular part of HYB."""
MAX_LITERAL_DIAGONALS = 64
REACH = 2**31 - 1 - 2**20
OFFSETS = NumberList("-1,0,1", -REACH, REACH, MAX_LITERAL_DIAGONALS)
"""Column minus row of every diagonal: the program is for patterns with just these."""


def streamed(**more: ParameterSpec) -> dict[str, ParameterSpec]:
    """What nearly every family ends with: how the matrix is read, registers, `more`, and when it starts."""
    return {"load": LOAD, "registers": REGISTERS, **more, "dependency": DEPENDENCY}
