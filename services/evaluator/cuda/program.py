"""A kernel program's modules and buffers on a GPU, and its launch sequence."""

import ctypes
import secrets
from dataclasses import dataclass
from math import prod

import cupy
import numpy as np

from services.evaluator.cuda.arena import BufferPlan, Placement
from services.evaluator.cuda.carriers import carrier_of
from services.evaluator.cuda.changes import Place, Target, at_the_start, places_of
from services.evaluator.cuda.launch import Enqueue, Launch, LoadedModule
from services.evaluator.cuda.memory import Arena, uploaded_table
from services.evaluator.cuda.own_kernels import LATE_LEAD_US, DeviceKernels
from services.evaluator.cuda.residents import DeviceLayout
from services.evaluator.device import Draw, Starts
from sparsesmith.cuda.driver import KernelArguments
from sparsesmith.formats.format import Argument
from sparsesmith.program.binding import BoundBuffer, BoundProgram


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
        self._inputs = bound.with_role("input")
        self._changed = bound.with_role("inout")
        """Each has a second buffer, which holds what it is at the start and which no kernel is given."""
        self._outputs = bound.with_role("output")
        self._values_name = next(iter(bound.names("values")), None)
        """None: the format has the values in it."""
        self._places: dict[tuple[str, int], list[Place]] = {}
        """Where the entries lie that were changed until now: a format's sources are searched for each once."""
        plans = [BufferPlan(buffer.name, buffer.num_bytes, buffer.is_writable) for buffer in bound.buffers]
        starts = [BufferPlan(at_the_start(buffer.name), buffer.num_bytes, False) for buffer in self._changed]
        self.arena = Arena([*plans, *starts], kernels)

    def place(self, placement: Placement) -> None:
        """New addresses, everything poisoned, the format's indices in place."""
        self.arena.place(placement)
        for name, array in self._layout.indices.items():
            self.arena.copy_in(name, array)

    def fill(self, draw: Draw, start: Starts | None) -> None:
        """Puts a draw's values, its inputs and the outputs' first contents (None: NaN) in place."""
        self._fill_inputs(draw)
        for output in self._outputs:
            if start is None:
                self.arena.poison(output.name)
            else:
                self.arena.copy_in(output.name, cupy.ascontiguousarray(start[output.name]))

    def _fill_inputs(self, draw: Draw) -> None:
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
        for given in self._inputs:
            self.arena.copy_in(given.name, draw.inputs[given.name])
        for changed in self._changed:
            self.arena.copy_in(at_the_start(changed.name), draw.inputs[changed.name])
        self.restore()

    @property
    def changes_in_place(self) -> bool:
        """Whether a product leaves another input than it found."""
        return bool(self._changed)

    def restore(self, stream: int | None = None) -> None:
        """Brings what is changed in place back to what it is at the start, on the stream of all copies."""
        for changed in self._changed:
            self.arena.copy_within(at_the_start(changed.name), changed.name)

    def scatter_scratch(self) -> None:
        """Puts numbers that nobody knows into scratch, in the place of NaN, on the stream."""
        for name in self._bound.names("scratch"):
            self.arena.scatter(name)

    def renew_vectors(self, seed: int, factor: float = 1.0) -> None:
        """A dense operand that no launch has seen, of numbers in [-1, 1) times a factor, NaN in output and scratch."""
        address, length = self.arena.address(self._input.name), prod(self._input.shape)
        self._kernels.refresh(address, length, seed, self._bound.element_type)
        if factor != 1:
            self._kernels.scale(address, length, factor, self._bound.element_type)
        for name in self._written_names:
            self.arena.poison(name)

    def renew_from(self, draw: Draw) -> None:
        """Everything of another draw in the inputs, NaN in outputs and scratch, on the stream."""
        self._fill_inputs(draw)
        for name in self._written_names:
            self.arena.poison(name)

    def refill(self, draw: Draw) -> None:
        """Inputs copied again from the draw that they hold, outputs and scratch written as they are: the traffic of
        `renew_from`, and nothing new, on the stream."""
        self._fill_inputs(draw)
        for name in self._written_names:
            self.arena.rewrite(name)

    def put(self, operand: str, index: int, value: "cupy.ndarray") -> None:
        """Writes one entry of an input wherever the program has it (see `places_of`), on the stream."""
        for address in self._addresses(operand, index):
            self.arena.write(address, value)

    @property
    def late_inputs(self) -> tuple[str, ...]:
        """Inputs that a program which starts early may not read before it has waited."""
        return tuple(given.name for given in self._inputs)

    def late_write(self, operand: str, index: int, value: "cupy.ndarray") -> "cupy.ndarray":
        """What `DeviceKernels.write_late` is told to write one entry of one of `late_inputs`."""
        rows = [[int(value.data.ptr), address, value.nbytes] for address in self._addresses(operand, index)]
        return uploaded_table(rows, self._kernels.stream)

    def _addresses(self, operand: str, index: int) -> list[int]:
        if (operand, index) not in self._places:
            self._places[operand, index] = places_of(self._bound, lambda: self._layout.sources_on_host, operand, index)
        return [self.arena.address(place.buffer) + place.offset for place in self._places[operand, index]]

    def rewrite_vectors(self) -> None:
        """Writes inputs, outputs and scratch as they are: the traffic of `renew_vectors`, and nothing new."""
        for name in (*self._bound.names("input"), *map(at_the_start, self._bound.names("inout")), *self._written_names):
            self.arena.rewrite(name)
        self.restore()

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
        """A copy of the one output."""
        (output,) = self.outputs().values()
        return output

    @property
    def output_bytes(self) -> int:
        """Of copies of the outputs."""
        return sum(result.num_bytes for result in self._results)

    def outputs(self) -> dict[str, "cupy.ndarray"]:
        """Copies of the outputs and of what is changed in place, by name."""
        copies = {each.name: cupy.empty(each.shape, dtype=carrier_of(each.dtype)) for each in self._results}
        for name, copied in copies.items():
            self.arena.copy_out(name, copied)
        return copies

    @property
    def _results(self) -> tuple[BoundBuffer, ...]:
        return (*self._outputs, *self._changed)

    @property
    def _input(self) -> BoundBuffer:
        """The dense operand of a product."""
        (given,) = self._inputs
        return given

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
        self, sequence: LaunchSequence, draw: Draw, start: Starts | None, other: Draw | None
    ) -> Enqueue:
        """The sequence behind a kernel that lets it start at once and only then writes inputs, outputs and scratch.

        What a program reads of them before `griddepcontrol.wait` is NaN or, with `other`, what that draw has there;
        what it writes there is lost. Order and time of the writes are random.
        """
        sources = {given.name: draw.inputs[given.name] for given in self._inputs}
        sources |= {output.name: None if start is None else start[output.name] for output in self._outputs}
        sources |= {name: self._garbage(name) for name in self._bound.names("scratch")}
        held = {name: None if source is None else cupy.ascontiguousarray(source) for name, source in sources.items()}
        rows = [
            [0, self.arena.address(name), self.arena.size(name)]
            if source is None
            else [int(source.data.ptr), self.arena.address(name), source.nbytes]
            for name, source in held.items()
        ]
        secrets.SystemRandom().shuffle(rows)
        table = uploaded_table(rows, self._kernels.stream)
        result = None if other is None else other.right

        def enqueue(stream: int) -> None:
            for name in held:
                self.arena.poison(name)
            if other is not None and result is not None:
                for given in self._inputs:
                    self.arena.copy_in(given.name, other.inputs[given.name])
                for output in self._outputs:
                    self.arena.copy_in(output.name, result[output.name])
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
