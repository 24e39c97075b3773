"""A program on one problem, every size known: what devices, the C++ header and the Python loader launch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from sparsesmith.elements import ELEMENTS
from sparsesmith.formats.format import WRITABLE_ROLES, Argument, Layout, Role
from sparsesmith.operations import Operand, Sizes, operation_named
from sparsesmith.program.directives import ResolvedLaunch
from sparsesmith.program.program import KernelProgram
from sparsesmith.program.scratch import scratch_bytes
from sparsesmith_proto.kernel import Workload
from sparsesmith_proto.message import ElementType


class Shape(Protocol):
    """Of a sparse matrix."""

    @property
    def num_rows(self) -> int: ...

    @property
    def num_cols(self) -> int: ...

    @property
    def nnz(self) -> int: ...


@dataclass(frozen=True)
class BoundBuffer:
    """An array in device memory that kernels of a program get."""

    name: str
    role: Role
    num_bytes: int
    shape: tuple[int, ...] = ()
    """Of the operation's operands, row-major; empty for what the format holds."""

    @property
    def is_writable(self) -> bool:
        return self.role in WRITABLE_ROLES


@dataclass(frozen=True)
class BoundProgram:
    """What to launch."""

    element_type: ElementType
    """What `T` stands for."""
    sizes: Sizes
    """Every name that launch expressions and `size` arguments use."""
    arguments: tuple[Argument, ...]
    """Of every kernel, in order, C types filled in."""
    launches: tuple[ResolvedLaunch, ...]
    buffers: tuple[BoundBuffer, ...]
    """Of the arguments that are arrays, in order."""
    own_scratch: Mapping[str, int]
    """Bytes of the scratch that the program asks for itself, by name; the format knows nothing of it."""

    def names(self, *roles: Role) -> tuple[str, ...]:
        """Of the buffers with these roles, in order."""
        return tuple(buffer.name for buffer in self.with_role(*roles))

    def with_role(self, *roles: Role) -> tuple[BoundBuffer, ...]:
        """In order."""
        return tuple(buffer for buffer in self.buffers if buffer.role in roles)

    def buffer(self, name: str) -> BoundBuffer:
        return next(buffer for buffer in self.buffers if buffer.name == name)

    @property
    def shared_bytes(self) -> Mapping[str, int]:
        """Dynamic shared memory of each kernel's largest launch: the limit is the function's, not the launch's."""
        largest: dict[str, int] = {}
        for launch in self.launches:
            largest[launch.kernel] = max(launch.shared_bytes, largest.get(launch.kernel, 0))
        return largest


def problem_sizes(workload: Workload, matrix: Shape) -> Sizes:
    """What a request fixes: the matrix's sizes and those that the request names."""
    return {
        "num_rows": matrix.num_rows,
        "num_cols": matrix.num_cols,
        "nnz": matrix.nnz,
        "num_dense_cols": workload.num_dense_cols,
    }


def bind(program: KernelProgram, layout: Layout, workload: Workload, matrix: Shape, num_sms: int) -> BoundProgram:
    """Raises InvalidProgram for a launch beyond CUDA's limits, or scratch beyond its own."""
    sizes = {**problem_sizes(workload, matrix), "num_sms": num_sms, **layout.sizes}
    operands = {operand.name: operand for operand in operation_named(workload.operation).operands}
    width = ELEMENTS[workload.element_type].num_bytes
    own = {line.name for line in program.scratch}
    buffers = tuple(
        _buffer(argument, operands.get(argument.name), layout, sizes, width)
        for argument in program.signature
        if argument.role != "size" and argument.name not in own
    )
    scratch = scratch_bytes(program.scratch, sizes, width, sum(buffer.num_bytes for buffer in buffers))
    return BoundProgram(
        element_type=workload.element_type,
        sizes=sizes,
        arguments=program.signature,
        launches=tuple(launch.resolve(sizes) for launch in program.launches),
        buffers=(*buffers, *(BoundBuffer(name, "scratch", num_bytes) for name, num_bytes in scratch.items())),
        own_scratch=scratch,
    )


def _buffer(argument: Argument, operand: Operand | None, layout: Layout, sizes: Sizes, width: int) -> BoundBuffer:
    if operand is not None:
        num_bytes = operand.num_elements(sizes) * width
        return BoundBuffer(argument.name, argument.role, num_bytes, operand.shape(sizes))
    return BoundBuffer(argument.name, argument.role, layout.buffer_bytes(argument, width, sizes["num_dense_cols"]))
