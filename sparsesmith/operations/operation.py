"""What a kernel computes, as a thing: its operands, its sizes, its first programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from sparsesmith.operations.operand import Operand, Sizes
from sparsesmith_proto.message import ElementType

if TYPE_CHECKING:
    from sparsesmith.operations.problem import Problem

Array = npt.NDArray[Any]
Arrays = Mapping[str, Array]
"""By the names of operands; `values` [nnz] are those of the matrix in CSR order."""

Float64Array = npt.NDArray[np.float64]

RESERVED_OPERATION_IDS = 32
"""Ids that a policy keeps room for: a new operation never makes shipped weights unloadable."""


@dataclass(frozen=True, eq=False)
class Expected:
    """What is right of one output; float64, of the output's shape."""

    reference: Float64Array
    magnitude: Float64Array
    """The scale of rounding errors: of a sum, that of the sizes of its terms."""
    bound: Float64Array
    """The largest |output - reference| that is accepted."""


@dataclass(frozen=True)
class Floor:
    """What no correct program avoids."""

    bytes_moved: int
    """To and from the device's memory."""
    flops: int
    """A multiply-add counts as two."""


Drawing = Callable[["Problem", np.random.Generator], Arrays]
"""One set of inputs in their shapes, in any type: whoever draws rounds them to the operands' own."""


class Operation(Protocol):
    """What a kernel computes. Implementations are frozen, in a folder of the operation's name."""

    @property
    def name(self) -> str:
        """As requests spell it: lower-case letters, digits and `_`."""
        ...

    @property
    def version(self) -> int:
        """Raised when the same request would mean something else."""
        ...

    @property
    def header_id(self) -> int | None:
        """Of the operation in prompts: handed out once and for all, below RESERVED_OPERATION_IDS. None: a task, which
        no matrix encoder is asked for."""
        ...

    @property
    def formula(self) -> str:
        """For prompts, reports, docs and headers: `y = A x`. `{name}` stands for a size of that name."""
        ...

    @property
    def takes_matrix(self) -> bool:
        """Whether it is about a stored sparse matrix A. Else it is a task: its programs say `//@ task NAME` where
        others name a format."""
        ...

    @property
    def axes(self) -> tuple[str, ...]:
        """Sizes that a request names, beside its matrix where it has one."""
        ...

    @property
    def operands(self) -> tuple[Operand, ...]:
        """In order: behind the head (num_rows, num_cols, nnz) and the format's arguments, or behind a task's axes."""
        ...

    @property
    def sums_products(self) -> bool:
        """Whether each result is a sum of products, but for their signs, of a value of A and an entry of the input.

        Such results are exact on small integers, and rounded once where one product is all of the sum.
        """
        ...

    @property
    def draws(self) -> Mapping[str, Drawing]:
        """Kinds of inputs that programs are checked with, by name, where the general ones do not fit; the first is the
        one that is timed. Empty: the general ones."""
        ...

    def expect(self, problem: Problem, inputs: Arrays) -> Mapping[str, Expected]:
        """What is right of each output and of each operand that is changed in place, by name.

        `inputs` as kernels get them: those of a matrix, each input operand, and what is changed in place as it is at
        the start.
        """
        ...

    def floor(self, problem: Problem) -> Floor:
        """What no correct program avoids."""
        ...

    @property
    def programs(self) -> Mapping[str, str]:
        """The programs that everybody writes first, by name: kernel programs with `T` for the element type.

        The first is what a user gets without choosing.
        """
        ...

    @property
    def naive(self) -> str:
        """The name, among the programs, of the plainest: one thread an output element. Empty: there are none yet."""
        ...

    @property
    def trial(self) -> Mapping[str, int]:
        """Small axes, no multiples of a warp, on which the operation can be tried without a GPU."""
        ...


def operands_with_role(operation: Operation, *roles: str) -> tuple[Operand, ...]:
    """In order."""
    return tuple(operand for operand in operation.operands if operand.role in roles)


@dataclass(frozen=True, eq=False)
class Residual:
    """How far an output is from solving its problem; float64, of any one shape."""

    found: Float64Array
    """0: it solves it."""
    magnitude: Float64Array
    """The scale of rounding errors in what was found."""
    bound: Float64Array
    """The largest |found| that is accepted."""


@runtime_checkable
class Judging(Protocol):
    """Of an operation whose outputs may differ though all of them are right: residuals are judged, not entries."""

    def residuals(self, problem: Problem, inputs: Arrays, outputs: Arrays) -> Mapping[str, Residual]:
        """Of each output by name. NaN where an output is NaN."""
        ...


@runtime_checkable
class Shaping(Protocol):
    """Of a task whose operands have sizes that follow from its axes, or whose axes limit each other."""

    @property
    def derived(self) -> Mapping[str, Callable[[Sizes], int]]:
        """Sizes by name, found from the axes: kernels take them behind the axes, as `int`; shapes, launch lines and
        `//@ let` may name them. Where one would be less than 1 the axes are refused."""
        ...

    @property
    def constraints(self) -> Mapping[str, Callable[[Sizes], bool]]:
        """What must hold of the axes, by how it is told: `k <= n`."""
        ...


@runtime_checkable
class DataDependent(Protocol):
    """Of an operation whose programs take longer for some inputs than for others of the same sizes."""

    @property
    def adverse(self) -> tuple[str, ...]:
        """Kinds of its draws that are hard on usual programs, none of them the first: every program that passes is
        timed on them as well."""
        ...


@runtime_checkable
class Typed(Protocol):
    """Of an operation that says itself which element types it is computed for."""

    @property
    def element_types(self) -> tuple[ElementType, ...]: ...


def adverse_draws(operation: Operation) -> tuple[str, ...]:
    """See DataDependent.adverse; empty of an operation whose times do not depend on what inputs hold."""
    return operation.adverse if isinstance(operation, DataDependent) else ()


def task_sizes(operation: Operation, axes: Sizes) -> Sizes:
    """The axes of a task in its order, and what follows from them."""
    own = {name: axes[name] for name in operation.axes}
    return {**own, **{name: size(own) for name, size in derived_sizes(operation).items()}}


def task_size_names(operation: Operation) -> tuple[str, ...]:
    """Of `task_sizes`, in order."""
    return (*operation.axes, *derived_sizes(operation))


def derived_sizes(operation: Operation) -> Mapping[str, Callable[[Sizes], int]]:
    """See Shaping.derived; empty of an operation that has none."""
    return operation.derived if isinstance(operation, Shaping) else {}
