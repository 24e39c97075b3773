"""A GPU as a Device: correctness, timing and baselines of kernel programs through the CUDA driver.

All of it runs in the sandbox's child process. What this does not protect against: a kernel that never ends (the parent
kills the process; the driver then frees the GPU), and reads outside a buffer.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from importlib import metadata
from typing import TYPE_CHECKING

import cupy
import numpy as np
from cupy.cuda import memory, runtime

from services.evaluator.checking.correctness import judge
from services.evaluator.checking.draw_memory import BESIDE, Held, held_draws
from services.evaluator.checking.draws import kinds_of, most_draws
from services.evaluator.compiling.toolchain import toolchain_versions
from services.evaluator.cuda.arena import Placement, random_placement
from services.evaluator.cuda.bandwidth import DeviceRates, measured_rates, peak_memory_gbs
from services.evaluator.cuda.building import MIN_NNZ, CudaMachine
from services.evaluator.cuda.carriers import NARROW, carrier_of
from services.evaluator.cuda.clocks import Clocks
from services.evaluator.cuda.draws import DeviceDraws
from services.evaluator.cuda.host_draws import HostDraws
from services.evaluator.cuda.kernel import CudaKernel
from services.evaluator.cuda.large_products import multiplied_on_device
from services.evaluator.cuda.launch import LaunchRefused, cuda_errors
from services.evaluator.cuda.layout_cache import LayoutCache
from services.evaluator.cuda.library.baselines import LibraryRoutines
from services.evaluator.cuda.memory import SealedMemory, whole_array
from services.evaluator.cuda.own_kernels import DeviceKernels
from services.evaluator.cuda.own_routines import OwnRoutines
from services.evaluator.cuda.program import DeviceProgram
from services.evaluator.cuda.replays import MANY
from services.evaluator.cuda.residents import DeviceLayout, HeldDraws, built_layout, upload_layout
from services.evaluator.cuda.stopwatch import Stopwatch
from services.evaluator.cuda.timed_sequence import Instruments, TimedSequence, measure_in_turns
from services.evaluator.device import (
    VALUES,
    BuildsFormats,
    BuiltMatrix,
    Draw,
    LoadedKernel,
    Ran,
    Retimed,
)
from services.evaluator.measuring.interval import FULL, READ_MARGIN, ByteFloor, TimingBudget, l2_bandwidth_bound_gbs
from services.evaluator.measuring.placements import (
    AT_A_PLACEMENT,
    NUM_PLACEMENTS,
    PLACED_BELOW_US,
    is_surely_placed,
    over_placements,
)
from sparsesmith.cuda.cusparse import CuSparse
from sparsesmith.elements import ELEMENTS
from sparsesmith.errors import InvalidProgram, LimitExceeded
from sparsesmith.formats.format import Format, Layout, Parameters
from sparsesmith.formats.on_device.catalogue import build_on_device
from sparsesmith.formats.on_device.rehearsal import rehearse_building
from sparsesmith.operations import Problem
from sparsesmith.operations.large_products import install
from sparsesmith.operations.operation import Expected, adverse_draws
from sparsesmith.operations.product import SparseProduct
from sparsesmith.program.binding import bind
from sparsesmith.program.program import KernelProgram
from sparsesmith_proto.kernel import Baselines, Crashed, DeviceDescription, MeasuredTiming, Rejected

if TYPE_CHECKING:
    from services.evaluator.compiling.compiler import Compiled

MAX_PRODUCTS = 10**14
"""Multiply-adds to check one candidate: no bound in practice, a GPU does them in seconds."""
_LAYOUT_SHARE = 8
"""Uploaded formats of one workload may take this fraction of the memory (one eighth)."""
_CLOCK_RATE_ATTRIBUTE = 13  # cudaDevAttrClockRate, kHz


class CudaDevice:
    """One GPU by its index among the visible ones, its context owned by this process."""

    def __init__(
        self,
        index: int = 0,
        *,
        known: DeviceDescription | None = None,
        builds_formats: BuildsFormats = "never",
        sharers: int = 1,
    ) -> None:
        """Seconds on a machine that has not run this before: CuPy compiles and caches its kernels.

        `known`: what another process has found out about this GPU, measured rates included.
        `builds_formats`: see Device. `sharers`: evaluators that have equal parts of its memory.
        """
        self.builds_formats = builds_formats
        self._sharers = sharers
        self._index = index
        self._known = known
        with cuda_errors():
            cupy.cuda.Device(index).use()
            self._properties = runtime.getDeviceProperties(index)
            self.stream = cupy.cuda.Stream(non_blocking=True)
            self.stream.use()
            if sharers > 1:  # What fits must not depend on what the others hold at the moment.
                cupy.get_default_memory_pool().set_limit(size=self.memory_bytes)
        self.clocks = Clocks(cupy.cuda.Device(index).pci_bus_id)
        self.kernels = DeviceKernels(self.stream, self.num_sms)
        self.machine = CudaMachine(self.stream)
        self.stopwatch = Stopwatch(self.kernels, self.l2_bytes)
        self.instruments = Instruments(self.stopwatch, self.clocks)
        if known is None:
            # Else CuPy's cache has it all: a spare process is to be ready soon.
            rehearse_judging(self.kernels)
            if builds_formats != "never":
                rehearse_building(self.machine)
        install(multiplied_on_device)

    @property
    def num_sms(self) -> int:
        return int(self._properties["multiProcessorCount"])

    @property
    def l2_bytes(self) -> int:
        return int(self._properties["l2CacheSize"])

    @property
    def memory_bytes(self) -> int:
        """This evaluator's part."""
        return int(self._properties["totalGlobalMem"]) // self._sharers

    @property
    def architecture(self) -> str:
        return f"sm_{self._properties['major']}{self._properties['minor']}"

    @cached_property
    def rates(self) -> DeviceRates:
        """Measured once a process."""
        return measured_rates(self.kernels, self.stopwatch)

    @cached_property
    def library(self) -> CuSparse:
        return CuSparse(self.stream.ptr)

    @property
    def max_sm_clock_mhz(self) -> int:
        return self.clocks.max_sm_clock_mhz or self._clock_rate_mhz()

    @property
    def peak_memory_gbs(self) -> float:
        """The rate at which the memory's pins can move data, 1e9 bytes a second; 0 where the driver does not tell."""
        return peak_memory_gbs(self._index, self.clocks.max_memory_clock_mhz)

    def _clock_rate_mhz(self) -> int:
        with cuda_errors():
            return int(runtime.deviceGetAttribute(_CLOCK_RATE_ATTRIBUTE, self._index)) // 1000

    def description(self) -> DeviceDescription:
        """See Device.description."""
        if self._known is None:
            self._known = self._described()  # Asked for with every format: to look up releases takes a millisecond.
        return self._known

    def _described(self) -> DeviceDescription:
        return DeviceDescription(
            kind="cuda",
            name=_text(self._properties["name"]),
            architecture=self.architecture,
            num_sms=self.num_sms,
            copy_bandwidth_gbs=self.rates.copy_bandwidth_gbs,
            versions={
                "driver": self.clocks.driver_version,
                "cuda": _cuda_version(int(runtime.driverGetVersion())),
                "cupy": cupy.__version__,
                "cusparse": self.library.version,
                "sparsesmith": _package_version(),
                **toolchain_versions(),
            },
        )

    def open(self, problem: Problem) -> "CudaWorkload":
        """See Device.open."""
        cupy.get_default_memory_pool().free_all_blocks()
        free_bytes, _ = runtime.memGetInfo()
        return CudaWorkload(self, problem, room_for(problem, min(int(free_bytes), self.memory_bytes)))

    def settle(self) -> None:
        """See Device.settle."""
        if self._sharers > 1:
            with cuda_errors():
                runtime.deviceSynchronize()

    def close(self) -> None:
        """See Device.close."""
        cupy.get_default_memory_pool().free_all_blocks()


class CudaWorkload:
    """Implements the DeviceWorkload protocol."""

    def __init__(self, device: CudaDevice, problem: Problem, room: Held) -> None:
        self._device = device
        self._problem = problem
        self._room = room
        self._draws = HeldDraws(device.kernels)
        self._source: DeviceDraws | HostDraws
        if is_product(problem):
            self._source = DeviceDraws(problem, device.kernels, self._draws)
        else:
            self._source = HostDraws(problem, self._draws, room.num_fresh)
        self._layouts = LayoutCache[DeviceLayout](
            lambda layout: upload_layout(layout, device.kernels), device.memory_bytes // _LAYOUT_SHARE
        )
        self._kernels: list[CudaKernel] = []
        self._brief_placement = random_placement()

    @property
    def max_products(self) -> int:
        """See DeviceWorkload.max_products."""
        return MAX_PRODUCTS

    @property
    def max_draws(self) -> int:
        """See DeviceWorkload.max_draws."""
        return self._room.num_draws

    @cached_property
    def _floor(self) -> ByteFloor:
        """Looks at every nonzero: not before something is timed."""
        return byte_floor(self._device, self._problem)

    @cached_property
    def _routines(self) -> LibraryRoutines | OwnRoutines:
        device, problem = self._device, self._problem
        if not has_library(problem):
            return OwnRoutines(problem, self.load, device.architecture, device.num_sms, self._draws)
        return LibraryRoutines(device.library, problem, device.kernels, device.instruments)

    def baselines(self) -> Baselines:
        """See DeviceWorkload.baselines. Checked on draws of its own, two and those that are called adverse."""
        self.vouch()
        if isinstance(self._routines, LibraryRoutines):
            return self._routines.baselines(*self._source.draws(("uniform", "integers"), are_timed=False))
        kinds = kinds_of(self._problem)
        names = (kinds[0], kinds[-1], *adverse_draws(self._problem.operation))
        first, second, *adverse = self._source.draws(names, are_timed=False)
        return self._routines.baselines(first, second, adverse)

    def draw(self, name: str, seed: int | None = None) -> Draw:
        """See DeviceWorkload.draw."""
        return self._source.draw(name, seed)

    def draws(self, names: Sequence[str]) -> tuple[Draw, ...]:
        """See DeviceWorkload.draws."""
        return self._source.draws(names)

    def vouch(self) -> None:
        """See DeviceWorkload.vouch."""
        self._source.vouch()

    def seal(self, draws: Sequence[Draw]) -> SealedMemory:
        """See DeviceWorkload.seal."""
        beside = enumerate((*draws, *self._source.beside))
        arrays = {f"{label}, {place}": array for place, held in beside for label, array in _labelled(held)}
        segments = [whole_array(label, array) for label, array in (arrays | self._source.pattern_arrays()).items()]
        sealed = SealedMemory(segments, self._device.kernels)
        sealed.seal()
        return sealed

    def build(self, key: str, format_: Format, parameters: Parameters) -> Layout | None:
        """See DeviceWorkload.build."""
        source, problem = self._source, self._problem
        if not isinstance(source, DeviceDraws) or problem.nnz < MIN_NNZ:
            return None
        machine = self._device.machine
        try:
            built = build_on_device(machine, source.csr(), format_, parameters, problem.pattern)
            if built is None:
                return None
            again = partial(format_.build, problem.pattern, parameters)
            held = built_layout(built, again, self._device.kernels)
            self._layouts.hold(key, held, again)
            with cuda_errors():
                self._device.stream.synchronize()  # What it took is the conversion's time.
        except memory.OutOfMemoryError:
            return None
        return held.layout

    def load(self, program: KernelProgram, matrix: BuiltMatrix, binary: "Compiled") -> CudaKernel | Rejected | Crashed:
        """See DeviceWorkload.load."""
        try:
            kernel = self._loaded(program, matrix, binary.cubin)
        except InvalidProgram as error:
            return Rejected(message=error.message)
        except LaunchRefused as refusal:
            return Crashed(message=f"the driver refused the program: {refusal}")
        except memory.OutOfMemoryError as error:
            return Rejected(message=f"its format does not fit the device's memory: {error}")
        self._kernels.append(kernel)
        return kernel

    def _loaded(self, program: KernelProgram, matrix: BuiltMatrix, cubin: bytes) -> CudaKernel:
        device = self._device
        bound = bind(program, matrix.layout, self._problem, device.num_sms)
        loaded = DeviceProgram(bound, cubin, self._layouts.get(matrix), device.kernels)
        return CudaKernel(
            loaded,
            self._source,
            self._draws,
            device.kernels,
            device.instruments,
            lambda: self._floor,
            self._brief_placement,
        )

    def retime(self, kernels: Sequence[LoadedKernel], draw: Draw, routine: str) -> Retimed:
        """See DeviceWorkload.retime."""
        own = [kernel for kernel in kernels if isinstance(kernel, CudaKernel)]
        if len(own) != len(kernels):
            raise TypeError("retime() takes kernels that were loaded for this workload")
        timings = self._in_finals(own, draw, routine)
        *kernel_timings, library = (timing.model_copy(update={"is_final": True}) for timing in timings)
        # What the last products of each left in its memory is still there: the others have memory of their own.
        vouched = [kernel.vouched(timing, draw, FULL, MANY) for kernel, timing in zip(own, kernel_timings, strict=True)]
        return Retimed(kernels=tuple(vouched), routine=library)

    def _in_finals(self, kernels: Sequence[CudaKernel], draw: Draw, routine: str) -> Sequence[MeasuredTiming]:
        if not is_surely_placed(kernel.brief_us for kernel in kernels):
            first = self._sequences(kernels, draw, routine, FULL, [self._brief_placement] * len(kernels))
            with self._draws.hidden():
                fastest_us = min(sequence.batch_us() for sequence in first)
                if fastest_us > PLACED_BELOW_US:
                    return measure_in_turns(first, self._device.instruments, FULL)
        rounds = [self._in_turns_elsewhere(kernels, draw, routine) for _ in range(NUM_PLACEMENTS)]
        return [over_placements(timings) for timings in zip(*rounds, strict=True)]

    def _in_turns_elsewhere(
        self, kernels: Sequence[CudaKernel], draw: Draw, routine: str
    ) -> tuple[MeasuredTiming, ...]:
        """The kernels, then the routine, all with their buffers at other addresses than before."""
        self._routines.move()
        placements = [random_placement() for _ in kernels]
        sequences = self._sequences(kernels, draw, routine, AT_A_PLACEMENT, placements)
        with self._draws.hidden():
            return measure_in_turns(sequences, self._device.instruments, AT_A_PLACEMENT)

    def _sequences(
        self,
        kernels: Sequence[CudaKernel],
        draw: Draw,
        routine: str,
        budget: TimingBudget,
        placements: Sequence[Placement],
    ) -> list[TimedSequence]:
        own = [
            kernel.timed_sequence(draw, budget, placement)
            for kernel, placement in zip(kernels, placements, strict=True)
        ]
        return [*own, self._routines.sequence(routine, draw, budget)]

    def close(self) -> None:
        """See DeviceWorkload.close."""
        for kernel in self._kernels:
            kernel.close()
        self._kernels.clear()
        cupy.get_default_memory_pool().free_all_blocks()


def rehearse_judging(kernels: DeviceKernels) -> None:
    """Makes CuPy compile what judging a result takes, before any stage's time limit runs (seconds on a new machine)."""
    some = cupy.zeros(4, "float64")
    kernels.largest_error(some, some, some, some)
    for dtype in ("float32", "float64", "int32"):
        # Reductions of many entries are other kernels than those of few.
        for shape in ((4,), (4, 2), (4096,), (1024, 4)):
            ones, wide = cupy.zeros(shape, dtype), cupy.zeros(shape, "float64")
            expected = {"y": Expected(wide, wide, wide)}
            inputs = {VALUES: ones, "x": ones}
            rehearsal = Draw("rehearsal", inputs, expected, {"y": np.dtype(dtype)}, widened=kernels.widened)
            judge(Ran({"y": ones}, guards_intact=True, inputs_intact=True), rehearsal)
            judge(Ran({"y": ones + 1}, guards_intact=True, inputs_intact=True), rehearsal)
            # As check_as_timed does: a starting output with one entry spoiled.
            spoiled = wide.astype(dtype).copy()
            spoiled.reshape(-1)[1] = 2.0
    for element_type in NARROW:
        # Judged in float64, spoiled as they are.
        cupy.zeros(4, carrier_of(element_type))[1] = 2


def _labelled(held: Draw) -> Iterator[tuple[str, "cupy.ndarray"]]:
    """Every array of a draw, with a name for it."""
    yield from ((f"{name} of {held.name}", array) for name, array in held.inputs.items())
    for name, each in held.expected.items():
        for field in ("reference", "bound", "magnitude"):
            yield f"{field} of {name} of {held.name}", getattr(each, field)


def byte_floor(device: CudaDevice, problem: Problem) -> ByteFloor:
    """The bytes that every program must move for this problem, and what this GPU can move at most."""
    return ByteFloor(
        required_bytes=problem.floor.bytes_moved,
        l2_bytes=device.l2_bytes,
        dram_gbs=max(READ_MARGIN * device.description().copy_bandwidth_gbs, device.peak_memory_gbs),
        l2_gbs=l2_bandwidth_bound_gbs(device.num_sms, device.max_sm_clock_mhz),
    )


def has_library(problem: Problem) -> bool:
    """Whether the vendor's library computes it: products with A or A^T, scaled or not."""
    return isinstance(problem.operation, SparseProduct)


def is_product(problem: Problem) -> bool:
    """Whether draws and references are computed on the device: of A times one dense operand."""
    return type(problem.operation) is SparseProduct


def room_for(problem: Problem, free_bytes: int) -> Held:
    """How many draws there are at once. Raises LimitExceeded where the workload does not fit with the fewest."""
    if not is_product(problem):
        return held_draws(problem, free_bytes)
    needed = product_bytes(problem)
    if needed > free_bytes:
        raise LimitExceeded(
            f"the workload needs about {needed} bytes of device memory, {free_bytes} bytes are free",
            field="pattern",
            value=needed,
            limit=free_bytes,
        )
    return Held(most_draws(problem), num_fresh=0)


def product_bytes(problem: Problem) -> int:
    """Device memory of a product for the pattern, the draws, one format and one program's buffers, generously."""
    pattern, element_bytes = problem.pattern, ELEMENTS[problem.element_type].num_bytes
    columns = problem.workload.num_dense_cols
    of_pattern = 4 * (pattern.nnz + pattern.num_rows + 1)
    a_draw = pattern.nnz * element_bytes + columns * (pattern.num_cols * element_bytes + 3 * 8 * pattern.num_rows)
    a_program = 3 * pattern.nnz * (element_bytes + 8) + columns * element_bytes * (pattern.num_cols + pattern.num_rows)
    return of_pattern + (BESIDE + most_draws(problem)) * a_draw + a_program


def _text(name: bytes | str) -> str:
    return name.decode() if isinstance(name, bytes) else name


def _cuda_version(version: int) -> str:
    """13000 as `13.0`."""
    return f"{version // 1000}.{version % 1000 // 10}"


def _package_version() -> str:
    try:
        return metadata.version("sparsesmith")
    except metadata.PackageNotFoundError:
        return "source"
