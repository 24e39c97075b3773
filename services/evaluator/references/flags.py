"""Why the results of an imported task say little, whatever computes them: what KernelBench's filtered lists look for.

Of 1,000 problems that models were trained on, those whose outputs hardly change are solved by constants.
"""

from collections.abc import Iterator

import numpy as np

from sparsesmith.operations.operation import Float64Array

SMALL = 1e-2
"""What KernelBench's tolerance of float16 takes for nothing."""


def flags_of(name: str, first: Float64Array, second: Float64Array) -> Iterator[str]:
    """Of one output for two draws of inputs of the suite's own."""
    finite = np.isfinite(first) & np.isfinite(second)
    if not finite.any():
        yield f"{name}: no result is finite"
        return
    sizes, size = np.abs(first[finite]), float(np.abs(first[finite]).max())
    if size < SMALL:
        yield f"range: {name} is never above {size:.3g} in size"
    if first.size > 1 and float(np.std(first[finite])) < SMALL * max(1.0, size):
        yield f"spread: entries of {name} differ by {np.std(first[finite]):.3g}, as a standard deviation"
    if axes := [axis for axis in range(first.ndim) if _is_alike(first, axis)]:
        yield f"axes: {name} hardly changes along {', '.join(map(str, axes))}"
    change = float(np.abs(first[finite] - second[finite]).max())
    if change <= SMALL * float(sizes.mean()):
        yield f"input: {name} differs by {change:.3g} at most for other inputs"


def _is_alike(array: Float64Array, axis: int) -> bool:
    if array.shape[axis] < 2:
        return False
    with np.errstate(invalid="ignore"):
        reach = array.max(axis=axis) - array.min(axis=axis)
    return bool((reach <= SMALL * max(1.0, float(np.nanmax(np.abs(array))))).all())
