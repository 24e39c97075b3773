"""A decoded kernel: what the machine runs, and where its variables are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from services.evaluator.interpreter.ptx.parsing import Variable


@dataclass(frozen=True)
class SharedArray:
    """A static shared array: name, offset in the block's shared memory, size in bytes."""

    name: str
    offset: int
    size_bytes: int


@dataclass(frozen=True)
class DecodedKernel:
    """A kernel ready to run: code (instructions x columns), constants and the sizes of its memories."""

    name: str
    parameters: tuple[Variable, ...]
    parameter_offsets: tuple[int, ...]
    parameter_bytes: int
    max_threads: int | None
    code: NDArray[np.int64]
    mnemonics: tuple[str, ...]
    register_bytes: int
    """Register file of one warp."""
    constants: tuple[tuple[int, int, int], ...]
    """(row offset, bytes of a lane, or 0 for a predicate word, value) of every constant row."""
    shared_arrays: tuple[SharedArray, ...]
    static_shared_bytes: int
    """Bytes that the arrays of the program take (as the compiler lays them out, without red zones)."""
    dynamic_shared_offset: int
    local_bytes: int
    """Local memory of one thread."""
