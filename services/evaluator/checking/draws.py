"""Inputs that a kernel is checked with: values of A and a dense operand, drawn from the operating system's randomness.

What it does not protect against: a program that is right for every distribution below and wrong for another. The
draws differ in kind so that the usual shortcuts fail on one of them at least: skipped entries (one_hot), lost
precision (wide_range, one_hot), a result that is only nearly right (cancelling), wrong order, repetition, a few
products of a long row left out (integers: exact).

A program that tells the kind by some of its entries must not find one that it may treat lightly. So the first draw, on
which programs are also timed, is `mixed`: nothing but uniform numbers in [-1, 1] to anybody who looks at some of them,
but columns of x differ in size, a quarter of the rows has values that make up for it (an entry of x rounded to few
bits where it is small is seen there), and in another quarter one product is all of the sum (rounding it is seen).
"""

import os
from collections.abc import Callable, Mapping
from math import frexp
from typing import Any

import numpy as np
import numpy.typing as npt

from services.evaluator.device import Draw
from sparsesmith.elements import ELEMENTS, dtype_of
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.matrix.values import FixedValues
from sparsesmith.operations import operation_named
from sparsesmith.operations.operation import Expected, operands_with_role
from sparsesmith.operations.sums import limit_to_exact_sums, limit_to_single_products
from sparsesmith.program.binding import problem_sizes
from sparsesmith_proto.kernel import Workload
from sparsesmith_proto.message import ElementType

FloatArray = npt.NDArray[np.float64]

INTEGERS = "integers"
"""The draw whose products and sums are exact."""

MIXED = "mixed"
"""The draw that programs are timed on; see above."""

MIN_DRAWS = 2
"""Fewer are never drawn, however large the matrix."""

FULL_CHECK = 10
"""Executions of the program when all five draws are used, each twice."""


MAX_SCALE_EXPONENT = 60
"""Beyond 2**60 a dense operand is not scaled: it would not be representable in float32 after the draw's own range."""


def system_generator() -> np.random.Generator:
    """A generator seeded with 256 bits of the operating system's randomness."""
    return np.random.Generator(np.random.PCG64(int.from_bytes(os.urandom(32), "little")))


def choose_draws(num_products: int, max_products: int, generator: np.random.Generator) -> tuple[str, ...]:
    """Names of the draws for a workload of `num_products` multiply-adds: all five where the device affords it.

    A device that affords fewer than FULL_CHECK executions (the interpreter on a large matrix) gets `mixed` and a
    random choice of the others, MIN_DRAWS in all at least.
    """
    affordable = max_products // max(num_products, 1)
    if affordable >= FULL_CHECK:
        return CHECKED_DRAWS
    num_others = max(MIN_DRAWS, min(len(CHECKED_DRAWS), affordable // 2)) - 1
    return (MIXED, *generator.choice(CHECKED_DRAWS[1:], size=num_others, replace=False).tolist())


def draw(
    name: str,
    pattern: Pattern,
    workload: Workload,
    generator: np.random.Generator,
    fixed: FixedValues | None = None,
) -> Draw:
    """One set of inputs of a kind with its reference and error bound, as host arrays.

    `fixed`: the values of A where the request fixes them; then the dense operand alone is drawn.
    """
    operation = operation_named(workload.operation)
    (given,) = operands_with_role(operation, "input")
    (wanted,) = operands_with_role(operation, "output")
    shape = given.shape(problem_sizes(workload, pattern))
    wide_values, wide_dense = _DRAWS[name](pattern, shape, workload.element_type, generator)
    dtype = dtype_of(workload.element_type)
    values = wide_values.astype(dtype) if fixed is None else fixed.array
    wide_dense *= 1.0 if fixed is None else dense_scale(fixed)

    def expected_of(dense: npt.NDArray[Any]) -> Expected:
        inputs = {"values": values, given.name: dense}
        return operation.expect(pattern, inputs, workload.element_type)[wanted.name]

    dense = wide_dense.astype(dtype)
    expected = expected_of(dense)
    shrunk = result_scale(expected.magnitude, workload.element_type)
    if shrunk < 1:
        dense = (wide_dense * shrunk).astype(dtype)
        expected = expected_of(dense)
    bound, magnitude = expected.bound, expected.magnitude
    if fixed is not None:
        bound += underflow_bound(pattern, fixed, workload.element_type)
    elif operation.sums_products:
        limit_to_single_products(bound, magnitude, pattern, values, dense, workload.element_type)
        if name == INTEGERS and shrunk == 1:
            limit_to_exact_sums(bound, magnitude, workload.element_type)
    return Draw(name, values, dense, expected.reference, bound, magnitude, output=wanted.name)


def dense_scale(fixed: FixedValues) -> float:
    """A power of two that brings dense operands to where products with these values neither overflow nor vanish."""
    largest = float(np.abs(fixed.array).max(initial=0))
    return 2.0 ** -min(max(frexp(largest)[1], -MAX_SCALE_EXPONENT), MAX_SCALE_EXPONENT)


def result_scale(magnitude: FloatArray, element_type: ElementType) -> float:
    """A power of two that brings results to where the element type holds them: float16 ends at 65504."""
    largest = LARGEST_RESULT.get(element_type)
    if largest is None or not magnitude.size or magnitude.max() <= largest:
        return 1.0
    return 2.0 ** -frexp(float(magnitude.max()) / largest)[1]


def underflow_bound(pattern: Pattern, fixed: FixedValues, element_type: ElementType) -> float:
    """What products that underflow may lose in the longest row: fixed values may be small next to the largest."""
    sums = dtype_of(ELEMENTS[element_type].sums)
    return float(np.finfo(sums).tiny) * int(pattern.row_lengths.max())


Shape = tuple[int, ...]
Pair = tuple[FloatArray, FloatArray]
Drawing = Callable[[Pattern, Shape, ElementType, np.random.Generator], Pair]


def _uniform(pattern: Pattern, shape: Shape, _: ElementType, generator: np.random.Generator) -> Pair:
    return generator.uniform(-1, 1, pattern.nnz), generator.uniform(-1, 1, shape)


COLUMN_SIZES = (1.0, 1.0, 2.0**-7, 2.0**-14)
"""Of the columns of a mixed draw, each as often."""

TINY: dict[ElementType, float] = {"float32": 2.0**-60, "float64": 2.0**-100, "float16": 0.0, "bfloat16": 2.0**-60}
"""What a mixed draw multiplies the values of a row by, all but one, where that one is to be the sum."""

WIDE_DECADES: dict[ElementType, float] = {"float32": 6, "float64": 6, "float16": 2, "bfloat16": 6}
"""Of the draw `wide_range`, each way from 1."""

LARGEST_RESULT: dict[ElementType, float] = {"float16": 2.0**14}
"""Of |A| |x|, where results might not be held otherwise."""


def mixed(pattern: Pattern, shape: Shape, element_type: ElementType, generator: np.random.Generator) -> Pair:
    """See above: rows of three kinds (evened out, one product, and as they are), columns of three sizes."""
    values, dense = _uniform(pattern, shape, element_type, generator)
    sizes = generator.choice(COLUMN_SIZES, pattern.num_cols)
    dense *= sizes.reshape((-1,) + (1,) * (len(shape) - 1))
    kinds = np.repeat(generator.integers(0, 4, pattern.num_rows), pattern.row_lengths)
    is_even, is_single = kinds == 0, kinds == 1
    values[is_even] *= min(COLUMN_SIZES) / sizes[pattern.col_indices[is_even]]
    is_kept = np.zeros(pattern.nnz, dtype=bool)
    offsets = generator.integers(0, np.maximum(pattern.row_lengths, 1))
    is_kept[(pattern.row_offsets[:-1] + offsets)[pattern.row_lengths > 0]] = True
    values[is_single & ~is_kept] *= TINY[element_type]
    kept = values[is_single & is_kept]
    values[is_single & is_kept] = 0.5 * kept + np.copysign(0.5, kept)
    return values, dense


def _one_hot(pattern: Pattern, shape: Shape, _: ElementType, generator: np.random.Generator) -> Pair:
    """Each dense column picks out one column of A that has a nonzero."""
    dense = np.zeros(shape)
    num_dense_cols = shape[1] if len(shape) == 2 else 1
    hot = pattern.col_indices[generator.integers(pattern.nnz, size=num_dense_cols)]
    dense.reshape(-1, num_dense_cols)[hot, np.arange(num_dense_cols)] = generator.uniform(1, 2, num_dense_cols)
    return generator.uniform(-1, 1, pattern.nnz), dense


def _cancelling(pattern: Pattern, shape: Shape, _: ElementType, generator: np.random.Generator) -> Pair:
    """Neighbours in a row cancel but for a thousandth."""
    values = generator.uniform(0.5, 1, pattern.nnz)
    values[1::2] = -values[: values.size - values.size % 2 : 2]
    return values, 1 + 1e-3 * generator.uniform(-1, 1, shape)


def _wide_range(pattern: Pattern, shape: Shape, element_type: ElementType, generator: np.random.Generator) -> Pair:
    """Both signs, magnitudes from 1e-6 to 1e6 (float16: 1e-2 to 1e2), evenly in the logarithm."""
    decades = WIDE_DECADES[element_type]

    def wide(extent: Shape) -> FloatArray:
        return generator.choice([-1.0, 1.0], extent) * 10 ** generator.uniform(-decades, decades, extent)

    return wide((pattern.nnz,)), wide(shape)


def _integers(pattern: Pattern, shape: Shape, _: ElementType, generator: np.random.Generator) -> Pair:
    """Ones, twos and threes: every product and most sums are exact."""
    return generator.integers(1, 4, pattern.nnz).astype(np.float64), generator.integers(1, 4, shape).astype(np.float64)


_DRAWS: Mapping[str, Drawing] = {
    MIXED: mixed,
    "uniform": _uniform,
    "one_hot": _one_hot,
    "cancelling": _cancelling,
    "wide_range": _wide_range,
    INTEGERS: _integers,
}

CHECKED_DRAWS = (MIXED, "one_hot", "cancelling", "wide_range", INTEGERS)
"""What programs are checked with, the first also what they are timed on."""
