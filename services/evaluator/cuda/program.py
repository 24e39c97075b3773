"""A kernel program's modules and buffers on a GPU, and its launch sequence."""

import ctypes
import secrets
from dataclasses import dataclass
from math import prod

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
from sparsesmith.formats.format import Argument
from sparsesmith.program.binding import BoundProgram


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

    def __init__(self, bound: BoundProgram, cubin: bytes, layout: DeviceLayout, kernels: DeviceKernels) -> None:
        """Raises LaunchRefused (a module or a shared-memory size the driver refuses),
        cupy.cuda.memory.OutOfMemoryError."""
        self._bound = bound
        self._layout = layout
        self._kernels = kernels
        self._module = LoadedModule(cubin)
        shared_bytes = bound.shared_bytes
        self._functions = [
            self._module.function(launch.kernel, shared_bytes[launch.kernel]) for launch in bound.launches
        ]
        (self._input,) = bound.with_role("input")
        (self._output,) = bound.with_role("output")
        self._values_name = next(iter(bound.names("values")), None)
        """None: the format has the values in it."""
        self.arena = Arena(
            [BufferPlan(buffer.name, buffer.num_bytes, buffer.is_writable) for buffer in bound.buffers], kernels
        )

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
                self._bound.element_type,
            )
        self.arena.copy_in(self._input.name, draw.dense)
        if start is None:
            self.arena.poison(self._output.name)
        else:
            self.arena.copy_in(self._output.name, cupy.ascontiguousarray(start))

    def scatter_scratch(self) -> None:
        """Puts numbers that nobody knows into scratch, in the place of NaN, on the stream."""
        for name in self._bound.names("scratch"):
            self.arena.scatter(name)

    def renew_vectors(self, seed: int) -> None:
        """A dense operand that no launch has seen, NaN in output and scratch."""
        address = self.arena.address(self._input.name)
        self._kernels.refresh(address, prod(self._input.shape), seed, self._bound.element_type)
        for name in self._written_names:
            self.arena.poison(name)

    def rewrite_vectors(self) -> None:
        """Writes dense operand, output and scratch as they are: the traffic of `renew_vectors`, and nothing new."""
        for name in (self._input.name, *self._written_names):
            self.arena.rewrite(name)

    def target(self) -> Target:
        """Where an entry of the inputs is changed."""
        sources = self._layout.value_sources
        return Target(
            values=0 if self._values_name is None else self.arena.address(self._values_name),
            dense=self.arena.address(self._input.name),
            sources=0 if sources is None else int(sources.data.ptr),
            num_slots=self._layout.layout.num_slots,
        )

    def input_into(self, target: "cupy.ndarray") -> None:
        """Copies the dense operand as it is now, on the stream."""
        self.arena.copy_out(self._input.name, target)

    def output(self) -> "cupy.ndarray":
        """A copy of the output."""
        copied = cupy.empty(self._output.shape, dtype=self._bound.element_type)
        self.arena.copy_out(self._output.name, copied)
        return copied

    def sequence(self) -> LaunchSequence:
        """All launches at the present addresses."""
        arguments = KernelArguments([self._value_of(argument) for argument in self._bound.arguments])
        return LaunchSequence(
            tuple(
                Launch(function, launch.grid, launch.block, launch.shared_bytes, arguments, launch.dependency)
                for function, launch in zip(self._functions, self._bound.launches, strict=True)
            )
        )

    def behind_late_writes(
        self, sequence: LaunchSequence, draw: Draw, start: Array | None, other: Draw | None
    ) -> Enqueue:
        """The sequence behind a kernel that lets it start at once and only then writes x, the output and scratch.

        What a program reads of them before `griddepcontrol.wait` is NaN or, with `other`, what that draw has there;
        what it writes there is lost. Order and time of the writes are random.
        """
        sources = {self._input.name: draw.dense, self._output.name: start}
        sources |= {name: self._garbage(name) for name in self._bound.names("scratch")}
        held = {name: None if source is None else cupy.ascontiguousarray(source) for name, source in sources.items()}
        rows = [
            [0 if source is None else int(source.data.ptr), self.arena.address(name), self.arena.num_words(name)]
            for name, source in held.items()
        ]
        secrets.SystemRandom().shuffle(rows)
        table = cupy.asarray(np.array(rows, dtype=np.uint64))
        result = None if other is None else other.reference.astype(self._bound.element_type)

        def enqueue(stream: int) -> None:
            for name in held:
                self.arena.poison(name)
            if other is not None and result is not None:
                self.arena.copy_in(self._input.name, other.dense)
                self.arena.copy_in(self._output.name, result)
                for name in self._bound.names("scratch"):
                    self.arena.scatter(name)
            self._kernels.delay(LATE_LEAD_US)
            self._kernels.write_late(table)
            sequence.enqueue(stream)

        return enqueue

    def _garbage(self, name: str) -> "cupy.ndarray | None":
        """What scratch holds when a program has waited: NaN (None), or as often numbers that nobody knows."""
        if secrets.randbelow(2):
            return None
        words = cupy.empty(self.arena.num_words(name), dtype=np.float32)
        self._kernels.refresh(int(words.data.ptr), int(words.size), secrets.randbits(63), "float32")
        return words

    @property
    def _written_names(self) -> tuple[str, ...]:
        return (*self._bound.names("output"), *self._bound.names("scratch"))

    def _value_of(self, argument: Argument) -> ctypes.c_int | int:
        if argument.role == "size":
            return ctypes.c_int(self._bound.sizes[argument.name])
        return self.arena.address(argument.name)
