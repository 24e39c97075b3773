"""The arrays and sizes that kernels of an operation get beside the stored matrix."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from sparsesmith.formats.format import Argument, Role

Sizes = Mapping[str, int]
"""Every size of a problem by name: num_rows, num_cols, nnz, what the request names, what the format adds."""


@dataclass(frozen=True)
class Operand:
    """One argument of every kernel of an operation, in order behind the format's own."""

    name: str
    role: Role
    axes: tuple[str, ...] = ()
    """Its shape, row-major, by names of sizes; empty for a size."""
    dtype: str = "T"
    """`T`: the request's element type."""
    meaning: str = ""
    """One sentence: contents and order."""

    def shape(self, sizes: Sizes) -> tuple[int, ...]:
        return tuple(sizes[axis] for axis in self.axes)

    def num_elements(self, sizes: Sizes) -> int:
        return prod(self.shape(sizes))

    @property
    def argument(self) -> Argument:
        """As it stands in a kernel's signature."""
        match self.role:
            case "size":
                return Argument("int", self.name, "size", self.meaning)
            case "input" | "index" | "values":
                return Argument(f"const {self.dtype}*", self.name, self.role, self.meaning)
            case "inout" | "output" | "scratch":
                return Argument(f"{self.dtype}*", self.name, self.role, self.meaning)
