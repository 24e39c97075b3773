"""One workload under evaluation: what the evaluation asks of it, and the implementation beside the device.

The sandbox offers the same protocol across a process boundary, with time limits (`sandbox.SandboxedWorkbench`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from services.evaluator.checking.correctness import Correct, MemoryDamaged, check, check_as_timed
from services.evaluator.checking.draws import FULL_CHECK, choose_draws, system_generator
from services.evaluator.compiling.contract.breach import breach
from services.evaluator.device import Device, Draw, LoadedKernel, RunFailure, Seal, Timing
from services.evaluator.isolation.built_formats import StoredMatrices
from sparsesmith.errors import InvalidProgram
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.matrix.values import FixedValues
from sparsesmith.program.binding import bind
from sparsesmith.program.program import KernelProgram, check_sizes
from sparsesmith_proto.kernel import Baselines, DeviceDescription, EstimatedTiming, Mismatch, Rejected, Workload

if TYPE_CHECKING:
    from services.evaluator.compiling.compiler import Compiled


@dataclass(frozen=True)
class Stored:
    """The program's format was built for the workload, and its launches are legal."""

    format_bytes: int
    """Scratch included, the program's own too."""
    conversion_ms: float


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

    def store(self, program: KernelProgram) -> Stored | Rejected | RunFailure:
        """Builds the program's format. Rejected where the pattern does not fit it, a launch or scratch its limits."""
        ...

    def store_ahead(self, programs: Sequence[KernelProgram], limit_s: float) -> None:
        """Builds the formats of programs on all cores, while nothing is timed; begins none after the limit."""
        ...

    def draw(self) -> None:
        """Draws the batch's inputs and their references unless it has."""
        ...

    def check(self, kernel_id: str, program: KernelProgram, binary: Compiled) -> Correct | Rejected | RunFailure:
        """Loads the program and checks it on the batch's inputs; it stays loaded under this id."""
        ...

    def time(self, kernel_id: str) -> Timing | RunFailure:
        """Times a kernel that was checked, briefly, and checks it again as it was timed."""
        ...

    def retime(self, kernel_ids: Sequence[str], routine: str) -> FinalTimes | RunFailure:
        """Times kernels at length, interleaved with a library routine, and checks them as they were timed."""
        ...

    def unload(self, kernel_id: str) -> None: ...


class LocalWorkbench:
    """Beside the device, in its process. The draws are made anew for every batch, and not before the batch is in hand:
    every program text of it was fixed before, so none can depend on them.

    Raises MemoryDamaged where a kernel wrote outside its output, whatever else it did.
    """

    def __init__(self, device: Device, workload: Workload, pattern: Pattern, values: FixedValues | None = None) -> None:
        self.workload = workload
        self._pattern = pattern
        self._values = values
        self._device = device
        self._bench = device.open(workload, pattern, values)
        self._matrices = StoredMatrices(pattern, workload.element_type, values)
        self._kernels: dict[str, LoadedKernel] = {}
        self._generator = system_generator()
        self._draws: tuple[Draw, ...] = ()
        self._seal: Seal = self._bench.seal(())
        self._num_repeated = 1

    def description(self) -> DeviceDescription:
        return self._device.description()

    def baselines(self) -> Baselines:
        return self._bench.baselines()

    def begin_batch(self) -> None:
        """Unloads the kernels of the batch before; its draws are not used again."""
        for kernel_id in list(self._kernels):
            self.unload(kernel_id)
        self._draws = ()

    def store(self, program: KernelProgram) -> Stored | Rejected:
        try:
            matrix = self._matrices.get(program)
            check_sizes(program, matrix.layout.sizes)
            bound = bind(program, matrix.layout, self.workload, self._pattern, self.description().num_sms)
        except InvalidProgram as error:
            return Rejected(message=error.message)
        return Stored(matrix.format_bytes + sum(bound.own_scratch.values()), matrix.conversion_ms)

    def store_ahead(self, programs: Sequence[KernelProgram], limit_s: float) -> None:
        self._matrices.build_ahead(programs, limit_s)

    def draw(self) -> None:
        if self._draws:
            return
        num_products = self._pattern.nnz * self.workload.num_dense_cols
        names = choose_draws(num_products, self._bench.max_products, self._generator)
        self._draws = tuple(map(self._bench.draw, names))
        self._seal = self._bench.seal(self._draws)
        everything_fits = self._bench.max_products >= FULL_CHECK * num_products
        self._num_repeated = len(names) if everything_fits else 1

    def check(self, kernel_id: str, program: KernelProgram, binary: Compiled) -> Correct | Rejected | RunFailure:
        self.unload(kernel_id)
        reason = breach(program, binary)
        if reason:
            return Rejected(message=reason)
        try:
            kernel = self._bench.load(program, self._matrices.get(program), binary)
        except InvalidProgram as error:
            return Rejected(message=error.message)
        if isinstance(kernel, Rejected | RunFailure):
            return kernel
        self._kernels[kernel_id] = kernel
        self.draw()
        verdict = check(kernel, self._draws, self._num_repeated)
        self._check_memory()
        if not isinstance(verdict, Correct):
            self.unload(kernel_id)
        return verdict

    def time(self, kernel_id: str) -> Timing | RunFailure:
        kernel = self._kernels[kernel_id]
        timing = kernel.time(self._draws[0])
        outcome = timing if isinstance(timing, RunFailure) else self._checked_as_timed(kernel, timing)
        self._check_memory()
        if isinstance(outcome, RunFailure):
            self.unload(kernel_id)
        return outcome

    def retime(self, kernel_ids: Sequence[str], routine: str) -> FinalTimes:
        kernels = [self._kernels[kernel_id] for kernel_id in kernel_ids]
        retimed = self._bench.retime(kernels, self._draws[0], routine)
        checked = (
            timing if isinstance(timing, RunFailure) else self._checked_as_timed(kernel, timing)
            for kernel, timing in zip(kernels, retimed.kernels, strict=True)
        )
        final = FinalTimes(dict(zip(kernel_ids, checked, strict=True)), retimed.routine)
        self._check_memory()
        return final

    def unload(self, kernel_id: str) -> None:
        kernel = self._kernels.pop(kernel_id, None)
        if kernel is not None:
            kernel.close()

    def close(self) -> None:
        self.begin_batch()
        self._bench.close()

    def _checked_as_timed(self, kernel: LoadedKernel, timing: Timing) -> Timing | RunFailure:
        """An estimated time had no timed runs, and the machine behind it sees every read of what a program left."""
        if isinstance(timing, EstimatedTiming):
            return timing
        timed, *others = self._draws
        other = others[int(self._generator.integers(len(others)))]
        verdict = check_as_timed(kernel, timed, other, self._generator)
        return timing if isinstance(verdict, Correct) else verdict

    def _check_memory(self) -> None:
        if not self._seal.is_intact():
            raise MemoryDamaged("the kernel wrote outside its output, into the inputs of other runs")


def damage(error: MemoryDamaged) -> Mismatch:
    """The outcome of a kernel that wrote outside its output."""
    return Mismatch(message=str(error))
