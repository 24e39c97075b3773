"""What is said of a wrong product, so that one run tells why: where it is wrong and by how much, and what comes of reading
it again, of another run, of one over NaN, of a captured one.

What was read too early is right when it is read again; where a first run differs from later ones, or a launched one from a
captured one, the later or the captured one is right; what adds to a result that nobody cleared gives NaN over NaN; what the
library found out beforehand is found out again, from values that are put in place again: where that alone is right, these
were not there.
"""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from benchmarks.solvers.products import Arrays, Product

Numbers = npt.NDArray[np.floating[Any]]


@runtime_checkable
class Renewable(Protocol):
    """A product whose preparation may hold what was there when it was made."""

    def renew(self) -> None:
        """Prepares it again."""
        ...


SLIGHT = 1e-3
"""Errors up to this share of the largest |A| |x| are not counted."""


def words_of(
    product: Product, result: Any, found: Numbers, given: Numbers, expected: Numbers, sizes: Numbers, arrays: Arrays
) -> str:
    """`result`: where the product of `given` lies; `found`: what was read there. `sizes`: |A| |x|. It is run again."""

    def after(step: Callable[[], object]) -> str:
        step()
        arrays.wait()
        return f"off by {off_by(on_host(result), expected, sizes):.2g}"

    def over_nan(run: Callable[[], object]) -> None:
        result.fill(np.nan)
        arrays.wait()
        run()

    said = [
        _place_of(found, expected, sizes),
        f"x lies there as it was given: {'yes' if (on_host(product.given) == given).all() else 'no'}",
        f"read again {after(lambda: None)}",
        f"run again {after(product.run)}",
        f"over NaN {after(lambda: over_nan(product.run))}",
    ]
    if isinstance(product, Renewable):
        product.renew()
        said.append(f"prepared anew {after(product.run)}")
    launch = arrays.captured(product.run)
    if launch is not None:
        said.append(f"captured, over NaN {after(lambda: over_nan(launch))}")
    return "; ".join(said)


def _place_of(found: Numbers, expected: Numbers, sizes: Numbers) -> str:
    errors = np.abs(found - expected)
    worst = int(np.argmax(np.where(np.isnan(errors), np.inf, errors)))
    wrong = int((~(errors <= SLIGHT * sizes.max())).sum())
    shown = f"[{worst}] is {found[worst]:.6g}, expected {expected[worst]:.6g} where |A| |x| is {sizes[worst]:.4g}"
    return f"{wrong} of {found.size} entries, {shown}"


def off_by(found: Numbers, expected: Numbers, sizes: Numbers) -> float:
    """The largest error of an entry, relative to the largest |A| |x|."""
    return float(np.abs(found - expected).max() / sizes.max())


def on_host(array: Any) -> Any:
    """Of NumPy, wherever it lies."""
    return array.get() if hasattr(array, "get") else array
