"""A kernel program's modules and buffers on a GPU, and its launch sequence."""

import ctypes
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import cupy
import numpy as np

from services.evaluator.cuda.arena import BufferPlan, Placement
from services.evaluator.cuda.changes import Target
from services.evaluator.cuda.launch import Enqueue, Launch, LoadedModule
from services.evaluator.cuda.memory import Arena
from services.evaluator.cuda.own_kernels import LATE_LEAD_US, DeviceKernels
from services.evaluator.cuda.residents import DeviceLayout
from services.evaluator.device import Array, Draw
from sparsesmith.cuda.driver import KernelArguments
from sparsesmith.formats.format import Argument, Role
from sparsesmith.program.directives import ResolvedLaunch
from sparsesmith.program.program import KernelProgram
from sparsesmith.program.signature import signature_of
from sparsesmith_proto.kernel import Workload


@dataclass(frozen=True)
class MatrixShape:
    """Of the workload's matrix."""

    num_rows: int
    num_cols: int
    nnz: int


@dataclass(frozen=True, eq=False)
class LaunchSequence:
    """All launches of a program, in order."""

    launches: tuple[Launch, ...]

    @property
    def starts_early(self) -> bool:
        """Whether it may start while what ran before still drains."""
        return self.launches[0].dependency == "programmatic"

    def enqueue(self, stream: int) -> None:
        for launch in self.launches:
            launch.enqueue(stream)


class DeviceProgram:
    """Modules loaded, buffers allocated; `sequence` launches with the addresses of the present placement."""

    def __init__(
        self,
        program: KernelProgram,
        cubin: bytes,
        layout: DeviceLayout,
        workload: Workload,
        shape: MatrixShape,
        kernels: DeviceKernels,
        num_sms: int,
    ) -> None:
        """Raises LaunchRefused (a module or a shared-memory size the driver refuses), InvalidProgram (a launch beyond
        CUDA's limits), cupy.cuda.memory.OutOfMemoryError."""
        self._kernels = kernels
        self._layout = layout
        self._workload = workload
        self._shape = shape
        self._signature = signature_of(program.format, program.parameters, workload.operation, workload.element_type)
        self._sizes = {
            "num_rows": shape.num_rows,
            "num_cols": shape.num_cols,
            "nnz": shape.nnz,
            "num_dense_cols": workload.num_dense_cols,
            "num_sms": num_sms,
            **layout.layout.sizes,
        }
        self._resolved = [launch.resolve(self._sizes) for launch in program.launches]
        self._module = LoadedModule(cubin)
        shared_bytes = largest_shared_bytes(self._resolved)
        self._functions = [
            self._module.function(launch.kernel, shared_bytes[launch.kernel]) for launch in self._resolved
        ]
        self._input_name = self._name_of("input")
        self._output_name = self._name_of("output")
        self._values_name = next(iter(_names_of(self._signature, "values")), None)
        """None: the format has the values in it."""
        self.arena = Arena([self._plan(argument) for argument in self._signature if argument.role != "size"], kernels)

    @property
    def output_shape(self) -> tuple[int, ...]:
        rows = self._shape.num_rows
        return (rows,) if self._workload.operation == "spmv" else (rows, self._workload.num_dense_cols)

    def place(self, placement: Placement) -> None:
        """New addresses, everything poisoned, the format's indices in place."""
        self.arena.place(placement)
        for name, array in self._layout.indices.items():
            self.arena.copy_in(name, array)

    def fill(self, draw: Draw, start: Array | None) -> None:
        """Puts a draw's values, its dense operand and the output's first contents (None: NaN) in place."""
        if self._values_name is None:
            pass
        elif self._layout.value_sources is None:
            self.arena.copy_in(self._values_name, draw.values)
        else:
            self._kernels.pack(
                int(self._layout.value_sources.data.ptr),
                int(draw.values.data.ptr),
                self.arena.address(self._values_name),
                self._layout.layout.num_slots,
                self._workload.element_type,
            )
        self.arena.copy_in(self._input_name, draw.dense)
        if start is None:
            self.arena.poison(self._output_name)
        else:
            self.arena.copy_in(self._output_name, cupy.ascontiguousarray(start))

    def renew_vectors(self, seed: int) -> None:
        """A dense operand that no launch has seen, NaN in output and scratch."""
        address = self.arena.address(self._input_name)
        self._kernels.refresh(address, self._dense_length, seed, self._workload.element_type)
        for name in self._written_names:
            self.arena.poison(name)

    def rewrite_vectors(self) -> None:
        """Writes dense operand, output and scratch as they are: the traffic of `renew_vectors`, and nothing new."""
        for name in (self._input_name, *self._written_names):
            self.arena.rewrite(name)

    def target(self) -> Target:
        """Where an entry of the inputs is changed."""
        sources = self._layout.value_sources
        return Target(
            values=0 if self._values_name is None else self.arena.address(self._values_name),
            dense=self.arena.address(self._input_name),
            sources=0 if sources is None else int(sources.data.ptr),
            num_slots=self._layout.layout.num_slots,
        )

    def input_into(self, target: "cupy.ndarray") -> None:
        """Copies the dense operand as it is now, on the stream."""
        self.arena.copy_out(self._input_name, target)

    def output(self) -> "cupy.ndarray":
        """A copy of the output."""
        copied = cupy.empty(self.output_shape, dtype=self._workload.element_type)
        self.arena.copy_out(self._output_name, copied)
        return copied

    def sequence(self) -> LaunchSequence:
        """All launches at the present addresses."""
        arguments = KernelArguments([self._value_of(argument) for argument in self._signature])
        return LaunchSequence(
            tuple(
                Launch(function, launch.grid, launch.block, launch.shared_bytes, arguments, launch.dependency)
                for function, launch in zip(self._functions, self._resolved, strict=True)
            )
        )

    def behind_late_writes(
        self, sequence: LaunchSequence, draw: Draw, start: Array | None, other: Draw | None
    ) -> Enqueue:
        """The sequence behind a kernel that lets it start at once and only then writes x, the output and scratch.

        What a program reads of them before `griddepcontrol.wait` is NaN or, with `other`, what that draw has there;
        what it writes there is lost. Order and time of the writes are random.
        """
        sources = {self._input_name: draw.dense, self._output_name: start}
        sources |= dict.fromkeys(_names_of(self._signature, "scratch"))
        held = {name: None if source is None else cupy.ascontiguousarray(source) for name, source in sources.items()}
        rows = [
            [0 if source is None else int(source.data.ptr), self.arena.address(name), self.arena.num_words(name)]
            for name, source in held.items()
        ]
        secrets.SystemRandom().shuffle(rows)
        table = cupy.asarray(np.array(rows, dtype=np.uint64))
        result = None if other is None else other.reference.astype(self._workload.element_type)

        def enqueue(stream: int) -> None:
            for name in held:
                self.arena.poison(name)
            if other is not None and result is not None:
                self.arena.copy_in(self._input_name, other.dense)
                self.arena.copy_in(self._output_name, result)
                for name in _names_of(self._signature, "scratch"):
                    self.arena.scatter(name)
            self._kernels.delay(LATE_LEAD_US)
            self._kernels.write_late(table)
            sequence.enqueue(stream)

        return enqueue

    @property
    def _written_names(self) -> list[str]:
        return [*_names_of(self._signature, "output"), *_names_of(self._signature, "scratch")]

    @property
    def _dense_length(self) -> int:
        return self._shape.num_cols * self._workload.num_dense_cols

    def _value_of(self, argument: Argument) -> ctypes.c_int | int:
        if argument.role == "size":
            return ctypes.c_int(self._sizes[argument.name])
        return self.arena.address(argument.name)

    def _name_of(self, role: Role) -> str:
        return _names_of(self._signature, role)[0]

    def _plan(self, argument: Argument) -> BufferPlan:
        return BufferPlan(argument.name, self._buffer_bytes(argument), argument.role in ("scratch", "output"))

    def _buffer_bytes(self, argument: Argument) -> int:
        element_bytes = np.dtype(self._workload.element_type).itemsize
        layout = self._layout.layout
        match argument.role:
            case "index":
                return int(layout.indices[argument.name].nbytes)
            case "values":
                return layout.num_slots * element_bytes
            case "scratch":
                return layout.scratch[argument.name] * self._workload.num_dense_cols * element_bytes
            case "input":
                return self._dense_length * element_bytes
            case "output":
                return int(np.prod(self.output_shape)) * element_bytes
            case "size" | "inout":
                raise ValueError(f"{argument.name} is passed by value")


def largest_shared_bytes(launches: Sequence[ResolvedLaunch]) -> dict[str, int]:
    """Dynamic shared memory of each kernel's largest launch: the limit is the function's, not the launch's."""
    largest: dict[str, int] = {}
    for launch in launches:
        largest[launch.kernel] = max(launch.shared_bytes, largest.get(launch.kernel, 0))
    return largest


def _names_of(signature: Sequence[Argument], role: Role) -> list[str]:
    return [argument.name for argument in signature if argument.role == role]
