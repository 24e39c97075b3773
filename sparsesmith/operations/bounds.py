"""What rounding may do to results of tasks, in float64."""

import numpy as np

from sparsesmith.operations.operation import Array, Expected, Float64Array
from sparsesmith.operations.sums import LONG_ROW, ROUNDOFF, TOLERANCES, limit_to_exact_sums
from sparsesmith_proto.message import ElementType


def exact(reference: Array) -> Expected:
    """Nothing is rounded: every entry is what it is, NaN and infinity too."""
    wide = np.array(reference, np.float64)
    return Expected(wide, np.where(np.isfinite(wide), np.abs(wide), 0.0), np.zeros_like(wide))


def rounded(reference: Array, element_type: ElementType, roundoffs: float | Array) -> Expected:
    """Each entry is found by itself, within so many u of it; numbers too small to be normal may be lost."""
    wide = np.array(reference, np.float64)
    magnitude = np.where(np.isfinite(wide), np.abs(wide), 0.0)
    bound = roundoffs * ROUNDOFF[element_type] * magnitude + smallest(element_type)
    return Expected(wide, magnitude, bound)


def summed(terms: Array, element_type: ElementType) -> Expected:
    """Their sum, in any order (`sums.error_bound`); of whole numbers, where no order rounds, the sum itself."""
    wide = terms.astype(np.float64, copy=False)
    size = np.array(np.abs(wide).sum())
    found = scaled(wide.sum(), size, 0.0, wide.size, element_type)
    if bool((wide == np.rint(wide)).all()):
        limit_to_exact_sums(found.bound, size, element_type)
    return found


def scaled(
    reference: Float64Array | float,
    magnitude: Float64Array | float,
    roundoffs: Float64Array | float,
    length: int | Array,
    element_type: ElementType,
) -> Expected:
    """Sums of `length` terms whose sizes add up to the magnitude, in any order; the terms themselves are off by so many
    u, as a share of it."""
    size = np.array(magnitude, np.float64)
    share = summing_share(length, element_type) + roundoffs * ROUNDOFF[element_type]
    bound = np.array(size * share + smallest(element_type))
    return Expected(np.array(reference, np.float64), size, bound)


def summing_share(length: int | Array, element_type: ElementType) -> Float64Array:
    """What a sum of so many terms may lose, as a share of the sum of their sizes (`sums.error_bound`)."""
    share: Float64Array = TOLERANCES[element_type] * np.sqrt(np.maximum(np.divide(length, LONG_ROW), 1.0))
    return share


def smallest(element_type: ElementType) -> float:
    """The smallest normal number: what is below it may be lost."""
    return float(np.finfo(element_type).tiny)
