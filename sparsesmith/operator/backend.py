"""Who computes products: SciPy on the host, the tuned kernel on a GPU."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Scale:
    """out = alpha A x + beta out. With beta 0 what `out` holds is not read."""

    alpha: float = 1.0
    beta: float = 0.0

    @property
    def is_plain(self) -> bool:
        return self is PLAIN or self == PLAIN


PLAIN = Scale()

BoundProduct = Callable[[Any, Any, Scale], Any]
"""Of x, out and their scale; gives out back."""


class Backend(Protocol):
    """Products with one matrix both ways, in its element type."""

    def product(self, x: Any, out: Any, scale: Scale, *, transposed: bool) -> Any:
        """A x or A^T x, scaled, as an array of x's kind, of one dimension or two as x has.

        x has a right shape and holds real numbers. `out`: None, or an array that x may be written to without a copy of
        either; it is what is given back then.
        """
        ...

    def bound(self, x: Any, out: Any, *, transposed: bool) -> BoundProduct:
        """The product of arrays like these, which differ from them in where they lie only. What the likeness decides
        is decided here, once. Of arrays that overlap it raises InvalidInput."""
        ...

    def set_values(self, values: Any) -> None:
        """Values of all nonzeros, rows in order, columns ascending; of any kind of array and of any real type."""
        ...

    def values(self) -> npt.NDArray[np.floating[Any]]:
        """Those that it multiplies with, on the host."""
        ...

    @property
    def device_bytes(self) -> int:
        """Memory of a GPU that it holds."""
        ...


class OneWay(Protocol):
    """Products with A, or with A^T, on a GPU: of contiguous CuPy arrays of the shapes that the kernel is for."""

    def multiply(self, operand: Any, result: Any) -> None:
        """On CuPy's current stream."""
        ...

    def set_values(self, values: Any) -> None:
        """In its own CSR order, or in that of A where it was made so; a CuPy array of the element type."""
        ...

    def values(self) -> npt.NDArray[np.floating[Any]]:
        """The present ones, on the host."""
        ...

    @property
    def device_bytes(self) -> int:
        """Memory that it holds."""
        ...
