"""Sums and a stable sort in the machine's memory."""

import numpy as np

from sparsesmith.formats.on_device.machine import BLOCK, WARP, DeviceArray, Machine

CHUNK = 1024
DIGITS = 16
DIGIT_BITS = 4
"""As in `kernels.cu`."""


def exclusive_sums(machine: Machine, numbers: DeviceArray, length: int) -> DeviceArray:
    """Of what stands before each number; they must fit 32 bits."""
    num_blocks = -(-length // BLOCK)
    sums, block_sums = machine.empty(length, np.int32), machine.empty(num_blocks, np.int32)
    machine.launch("scan_blocks", length, (numbers, length, sums, block_sums))
    if num_blocks > 1:
        machine.launch("add_block_sums", length, (sums, length, exclusive_sums(machine, block_sums, num_blocks)))
    return sums


def counted_up(machine: Machine, length: int) -> DeviceArray:
    """0, 1, 2, ..."""
    numbers = machine.empty(length, np.int32)
    machine.launch("count_up", length, (numbers, length))
    return numbers


def sorted_by(machine: Machine, keys: DeviceArray, length: int, largest_key: int) -> DeviceArray:
    """Elements by ascending keys (none negative); equal ones keep their order."""
    order = counted_up(machine, length)
    num_chunks = -(-length // CHUNK)
    for shift in range(0, largest_key.bit_length(), DIGIT_BITS):
        counts = machine.empty(DIGITS * num_chunks, np.int32)
        machine.launch("count_digits", WARP * num_chunks, (keys, order, length, shift, num_chunks, counts))
        starts = exclusive_sums(machine, counts, DIGITS * num_chunks)
        placed = machine.empty(length, np.int32)
        machine.launch("place_by_digit", WARP * num_chunks, (keys, order, length, shift, num_chunks, starts, placed))
        order = placed
    return order
