"""Inputs drawn on the GPU, with their float64 references: what `operands` does on the host, a hundred times faster.

Every draw has a key of 128 bits from the operating system for a counter-based generator (Philox4x64-10). The reference
is a plain float64 CSR kernel of our own, the same bits for the same inputs; it is compared with SciPy once for each
workload before anything is judged by it.

What it does not protect against: a defect of our kernel that spares `uniform` inputs, and what `operands` names.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import cupy
import numpy as np

from services.evaluator.checking.draws import (
    INTEGERS,
    MIXED,
    WIDE_RANGE,
    Mixing,
    dense_scale,
    mixing_of,
    result_scale,
    underflow_bound,
)
from services.evaluator.cuda.carriers import carrier_of, uncarried
from services.evaluator.cuda.changes import Drawn
from services.evaluator.cuda.launch import cuda_errors
from services.evaluator.cuda.memory import uploaded
from services.evaluator.cuda.own_kernels import ColumnSizes, DeviceKernels
from services.evaluator.cuda.residents import HeldDraws
from services.evaluator.device import VALUES, Draw
from sparsesmith.elements import ELEMENTS, dtype_of
from sparsesmith.errors import Unavailable
from sparsesmith.formats.on_device.machine import DeviceCsr
from sparsesmith.operations import Problem
from sparsesmith.operations.operation import Expected, operands_with_role
from sparsesmith.operations.sums import (
    ROUNDOFF,
    SINGLE_ROUNDOFFS,
    error_bound,
    limit_to_exact_sums,
    product,
    stored_bound,
)

_VALUES_STREAM, _DENSE_STREAM, _SIZES_STREAM = 1, 2, 3
_KINDS: dict[str, tuple[str, str]] = {
    MIXED: ("uniform", "uniform"),
    "uniform": ("uniform", "uniform"),
    "one_hot": ("uniform", "one_hot"),
    "cancelling": ("cancelling", "near_one"),
    WIDE_RANGE: ("wide_range", "wide_range"),
    INTEGERS: ("integers", "integers"),
}
"""How values and dense operand of a draw are filled (the kernels `fill_*` and `pick_*`)."""

MAX_CHECKED_PRODUCTS = 50_000_000
"""Multiply-adds of the comparison with SciPy; of a wider operand some columns are compared, chosen at random."""


@dataclass(frozen=True)
class Key:
    """128 bits."""

    low: int
    high: int


def system_key() -> Key:
    """From the operating system's randomness."""
    return Key(secrets.randbits(64), secrets.randbits(64))


def key_of(seed: int) -> Key:
    """Of 128 bits."""
    return Key(seed & (2**64 - 1), seed >> 64 & (2**64 - 1))


class DeviceDraws:
    """Draws of one workload, straight into device memory."""

    def __init__(
        self,
        problem: Problem,
        kernels: DeviceKernels,
        held: HeldDraws,
    ) -> None:
        """Uploads the pattern, and the values where they are fixed. Raises cupy.cuda.memory.OutOfMemoryError."""
        pattern, fixed = problem.pattern, problem.values
        self._problem = problem
        self._fixed = fixed
        self._pattern = pattern
        self._workload = problem.workload
        self._kernels = kernels
        self._held = held
        self._is_checked = False
        self._operands = operands_with_role(problem.operation, "input", "output")
        self._factors: dict[str, float] = {}
        """Of the dense operand of each kind of draw, of the last one: see `factor_of`."""
        with cuda_errors():
            self._row_offsets = uploaded(pattern.row_offsets, kernels.stream)
            self._col_indices = uploaded(pattern.col_indices, kernels.stream)
            self._values = None if fixed is None else uploaded(fixed.array, kernels.stream)

    def draw(self, name: str, seed: int | None = None) -> Draw:
        """One set of inputs, kept as long as somebody refers to it; see `DeviceWorkload.draw` on the seed.

        Raises cupy.cuda.memory.OutOfMemoryError.
        """
        drawn = self._drawn(name, system_key() if seed is None else key_of(seed))
        if self._fixed is not None:
            drawn.bound[...] += self.lost
        elif name == INTEGERS and self._factors[name] >= 1:
            with cuda_errors():
                limit_to_exact_sums(drawn.bound, drawn.magnitude, self._workload.element_type)
        return self._held.hold(drawn)

    def draws(self, names: Sequence[str], *, are_timed: bool = True) -> tuple[Draw, ...]:
        """See DeviceWorkload.draws: changes are made as they are needed."""
        return tuple(map(self.draw, names))

    def vouch(self) -> None:
        """Raises Unavailable where the device's reference is not SciPy's."""
        if not self._is_checked:
            self._check()
            self._is_checked = True

    @property
    def beside(self) -> tuple[Draw, ...]:
        """What stands in device memory beside the draws of a batch: nothing, changes are made as they are needed."""
        return ()

    def csr(self) -> DeviceCsr:
        """The pattern in the device's memory."""
        pattern = self._pattern
        return DeviceCsr(pattern.num_rows, pattern.num_cols, pattern.nnz, self._row_offsets, self._col_indices)

    def pattern_arrays(self) -> dict[str, "cupy.ndarray"]:
        """What references are computed from, by name: no kernel may write into it."""
        return {"row_offsets": self._row_offsets, "col_indices": self._col_indices}

    @property
    def has_values(self) -> bool:
        """Whether values of A are drawn: else the request fixes them."""
        return self._fixed is None

    @property
    def lost(self) -> float:
        """What products that underflow may lose beside the bound."""
        return 0.0 if self._fixed is None else underflow_bound(self._pattern, self._fixed, self._workload.element_type)

    def factor_of(self, draw: Draw) -> float:
        """A power of two that a dense operand of numbers in [-1, 1) is to be multiplied by, so that results are numbers
        of the element type; 1 where it holds any."""
        return (
            self._factors[draw.name]
            if ELEMENTS[self._workload.element_type].sums != self._workload.element_type
            else 1.0
        )

    def changing(self, draw: Draw) -> Drawn:
        """The draw as changes are drawn from it."""
        workload = self._workload
        return Drawn(self._row_offsets, self._col_indices, draw, workload.num_dense_cols, workload.element_type)

    def copy(self, draw: Draw) -> Draw:
        """A draw of its own arrays, which may be changed; hidden like the others while programs run."""
        with cuda_errors():
            return self._held.hold(draw.copy())

    def _drawn(self, name: str, key: Key) -> Draw:
        workload, pattern, kernels = self._workload, self._pattern, self._kernels
        columns = workload.num_dense_cols
        (given, output), sizes = self._operands, self._problem.sizes
        kind_of_values, kind_of_dense = _KINDS[name]
        with cuda_errors():
            stored = carrier_of(workload.element_type)
            values = cupy.empty(pattern.nnz, stored) if self._values is None else self._values
            dense = cupy.zeros(given.shape(sizes), dtype=stored)
            reference, magnitude, bound = (cupy.empty(output.shape(sizes), dtype="float64") for _ in range(3))
        if self._fixed is None:
            kernels.fill(kind_of_values, values, _VALUES_STREAM, key.low, key.high)
        if kind_of_dense == "one_hot":
            kernels.pick(dense, self._col_indices, columns, _DENSE_STREAM, key.low, key.high)
        else:
            kernels.fill(kind_of_dense, dense, _DENSE_STREAM, key.low, key.high)
        mixing = mixing_of(name, workload.element_type, has_values=self.has_values)
        if mixing is not None:
            self._mix(values, dense, key, mixing)
        factor = 1.0 if self._fixed is None else dense_scale(self._fixed)
        self._scale(dense, factor)
        expected = {output.name: Expected(reference, magnitude, bound)}
        types = {output.name: dtype_of(workload.element_type)}
        drawn = Draw(name, {VALUES: values, given.name: dense}, expected, types, self._kernels.largest_error)
        self.refer(drawn)
        with cuda_errors():
            shrunk = result_scale(magnitude, workload.element_type)
        if shrunk < 1:
            self._scale(dense, shrunk)
            self.refer(drawn)
        self._factors[name] = factor * shrunk
        return drawn

    def _mix(self, values: "cupy.ndarray", dense: "cupy.ndarray", key: Key, mixing: Mixing) -> None:
        """Mixes columns of the dense operand, and rows of values that are not fixed."""
        columns = self._workload.num_dense_cols
        sizes = ColumnSizes(_SIZES_STREAM, key.low, key.high, mixing.smallest, mixing.largest)
        self._kernels.mix_columns(dense, columns, sizes)
        if self.has_values:
            self._kernels.mix_rows(self._row_offsets, self._col_indices, values, dense, columns, sizes, mixing.tiny)

    def _scale(self, dense: "cupy.ndarray", factor: float) -> None:
        if factor != 1:
            self._kernels.scale(int(dense.data.ptr), int(dense.size), factor, self._workload.element_type)

    def refer(self, drawn: Draw) -> None:
        """Computes reference, magnitude and bound of values and dense operand, in place, on the stream."""
        self._kernels.refer(
            (
                self._row_offsets,
                self._col_indices,
                drawn.values,
                drawn.dense,
                drawn.reference,
                drawn.magnitude,
                drawn.bound,
            ),
            self._pattern.num_rows,
            self._workload.num_dense_cols,
            self._workload.element_type,
            sees_single_products=self._fixed is None,
        )

    def _check(self) -> None:
        """Compares one draw with SciPy. Raises Unavailable."""
        drawn = self._drawn("uniform", system_key())
        with cuda_errors():
            self._kernels.stream.synchronize()
            values, dense = (uncarried(array.get()) for array in (drawn.values, drawn.dense))
            reference, magnitude, bound = (array.get() for array in (drawn.reference, drawn.magnitude, drawn.bound))
        if dense.ndim == 2:
            affordable = max(1, MAX_CHECKED_PRODUCTS // max(self._pattern.nnz, 1))
            chosen = secrets.SystemRandom().sample(range(dense.shape[1]), min(affordable, dense.shape[1]))
            dense, reference, magnitude, bound = (array[:, chosen] for array in (dense, reference, magnitude, bound))
        expected, scale = product(self._pattern, values, dense)
        limit = error_bound(self._pattern, scale, "float64")
        element_type = self._workload.element_type
        allowed = stored_bound(error_bound(self._pattern, scale, element_type), expected, element_type)
        of_single = SINGLE_ROUNDOFFS * ROUNDOFF[element_type] * scale
        agrees = (
            np.all(abs(reference - expected) <= limit)
            and np.all(abs(magnitude - scale) <= limit)
            and np.all(np.isclose(bound, allowed, rtol=1e-9, atol=0) | np.isclose(bound, of_single, rtol=1e-9, atol=0))
        )
        if not agrees:
            raise Unavailable("the device's float64 products are not SciPy's: it cannot judge kernels")
