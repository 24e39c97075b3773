"""Columns of 18 or 20 bits: 16 in one array, the others of some slots of a lane side by side in a byte.

A lane that reads its slots in one go reads their high bits in one go too, and nothing depends on a base: what 16 bits
do not reach costs a quarter or half a byte a slot instead of two.
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from sparsesmith.errors import InvalidProgram
from sparsesmith.formats.format import Argument, ParameterValue
from sparsesmith.matrix.pattern import Int32Array

HIGH_BITS: Mapping[ParameterValue, int] = {"u18": 2, "u20": 4}
"""Bits beyond 16 by value of `index`."""

LANES = 32

HighBytes = npt.NDArray[np.uint8]


def slots_a_byte(index: ParameterValue) -> int:
    """Slots of a lane whose high bits lie in one byte."""
    return 8 // HIGH_BITS[index]


def high_bits_argument(index: ParameterValue) -> Argument:
    bits, slots = HIGH_BITS[index], slots_a_byte(index)
    return Argument(
        "const unsigned char*",
        "high_bits",
        "index",
        f"column / 65536 of {slots} slots a byte, {bits} bits each, the first lowest: slots {slots} * i to "
        f"{slots} * i + {slots - 1} of lane l of a warp at (warp's first byte) + i * 32 + l; a warp of n slots a lane "
        f"has ceil(n / {slots}) * 32 bytes, warps follow each other",
    )


def high_bytes_of(columns: Int32Array, steps: npt.NDArray[np.integer], index: ParameterValue) -> HighBytes:
    """High bits of the columns of all slots; `steps`: slots of a lane of each warp.

    Raises InvalidProgram where a column takes more bits.
    """
    bits = HIGH_BITS[index]
    check_reach(int(columns.max(initial=0)), index)
    byte, shift, num_bytes = _bytes_of_steps(steps, index)
    high = (columns >> 16).astype(np.uint8).reshape(-1, LANES)
    stored = np.zeros((num_bytes, LANES), np.uint8)
    for first in range(0, 8, bits):
        own = np.flatnonzero(shift == first)
        stored[byte[own]] |= high[own] << np.uint8(first)
    return stored.reshape(-1)


def check_reach(largest: int, index: ParameterValue) -> None:
    """Raises InvalidProgram where the largest column takes more bits."""
    limit = 2 ** (16 + HIGH_BITS[index])
    if largest >= limit:
        raise InvalidProgram(
            f"format row_bins: index={index} needs the columns in use within {limit}, found {largest + 1}",
            field="index",
            value=largest + 1,
            limit=limit,
        )


def with_high_bits(
    low: Int32Array, stored: HighBytes, steps: npt.NDArray[np.integer], index: ParameterValue
) -> Int32Array:
    """The columns of all slots from their low 16 bits: the inverse of `high_bytes_of`."""
    byte, shift, _ = _bytes_of_steps(steps, index)
    high = stored.reshape(-1, LANES)[byte] >> shift[:, None] & np.uint8(2 ** HIGH_BITS[index] - 1)
    columns: Int32Array = low | high.reshape(-1).astype(np.int32) << 16
    return columns


def _bytes_of_steps(
    steps: npt.NDArray[np.integer], index: ParameterValue
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8], int]:
    """For each step of each warp its byte of a lane and its first bit there; and the bytes of a lane in all."""
    slots = slots_a_byte(index)
    widths = -(-steps.astype(np.int64) // slots)
    within = np.arange(int(steps.sum())) - np.repeat(np.cumsum(steps) - steps, steps)
    byte = np.repeat(np.cumsum(widths) - widths, steps) + within // slots
    return byte, (within % slots * HIGH_BITS[index]).astype(np.uint8), int(widths.sum())
