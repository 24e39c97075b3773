"""The arrays and sizes that kernels of an operation get beside the stored matrix."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import numpy as np

from sparsesmith.elements import ELEMENTS, dtype_of
from sparsesmith.formats.format import Argument, Role
from sparsesmith_proto.message import ElementType

Dtype = Literal["T", "int32"]
"""Of an operand. `T`: the request's element type."""

C_TYPES: Mapping[Dtype, str] = {"T": "T", "int32": "int"}
"""As signatures spell them; `T` is filled in later."""

Sizes = Mapping[str, int]
"""Every size of a problem by name: num_rows, num_cols, nnz, what the request names, what the format adds."""


@dataclass(frozen=True)
class Operand:
    """One argument of every kernel of an operation, in order behind the format's own."""

    name: str
    role: Role
    axes: tuple[str, ...] = ()
    """Its shape, row-major, by names of sizes; empty for a size."""
    dtype: Dtype = "T"
    meaning: str = ""
    """One sentence: contents and order."""

    def shape(self, sizes: Sizes) -> tuple[int, ...]:
        return tuple(sizes[axis] for axis in self.axes)

    def num_elements(self, sizes: Sizes) -> int:
        return prod(self.shape(sizes))

    def num_bytes(self, sizes: Sizes, element_type: ElementType) -> int:
        """Device memory."""
        width = ELEMENTS[element_type].num_bytes if self.dtype == "T" else np.dtype(self.dtype).itemsize
        return self.num_elements(sizes) * width

    def array_type(self, element_type: ElementType) -> "np.dtype[Any]":
        """Of its elements in host memory."""
        return dtype_of(element_type) if self.dtype == "T" else np.dtype(self.dtype)

    @property
    def argument(self) -> Argument:
        """As it stands in a kernel's signature."""
        match self.role:
            case "size":
                return Argument("int", self.name, "size", self.meaning)
            case "input" | "index" | "values":
                return Argument(f"const {C_TYPES[self.dtype]}*", self.name, self.role, self.meaning)
            case "inout" | "output" | "scratch":
                return Argument(f"{C_TYPES[self.dtype]}*", self.name, self.role, self.meaning)
