"""One workload under evaluation: what the evaluation asks of it, and the implementation beside the device.

The sandbox offers the same protocol across a process boundary, with time limits (`sandbox.SandboxedWorkbench`).
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Literal, Protocol

from services.evaluator.adverse import slowest
from services.evaluator.checking.correctness import Correct, MemoryDamaged, check, check_as_timed
from services.evaluator.checking.draws import choose_draws, kinds_of, system_generator
from services.evaluator.checking.repetition import Bits, num_runs, repeated_bits
from services.evaluator.compiling.contract.breach import breach
from services.evaluator.device import (
    BuiltMatrix,
    Counting,
    Device,
    Draw,
    Inspected,
    Inspecting,
    LoadedKernel,
    RunFailure,
    Seal,
    Timing,
)
from services.evaluator.isolation.built_formats import BuiltMatrices, Elsewhere
from sparsesmith.cuda.occupancy import occupancy
from sparsesmith.errors import InvalidProgram
from sparsesmith.operations import Problem
from sparsesmith.operations.operation import adverse_draws
from sparsesmith.program.binding import bind
from sparsesmith.program.program import KernelProgram, check_sizes
from sparsesmith_proto.evaluation import LaunchProfile, LaunchWork
from sparsesmith_proto.kernel import (
    AdverseTiming,
    Baselines,
    Crashed,
    DeviceDescription,
    EstimatedTiming,
    Mismatch,
    Rejected,
    Repeats,
    Workload,
)

if TYPE_CHECKING:
    from services.evaluator.compiling.compiler import Compiled


@dataclass(frozen=True)
class Built:
    """The program's format was built for the workload, and its launches are legal."""

    format_bytes: int
    """Scratch included, the program's own too."""
    conversion_ms: float
    built_on: Literal["host", "device"] = "host"


@dataclass(frozen=True)
class FinalTimes:
    """Of finalists and a library routine, timed in turns."""

    kernels: Mapping[str, Timing | RunFailure]
    routine: Timing


class Workbench(Protocol):
    """Stages of an evaluation, in order. A kernel that fails one of them is no longer loaded."""

    def description(self) -> DeviceDescription: ...

    def baselines(self) -> Baselines:
        """Times every library routine."""
        ...

    def build(self, program: KernelProgram) -> Built | Rejected | RunFailure:
        """Builds the program's format. Rejected where the pattern does not fit it, a launch or scratch its limits."""
        ...

    def build_first(self, program: KernelProgram) -> Built | Rejected | RunFailure:
        """As `build`, for `check_first`: built where that takes least time."""
        ...

    def build_ahead(self, programs: Sequence[KernelProgram], limit_s: float) -> None:
        """Builds the formats of programs on all cores, while nothing is timed; begins none after the limit."""
        ...

    def draw(self) -> None:
        """Draws the batch's inputs and their references unless it has."""
        ...

    def check(self, kernel_id: str, program: KernelProgram, binary: Compiled) -> Correct | Rejected | RunFailure:
        """Loads the program and checks it on the batch's inputs; it stays loaded under this id."""
        ...

    def time(self, kernel_id: str, vouched_to_us: float = math.inf) -> Timing | RunFailure:
        """Times a kernel that was checked, briefly, and checks it again as it was timed. See `LoadedKernel.time` on
        `vouched_to_us`."""
        ...

    def time_adverse(self, kernel_id: str) -> AdverseTiming | RunFailure | None:
        """Times a kernel that was checked on the inputs that the operation calls adverse, briefly, and checks it again
        as it was timed; None where it calls none so."""
        ...

    def retime(self, kernel_ids: Sequence[str], routine: str) -> FinalTimes | RunFailure:
        """Times kernels at length, interleaved with a library routine, and checks them as they were timed."""
        ...

    def draw_first(self) -> None:
        """Draws one input of the kind that is timed: all that `check_first` needs."""
        ...

    def check_first(self, program: KernelProgram, binary: Compiled) -> Correct | Rejected | RunFailure:
        """Loads a program, runs it once on the first input and lets it go. The full protocol has still to follow."""
        ...

    def repeat(self, program: KernelProgram, binary: Compiled) -> Repeats | Rejected | RunFailure:
        """Runs a program that passed on one draw again and again, in every context that can be had: Mismatch unless
        all give the same bits."""
        ...

    def profile(self, kernel_id: str, program: KernelProgram, binary: Compiled) -> tuple[LaunchProfile, ...]:
        """What the launches of a program that was checked in this batch do with the device; empty where that is not
        known any more."""
        ...

    def unload(self, kernel_id: str) -> None: ...


class LocalWorkbench:
    """Beside the device, in its process. The draws are made anew for every batch, and not before the batch is in hand:
    every program text of it was fixed before, so none can depend on them.

    Raises MemoryDamaged where a kernel wrote outside its output, whatever else it did.
    """

    def __init__(self, device: Device, problem: Problem) -> None:
        self._problem = problem
        self._device = device
        self._device_workload = device.open(problem)
        builds = device.builds_formats
        elsewhere = Elsewhere(self._device_workload.build, always=builds == "always") if builds != "never" else None
        self._matrices = BuiltMatrices(problem, elsewhere=elsewhere)
        self._kernels: dict[str, LoadedKernel] = {}
        self._works: dict[str, tuple[LaunchWork, ...]] = {}
        """What was counted of the kernels of this batch, those that are no longer loaded among them."""
        self._generator = system_generator()
        self._draws: tuple[Draw, ...] = ()
        self._seal: Seal = self._device_workload.seal(())
        self._num_repeated = 1
        self._first: Draw | None = None

    @property
    def workload(self) -> Workload:
        return self._problem.workload

    def description(self) -> DeviceDescription:
        return self._device.description()

    def baselines(self) -> Baselines:
        return self._device_workload.baselines()

    def begin_batch(self) -> None:
        """Unloads the kernels of the batch before; its draws are not used again."""
        for kernel_id in list(self._kernels):
            self.unload(kernel_id)
        self._draws = ()
        self._works = {}
        self._first = None

    def build(self, program: KernelProgram) -> Built | Rejected:
        return self._built(program, self._matrices.get)

    def build_first(self, program: KernelProgram) -> Built | Rejected:
        return self._built(program, self._matrices.get_at_once)

    def _built(self, program: KernelProgram, get: Callable[[KernelProgram], BuiltMatrix]) -> Built | Rejected:
        try:
            matrix = get(program)
            check_sizes(program, {**self._problem.sizes, **matrix.layout.sizes})
            bound = bind(program, matrix.layout, self._problem, self.description().num_sms)
        except InvalidProgram as error:
            return Rejected(message=error.message)
        format_bytes = matrix.format_bytes + sum(bound.own_scratch.values())
        return Built(format_bytes, matrix.conversion_ms, matrix.built_on)

    def build_ahead(self, programs: Sequence[KernelProgram], limit_s: float) -> None:
        self._matrices.build_ahead(programs, limit_s)

    def draw(self) -> None:
        if self._draws:
            return
        self._device_workload.vouch()
        num_products, kinds = self._problem.num_products, kinds_of(self._problem)
        most, affordable = self._device_workload.max_draws, self._device_workload.max_products
        names = choose_draws(num_products, affordable, self._generator, kinds, most)
        names = tuple(dict.fromkeys((*names, *adverse_draws(self._problem.operation))))
        self._draws = self._device_workload.draws(names)
        self._seal = self._device_workload.seal(self._draws)
        everything_fits = affordable >= 2 * len(kinds) * num_products
        self._num_repeated = len(names) if everything_fits else 1

    def check(self, kernel_id: str, program: KernelProgram, binary: Compiled) -> Correct | Rejected | RunFailure:
        self.unload(kernel_id)
        kernel = self._loaded(program, binary)
        if isinstance(kernel, Rejected | RunFailure):
            return kernel
        self._kernels[kernel_id] = kernel
        self.draw()
        verdict = check(kernel, self._draws, self._num_repeated)
        if isinstance(verdict, Correct) and self.workload.deterministic:
            bits = repeated_bits(kernel, self._draws[0], self._num_runs)
            verdict = replace(verdict, same_runs=bits.runs) if isinstance(bits, Bits) else bits
        self._check_memory()
        if not isinstance(verdict, Correct):
            self.unload(kernel_id)
        elif isinstance(kernel, Counting):
            self._works[kernel_id] = kernel.counted()
        return verdict

    def time(self, kernel_id: str, vouched_to_us: float = math.inf) -> Timing | RunFailure:
        kernel, timed = self._kernels[kernel_id], self._draws[0]
        timing = kernel.time(timed, vouched_to_us)
        outcome = timing if isinstance(timing, RunFailure) else self._checked_as_timed(kernel, timed, timing)
        self._check_memory()
        if isinstance(outcome, RunFailure):
            self.unload(kernel_id)
        return outcome

    def time_adverse(self, kernel_id: str) -> AdverseTiming | RunFailure | None:
        kernel = self._kernels[kernel_id]

        def time_on(draw: Draw) -> Timing | RunFailure:
            timing = kernel.time_on(draw)
            return timing if isinstance(timing, RunFailure) else self._checked_as_timed(kernel, draw, timing)

        adverse = adverse_draws(self._problem.operation)
        outcome = slowest([draw for draw in self._draws if draw.name in adverse], time_on)
        self._check_memory()
        if isinstance(outcome, RunFailure):
            self.unload(kernel_id)
        return outcome

    def retime(self, kernel_ids: Sequence[str], routine: str) -> FinalTimes:
        kernels = [self._kernels[kernel_id] for kernel_id in kernel_ids]
        retimed = self._device_workload.retime(kernels, self._draws[0], routine)
        checked = (
            timing if isinstance(timing, RunFailure) else self._checked_as_timed(kernel, self._draws[0], timing)
            for kernel, timing in zip(kernels, retimed.kernels, strict=True)
        )
        final = FinalTimes(dict(zip(kernel_ids, checked, strict=True)), retimed.routine)
        self._check_memory()
        return final

    def draw_first(self) -> None:
        if self._first is None:
            self._first = self._device_workload.draw(kinds_of(self._problem)[0])

    def check_first(self, program: KernelProgram, binary: Compiled) -> Correct | Rejected | RunFailure:
        """Raises MemoryDamaged."""
        self.draw_first()
        assert self._first is not None
        kernel = self._loaded(program, binary, self._matrices.get_at_once)
        if isinstance(kernel, Rejected | RunFailure):
            return kernel
        try:
            return check(kernel, [self._first], 0)
        finally:
            kernel.close()

    def inspect(self, program: KernelProgram, binary: Compiled) -> Inspected | Rejected | RunFailure:
        """Whether a run of a program does what CUDA leaves undefined; Rejected where this device cannot tell."""
        self.draw_first()
        assert self._first is not None
        kernel = self._loaded(program, binary)
        if isinstance(kernel, Rejected | RunFailure):
            return kernel
        if not isinstance(kernel, Inspecting):
            return Rejected(message="this device does not look at single accesses")
        return kernel.inspect(self._first)

    def _loaded(
        self, program: KernelProgram, binary: Compiled, get: Callable[[KernelProgram], BuiltMatrix] | None = None
    ) -> LoadedKernel | Rejected | Crashed:
        """`get`: where its format is had."""
        reason = breach(program, binary, deterministic=self.workload.deterministic)
        if reason:
            return Rejected(message=reason)
        try:
            return self._device_workload.load(program, (get or self._matrices.get)(program), binary)
        except InvalidProgram as error:
            return Rejected(message=error.message)

    def repeat(self, program: KernelProgram, binary: Compiled) -> Repeats | Rejected | RunFailure:
        """There is one context: this process."""
        bits = self.bits(program, binary, secrets.randbits(128))
        return Repeats(runs=bits.runs, contexts=1) if isinstance(bits, Bits) else bits

    def bits(
        self, program: KernelProgram, binary: Compiled, seed: int, runs: int | None = None
    ) -> Bits | Rejected | RunFailure:
        """What a program that passed a check leaves on the draw of a seed, in all of some runs; so many, or as many as
        checking one candidate may take."""
        kernel = self._device_workload.load(program, self._matrices.get(program), binary)
        if isinstance(kernel, Rejected | RunFailure):
            return kernel
        try:
            bits = repeated_bits(
                kernel, self._device_workload.draw(kinds_of(self._problem)[0], seed), runs or self._num_runs
            )
        finally:
            kernel.close()
        self._check_memory()
        return bits

    def profile(self, kernel_id: str, program: KernelProgram, binary: Compiled) -> tuple[LaunchProfile, ...]:
        device = self.description()
        bound = bind(program, self._matrices.get(program).layout, self._problem, device.num_sms)
        works: Sequence[LaunchWork | None] = self._works.get(kernel_id) or [None] * len(bound.launches)
        profiles = []
        for launch, work in zip(bound.launches, works, strict=True):
            used, threads = binary.resources[launch.kernel], prod(launch.block)
            shared_bytes = used.shared_bytes + launch.shared_bytes
            profile = LaunchProfile(
                kernel=launch.kernel,
                num_blocks=prod(launch.grid),
                threads_a_block=threads,
                registers=used.registers,
                spill_bytes=used.spill_bytes,
                shared_bytes=shared_bytes,
                occupancy=occupancy(device.architecture, threads, used.registers, shared_bytes),
                work=work,
            )
            profiles.append(profile)
        return tuple(profiles)

    @property
    def _num_runs(self) -> int:
        return num_runs(self._problem.num_products, self._device_workload.max_products)

    def unload(self, kernel_id: str) -> None:
        kernel = self._kernels.pop(kernel_id, None)
        if kernel is not None:
            kernel.close()

    def close(self) -> None:
        self.begin_batch()
        self._device_workload.close()

    def _checked_as_timed(self, kernel: LoadedKernel, timed: Draw, timing: Timing) -> Timing | RunFailure:
        """An estimated time had no timed runs, and the machine behind it sees every read of what a program left."""
        if isinstance(timing, EstimatedTiming):
            return timing
        others = [draw for draw in self._draws if draw is not timed]
        other = others[int(self._generator.integers(len(others)))]
        verdict = check_as_timed(kernel, timed, other, self._generator)
        return timing if isinstance(verdict, Correct) else verdict

    def _check_memory(self) -> None:
        if not self._seal.is_intact():
            raise MemoryDamaged("the kernel wrote outside its output, into the inputs of other runs")


def damage(error: MemoryDamaged) -> Mismatch:
    """The outcome of a kernel that wrote outside its output."""
    return Mismatch(message=str(error))
