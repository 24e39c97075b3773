"""Inputs that a kernel is checked with, drawn from the operating system's randomness: those that the operation names,
else those that suit most. What follows is of products of A with one dense operand.

What it does not protect against: a program that is right for every distribution below and wrong for another. The
draws differ in kind so that the usual shortcuts fail on one of them at least: skipped entries (one_hot), lost
precision (wide_range, one_hot), a result that is only nearly right (cancelling), wrong order, repetition, a few
products of a long row left out (integers: exact).

A program that tells the kind by some of its entries must not find one that it may treat lightly. So the first draw, on
which programs are also timed, is `mixed`: nothing but uniform numbers in [-1, 1] to anybody who looks at some of them,
but columns of x differ in size, a quarter of the rows has values that make up for it (an entry of x rounded to few
bits where it is small is seen there, and so are products that were left out: all have one sign), and in an eighth one
product is all of the sum (rounding it is seen). An eighth of the columns are as small as the values that do not count
in such a sum: there, and where values make up for it, the same small numbers are all that there is, so that neither
they nor the entries that they meet may be left out. Numbers of `wide_range` are mixed, too, with an eighth of columns
so large that tiny values count there, whatever the sum before them: in rows which look as if one product were all.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import frexp
from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt

from services.evaluator.device import VALUES, Draw
from sparsesmith.elements import ELEMENTS, dtype_of
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.matrix.values import FixedValues
from sparsesmith.operations import Operand, Problem
from sparsesmith.operations.draws import GENERAL, inputs_of
from sparsesmith.operations.operation import Arrays, Expected, Judging, Residual, operands_with_role
from sparsesmith.operations.product import TransposedProduct, of_copy, of_stored
from sparsesmith.operations.scaled import ScaledProduct
from sparsesmith.operations.sums import limit_to_exact_sums, limit_to_single_products
from sparsesmith_proto.message import ElementType

FloatArray = npt.NDArray[np.float64]

INTEGERS = "integers"
"""The draw whose products and sums are exact."""

MIXED = "mixed"
"""The draw that programs are timed on; see above."""

WIDE_RANGE = "wide_range"
"""The draw with numbers of all sizes."""

MIN_DRAWS = 2
"""Fewer are never drawn, however large the matrix."""

MAX_DRAWN = 2**30
"""Entries of operands that all draws of a task have together. Made on the host: of larger tasks there are fewer."""

FULL_CHECK = 10
"""Executions of the program when all five draws are used, each twice."""


MAX_SCALE_EXPONENT = 60
"""Beyond 2**60 a dense operand is not scaled: it would not be representable in float32 after the draw's own range."""


def system_generator() -> np.random.Generator:
    """A generator seeded with 256 bits of the operating system's randomness."""
    return np.random.Generator(np.random.PCG64(int.from_bytes(os.urandom(32), "little")))


def most_draws(problem: Problem) -> int:
    """How many draws there are at once at most: of a task MAX_DRAWN entries; those of a matrix are small beside it."""
    everything = max(len(CHECKED_DRAWS), len(kinds_of(problem)))
    if problem.matrix is not None:
        return everything
    return max(MIN_DRAWS, min(everything, MAX_DRAWN // max(problem.num_elements, 1)))


def choose_draws(
    num_products: int,
    max_products: int,
    generator: np.random.Generator,
    names: Sequence[str] | None = None,
    most: int | None = None,
) -> tuple[str, ...]:
    """Names of the draws for a workload of `num_products` multiply-adds: all where the device affords it.

    A device that affords fewer than FULL_CHECK executions (the interpreter on a large matrix) gets the first, which is
    timed, and a random choice of the others, MIN_DRAWS in all at least. `names`: those of the problem (`kinds_of`);
    `most`: no more than so many (`most_draws`).
    """
    known = CHECKED_DRAWS if names is None else tuple(names)
    count = min(len(known) if most is None else most, max_products // max(num_products, 1) // 2)
    if count >= len(known):
        return known
    num_others = max(MIN_DRAWS, count) - 1
    return (known[0], *generator.choice(known[1:], size=min(num_others, len(known) - 1), replace=False).tolist())


def kinds_of(problem: Problem) -> tuple[str, ...]:
    """Names of the draws that programs are checked with; the first is the one that is timed."""
    if problem.operation.draws:
        return tuple(problem.operation.draws)
    return CHECKED_DRAWS if _is_product(problem.unscaled.copied) else tuple(GENERAL)


def draw(name: str, problem: Problem, generator: np.random.Generator) -> Draw:
    """One set of inputs of a kind with what is right of the outputs, as host arrays.

    Where the request fixes the values of A they are not drawn.
    """
    if isinstance(problem.operation, ScaledProduct):
        return _draw_scaled(name, problem, problem.operation, generator)
    if isinstance(problem.operation, TransposedProduct):
        copied = draw(name, problem.copied, generator)
        return replace(copied, inputs=of_stored(problem, copied.inputs))
    drawn = _drawn(name, problem, generator)
    inputs = _rounded(problem, drawn)
    if _is_product(problem) and (shrunk := _shrunk(problem, inputs)) < 1:
        (given,) = operands_with_role(problem.operation, "input", "inout")
        inputs = _rounded(problem, {**drawn, given.name: drawn[given.name] * shrunk})
    operands = {each.name: each for each in problem.operation.operands}
    right = expected_of(name, problem, inputs)
    types = {each: operands[each].array_type(problem.element_type) for each in right["expected"] if each in operands}
    return Draw(name, inputs, types=types, **right)


def draw_inputs(name: str, problem: Problem, generator: np.random.Generator) -> Arrays:
    """Those of `draw` alone; of a task without finding what is right of them."""
    if problem.matrix is None:
        return _rounded(problem, _drawn(name, problem, generator))
    return draw(name, problem, generator).inputs


def _draw_scaled(name: str, problem: Problem, operation: ScaledProduct, generator: np.random.Generator) -> Draw:
    """A draw of the product, and an output to add to whose entries are of the size of what is added."""
    plain = draw(name, problem.unscaled, generator)
    (output,) = (each for each in problem.operation.operands if each.name == operation.output)
    size = np.where(plain.magnitude > 0, plain.magnitude, 1.0)
    before = _in_type(generator.uniform(-1, 1, size.shape) * size, output, problem.element_type)
    inputs = {**plain.inputs, output.name: before}
    return replace(plain, inputs=inputs, **expected_of(name, problem, inputs))


class Right(TypedDict):
    """What a draw says of its outputs."""

    expected: Mapping[str, Expected]
    residuals: Callable[[Arrays], Mapping[str, Residual]] | None


def expected_of(name: str, problem: Problem, inputs: Arrays) -> Right:
    """What is right of the outputs for inputs in the operands' own types, of a kind."""
    operation = problem.operation
    if isinstance(operation, ScaledProduct):
        plain = expected_of(name, problem.unscaled, inputs)["expected"]
        return Right(expected=operation.rescaled(plain, inputs[operation.output], problem.element_type), residuals=None)
    if isinstance(operation, TransposedProduct):
        return expected_of(name, problem.copied, of_copy(problem, inputs))
    expected = operation.expect(problem, inputs)
    if _is_product(problem):
        _limit_product(name, problem, inputs, expected)
    if not isinstance(operation, Judging):
        return Right(expected=expected, residuals=None)
    judging = operation
    return Right(expected=expected, residuals=lambda outputs: judging.residuals(problem, inputs, outputs))


def _shrunk(problem: Problem, inputs: Arrays) -> float:
    """What the dense operand of a product is multiplied by so that results are numbers of the element type."""
    scales = (result_scale(each.magnitude, problem.element_type) for each in _expected(problem, inputs).values())
    return min(scales)


def _expected(problem: Problem, inputs: Arrays) -> Mapping[str, Expected]:
    return problem.operation.expect(problem, inputs)


def input_operands(problem: Problem) -> tuple[Operand, ...]:
    """What is read and is drawn: values of a matrix unless they are fixed, inputs, and what is changed in place."""
    return tuple(each for each in inputs_of(problem) if problem.values is None or each.name != VALUES)


def _is_product(problem: Problem) -> bool:
    """Whether the draws below fit: A takes up the columns of one operand."""
    read = operands_with_role(problem.operation, "input", "inout")
    return problem.matrix is not None and len(read) == 1 and read[0].axes[:1] == ("num_cols",)


def _drawn(name: str, problem: Problem, generator: np.random.Generator) -> Arrays:
    own = problem.operation.draws.get(name)
    if own is not None or not _is_product(problem):
        return (own or GENERAL[name])(problem, generator)
    (given,) = operands_with_role(problem.operation, "input", "inout")
    shape = given.shape(problem.sizes)
    if problem.values is None:
        values, dense = _DRAWS[name](problem.pattern, shape, problem.element_type, generator)
        return {VALUES: values, given.name: dense}
    _, dense = _DRAWS_FOR_FIXED[name](problem.pattern, shape, problem.element_type, generator)
    return {VALUES: problem.values.array, given.name: dense * dense_scale(problem.values)}


def _rounded(problem: Problem, drawn: Arrays) -> Arrays:
    """In the operands' own types; fixed values in the place of those drawn."""
    rounded = {each.name: _in_type(drawn[each.name], each, problem.element_type) for each in inputs_of(problem)}
    return rounded if problem.values is None else {**rounded, VALUES: problem.values.array}


def _in_type(array: npt.NDArray[Any], operand: Operand, element_type: ElementType) -> npt.NDArray[Any]:
    return np.ascontiguousarray(array, operand.array_type(element_type))


def _limit_product(name: str, problem: Problem, inputs: Arrays, expected: Mapping[str, Expected]) -> None:
    """Bounds of a product as narrow as its inputs allow, in place."""
    operation, pattern, element_type = problem.operation, problem.pattern, problem.element_type
    (given,) = operands_with_role(operation, "input", "inout")
    for each in expected.values():
        if problem.values is not None:
            each.bound[...] += underflow_bound(pattern, problem.values, element_type)
        elif operation.sums_products:
            values, dense = inputs[VALUES], inputs[given.name]
            limit_to_single_products(each.bound, each.magnitude, pattern, values, dense, element_type)
            if name == INTEGERS and bool((dense == np.rint(dense)).all()):
                limit_to_exact_sums(each.bound, each.magnitude, element_type)


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


TINY: dict[ElementType, float] = {"float32": 2.0**-60, "float64": 2.0**-90, "float16": 0.0, "bfloat16": 2.0**-60}
"""What a mixed draw multiplies the values of a row by, all but one, where that one is to be the sum."""

_SMALL_COLUMN = 2.0**-14


def smallest_column(element_type: ElementType) -> float:
    """Size of the smallest columns of a mixed draw: that of the tiny values, where the type has numbers so small."""
    return TINY[element_type] or _SMALL_COLUMN


@dataclass(frozen=True)
class Mixing:
    """Sizes in a draw whose rows and columns are mixed."""

    smallest: float
    """Of columns of the dense operand."""
    largest: float
    """Of columns where tiny values show, and which values make up for elsewhere; 1: none are so large."""
    tiny: float
    """What values of a row are multiplied by, all but one, where that one is to be the sum."""

    @property
    def columns(self) -> tuple[float, ...]:
        """Sizes of columns, each as often."""
        return (1.0, 1.0, 1.0, 1.0, 2.0**-7, _SMALL_COLUMN, self.smallest, self.largest)


_LARGE: dict[ElementType, float] = {"float32": 2.0**40, "float64": 2.0**70, "bfloat16": 2.0**40}


def mixing_of(name: str, element_type: ElementType, *, has_values: bool = True) -> Mixing | None:
    """Of a draw; None where it is not mixed: float16 has no numbers so large, and fixed values make up for none."""
    if name == MIXED:
        return Mixing(smallest_column(element_type), 1.0, TINY[element_type])
    large = _LARGE.get(element_type)
    if name != WIDE_RANGE or large is None or not has_values:
        return None
    return Mixing(1 / large, large, TINY[element_type])


WIDE_DECADES: dict[ElementType, float] = {"float32": 6, "float64": 6, "float16": 2, "bfloat16": 6}
"""Of the draw `wide_range`, each way from 1."""

LARGEST_RESULT: dict[ElementType, float] = {"float16": 2.0**14}
"""Of |A| |x|, where results might not be held otherwise."""


def mixed(pattern: Pattern, shape: Shape, element_type: ElementType, generator: np.random.Generator) -> Pair:
    """See above."""
    numbers = _uniform(pattern, shape, element_type, generator)
    return _mix(pattern, numbers, mixing_of(MIXED, element_type), generator)


def _mix(pattern: Pattern, numbers: Pair, mixing: Mixing | None, generator: np.random.Generator) -> Pair:
    """Rows of four kinds (evened out, one product, one that outweighs all but the largest columns, and as they are),
    columns of five sizes. Large columns are made up for in all others."""
    if mixing is None:
        return numbers
    values, dense = numbers
    sizes = generator.choice(mixing.columns, pattern.num_cols)
    dense = dense * sizes.reshape((-1,) + (1,) * (dense.ndim - 1))
    of_entry = sizes[pattern.col_indices]
    is_even, has_one, is_outweighing = _shared_out(pattern, generator)
    is_kept = _one_of_each_row(pattern, generator)
    is_light = has_one & ~is_kept
    heavy = 0.5 * values + np.copysign(0.5, values)
    one_sign = np.copysign(values, _one_entry_of_each(dense, pattern, generator))
    made_up = np.where(is_light, values * mixing.tiny, np.where(has_one, heavy, values))
    made_up /= np.where(is_light & is_outweighing, 1.0, np.maximum(of_entry, 1.0))
    return np.where(is_even, one_sign * mixing.smallest / of_entry, made_up), dense


def _shared_out(pattern: Pattern, generator: np.random.Generator) -> tuple[npt.NDArray[np.bool_], ...]:
    """Of each nonzero whether its row is evened out (a quarter of them), is to have one large product (another
    quarter), and has it beside tiny values that nothing makes up for (half of those)."""
    kinds = np.repeat(generator.integers(0, 8, pattern.num_rows), pattern.row_lengths)
    return np.isin(kinds, (0, 1)), np.isin(kinds, (2, 3)), kinds == 3


def _one_of_each_row(pattern: Pattern, generator: np.random.Generator) -> npt.NDArray[np.bool_]:
    """Of each nonzero whether it is the one that was chosen of its row."""
    is_chosen = np.zeros(pattern.nnz, dtype=bool)
    offsets = generator.integers(0, np.maximum(pattern.row_lengths, 1))
    is_chosen[(pattern.row_offsets[:-1] + offsets)[pattern.row_lengths > 0]] = True
    return is_chosen


def _one_entry_of_each(dense: FloatArray, pattern: Pattern, generator: np.random.Generator) -> FloatArray:
    """The entry that each nonzero meets in one dense column, which is chosen for each row."""
    columns = dense.reshape(pattern.num_cols, -1)
    chosen = np.repeat(generator.integers(0, columns.shape[1], pattern.num_rows), pattern.row_lengths)
    entries: FloatArray = columns[pattern.col_indices, chosen]
    return entries


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
    """Both signs, magnitudes from 1e-6 to 1e6 (float16: 1e-2 to 1e2), evenly in the logarithm; mixed."""
    numbers = _wide_of_fixed(pattern, shape, element_type, generator)
    return _mix(pattern, numbers, mixing_of(WIDE_RANGE, element_type), generator)


def _wide_of_fixed(pattern: Pattern, shape: Shape, element_type: ElementType, generator: np.random.Generator) -> Pair:
    """As `_wide_range`, not mixed."""
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
    WIDE_RANGE: _wide_range,
    INTEGERS: _integers,
}

_DRAWS_FOR_FIXED: Mapping[str, Drawing] = {**_DRAWS, WIDE_RANGE: _wide_of_fixed}
"""What is drawn beside fixed values, which make up for nothing."""

CHECKED_DRAWS = (MIXED, "one_hot", "cancelling", WIDE_RANGE, INTEGERS)
"""What programs are checked with, the first also what they are timed on."""
