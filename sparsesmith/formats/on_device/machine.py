"""What runs the kernels of `kernels.cu`: a GPU, or an interpreter of their PTX."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

SOURCE = Path(__file__).with_name("kernels.cu")
BLOCK = 256
"""Threads of every block."""
WARP = 32

DeviceArray = Any
"""An array in the machine's memory, one-dimensional and contiguous; it knows its `dtype`, `size` and `nbytes`,
and parts of it are had by slices."""


class Machine(Protocol):
    """Everything happens in the order in which it was asked for."""

    def upload(self, array: npt.NDArray[np.generic]) -> DeviceArray: ...

    def empty(self, length: int, dtype: type[np.generic]) -> DeviceArray:
        """Holding anything."""
        ...

    def download(self, array: DeviceArray) -> npt.NDArray[Any]:
        """After everything that was asked for before."""
        ...

    def launch(self, kernel: str, num_threads: int, arguments: Sequence[DeviceArray | int]) -> None:
        """As many blocks as it takes; whole numbers are handed over as `int`."""
        ...


@dataclass(frozen=True, eq=False)
class DeviceCsr:
    """A pattern in the machine's memory."""

    num_rows: int
    num_cols: int
    nnz: int
    row_offsets: DeviceArray
    """int32, shape [num_rows + 1]."""
    col_indices: DeviceArray
    """int32, ascending within a row, shape [nnz]."""


FEW = 4096
"""So many zeros are uploaded; more are written where they are wanted."""


def zeros(machine: Machine, length: int, dtype: type[np.generic] = np.int32) -> DeviceArray:
    if length <= FEW or dtype is not np.int32:
        return machine.upload(np.zeros(length, dtype))
    numbers = machine.empty(length, dtype)
    machine.launch("set_all", length, (numbers, length, 0))
    return numbers
