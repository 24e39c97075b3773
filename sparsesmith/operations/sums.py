"""Sums of products: the result a kernel must reach (SciPy in float64), and how far from it rounding may lead."""

from typing import Any

import numpy as np
import numpy.typing as npt

from sparsesmith.elements import ELEMENTS
from sparsesmith.matrix.pattern import Pattern
from sparsesmith_proto.message import ElementType

Float64Array = npt.NDArray[np.float64]

ROUNDOFF: dict[ElementType, float] = {
    "float32": 2.0**-24,
    "float64": 2.0**-53,
    "float16": 2.0**-11,
    "bfloat16": 2.0**-8,
}
"""u: the most by which rounding to nearest changes a number, as a share of it."""

PROBABLE_ROUNDOFFS = 1e-5 / 2.0**-24
"""Error of a sum in u that is accepted of rows up to LONG_ROW nonzeros: 168, five times sqrt(LONG_ROW)."""

TOLERANCES: dict[ElementType, float] = {
    name: PROBABLE_ROUNDOFFS * ROUNDOFF[element.sums] for name, element in ELEMENTS.items()
}
"""Accepted |y - y_ref| / (|A| |x|) of a sum over rows up to LONG_ROW nonzeros: 1e-5 and 1.9e-14."""

LONG_ROW = 1024
"""Longer rows are allowed more, with the square root of their length."""

SINGLE_ROUNDOFFS = 8
"""Error in u that is accepted of a sum of which all but one product together are below its roundoff."""

_RESOLVED = 4e-16
"""Shares of a float64 sum below this cannot be told from zero."""


def product(pattern: Pattern, values: npt.NDArray[Any], dense: npt.NDArray[Any]) -> tuple[Float64Array, Float64Array]:
    """(A x, |A| |x|) in float64. `values` [nnz] in CSR order, `dense` [num_cols] or [num_cols, num_dense_cols]."""
    wide_values = values.astype(np.float64)
    wide_dense = dense.astype(np.float64)
    matrix = pattern.to_scipy(wide_values)
    magnitude = pattern.to_scipy(np.abs(wide_values))
    return matrix @ wide_dense, magnitude @ np.abs(wide_dense)


def limit_to_single_products(
    bound: Float64Array,
    magnitude: Float64Array,
    pattern: Pattern,
    values: npt.NDArray[Any],
    dense: npt.NDArray[Any],
    element_type: ElementType,
) -> None:
    """Lowers bounds of A x in place where one product is all of a sum (`limit_to_largest`)."""
    if ELEMENTS[element_type].sums == element_type:
        squares, _ = product(pattern, np.square(values, dtype=np.float64), np.square(dense, dtype=np.float64))
        limit_to_largest(bound, magnitude, squares, element_type)


def limit_to_largest(
    bound: Float64Array, magnitude: Float64Array, squares: Float64Array, element_type: ElementType
) -> None:
    """Lowers bounds of sums of products in place where one product is all of a sum. `squares`: sums of their squares.

    Where the other products together are below its roundoff, every order of summing rounds it once, and loses no more
    than the others: a program that keeps fewer bits of A or x than their type has is seen there. How much one product
    outweighs the others is told by the sum of squares: equal to the square of the sum only where there is one.
    Results of 16 bits are held to their own roundoff everywhere (`stored_bound`).
    """
    if ELEMENTS[element_type].sums != element_type:
        return
    share = 2 * max(ROUNDOFF[element_type], _RESOLVED)
    is_single = squares >= (1 - share) * magnitude**2
    bound[is_single] = SINGLE_ROUNDOFFS * ROUNDOFF[element_type] * magnitude[is_single]


LARGEST_EXACT: dict[ElementType, int] = {"float32": 2**24, "float64": 2**53, "float16": 2**11, "bfloat16": 2**8}
"""Integers up to here are exact, and so are sums of integers in any order whose magnitudes stay within it."""


def limit_to_exact_sums(bound: Any, magnitude: Any, element_type: ElementType) -> None:
    """For inputs of integers: lowers bounds in place to a half, where no order of summing rounds.

    The bound of a long row is wider than a product or two that were left out. Arrays of NumPy or CuPy.
    """
    bound[(magnitude < LARGEST_EXACT[element_type]) & (bound > 0.5)] = 0.5


def error_bound(pattern: Pattern, magnitude: Float64Array, element_type: ElementType) -> Float64Array:
    """The largest |y - y_ref| that is accepted, componentwise, of the shape of `magnitude`.

    tol * max(1, sqrt(row length / LONG_ROW)) * (|A| |x|). Summing n products in any order is off by at most
    n u (|A| |x|) (Higham, Accuracy and Stability, section 3.1), with u the unit roundoff, and with high probability by
    lambda sqrt(n) u (|A| |x|) (Higham and Mary 2019). The worst case would accept a row of a million entries that is
    wrong in the second digit, so the probable bound is taken: the tolerance is 168 u, which is lambda = 5.2 at n = 1024
    and the same lambda for every longer row. A product rounded to tf32 or 16 bits is off by 4,000 u of float32.
    """
    scale = np.sqrt(np.maximum(pattern.row_lengths / LONG_ROW, 1.0)) * TOLERANCES[element_type]
    bound: Float64Array = magnitude * scale.reshape((-1,) + (1,) * (magnitude.ndim - 1))
    return bound


_HALF_STEP: dict[ElementType, float] = {"float16": 2.0**-25, "bfloat16": 2.0**-134}
"""The most by which rounding changes a number below the type's normal ones."""


def stored_rounding(element_type: ElementType) -> tuple[float, float]:
    """What a sum may lose when it is stored: its share u, and at least so much; nothing in the type of sums."""
    if ELEMENTS[element_type].sums == element_type:
        return 0.0, 0.0
    return ROUNDOFF[element_type], _HALF_STEP[element_type]


def stored_bound(bound: Float64Array, reference: Float64Array, element_type: ElementType) -> Float64Array:
    """The bound of a sum with what it may lose when it is stored, of the same shape.

    A sum within `bound` of y_ref that is rounded once to a type of unit roundoff u is off by at most
    bound + u (|y_ref| + bound), or half a step of the type's subnormal numbers. Types that are summed as they are
    stored have their last rounding within `bound`.
    """
    if ELEMENTS[element_type].sums == element_type:
        return bound
    share, least = stored_rounding(element_type)
    rounding = np.maximum(share * (np.abs(reference) + bound), least)
    stored: Float64Array = bound + np.where(bound > 0, rounding, 0.0)
    return stored
