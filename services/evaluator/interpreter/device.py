"""A device without a GPU: compiled PTX on the interpreter, which checks every access; times are a model's estimates.

The memory checker sees what guard zones only suspect: an access outside a buffer, or a write to one that is read-only,
ends the run.

Nothing of a run survives it: output and scratch may not be read before the program has written them and are filled
anew, programs with `__device__` variables are refused. That is why estimated times need no check for work that is
skipped when repeated.

Blocks run one after another, in the second run of each input from the last to the first: a result that depends on
their order is wrong in one of the two. Where the workload asks for equal bits, blocks and warps of every run but the
first are in an order chosen anew.

What it does not protect against: differences between the interpreter and a real device (scheduling, memory order
between blocks); a program that passes here is checked again where a GPU is.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from importlib import metadata
from math import prod

import numpy as np

from services.evaluator.adverse import slowest
from services.evaluator.candidates import program_of
from services.evaluator.checking.correctness import Correct, HostSeal, check
from services.evaluator.checking.drawn_at_once import Batch, Drawn, OfKind, draw_at_once, room_for
from services.evaluator.checking.draws import draw as draw_on_host
from services.evaluator.checking.draws import kinds_of, most_draws, system_generator
from services.evaluator.compiling.compiler import Compiled, compile_own
from services.evaluator.compiling.log import KernelResources
from services.evaluator.compiling.toolchain import toolchain_versions
from services.evaluator.device import (
    BuildsFormats,
    BuiltMatrix,
    Draw,
    Inspected,
    LoadedKernel,
    Ran,
    Retimed,
    RunFailure,
    Starts,
    Timing,
)
from services.evaluator.interpreter import (
    Argument,
    Buffer,
    Counts,
    Finding,
    PtxModule,
    UnsupportedPtx,
    launch,
    load_module,
    nothing_written,
    warm_up,
)
from services.evaluator.interpreter.machine.launching import DEFAULT_MAX_WARP_STEPS, NUM_MULTIPROCESSORS
from services.evaluator.interpreter.machine.report import LaunchReport
from services.evaluator.interpreter.machine.traffic import H200, TRAFFIC_MODEL, estimate_time
from services.evaluator.interpreter.plain_kernels import plain_programs
from sparsesmith.errors import LimitExceeded, Unavailable
from sparsesmith.formats.format import EMPTY_LAYOUT, WRITABLE_ROLES, Format, Layout, Parameters
from sparsesmith.formats.format import Argument as KernelArgument
from sparsesmith.formats.values.compressed import build_layout
from sparsesmith.operations import Problem
from sparsesmith.operations.operation import adverse_draws
from sparsesmith.program.binding import BoundBuffer, bind
from sparsesmith.program.directives import ResolvedLaunch
from sparsesmith.program.program import KernelProgram
from sparsesmith_proto.evaluation import LaunchWork, LineWork
from sparsesmith_proto.kernel import (
    Baselines,
    BaselineTiming,
    Crashed,
    DeviceDescription,
    EstimatedTiming,
    Mismatch,
    Rejected,
    TimedOut,
)
from sparsesmith_proto.message import Architecture

MAX_PRODUCTS = 5_000_000
"""All five inputs, each twice, up to 500,000 nonzeros; larger matrices get fewer (see `operands.choose_draws`)."""

WARP_STEPS_A_PRODUCT = 64
WARP_STEPS_A_RESULT = 256
"""A program may execute this many warp instructions a multiply-add, and this many an element of the result (a warp
takes 60 for an empty row), before it counts as endless."""

FULL_LAUNCHES = 8
"""All launches of a program together may execute as much as so many that each execute all they may."""

WARP_LANES = 32
BLOCK_REGISTERS = 65_536
REGISTER_UNIT = 8
"""Registers of a thread are given out in multiples of this."""

DEPENDENT_ROLES = ("input", *WRITABLE_ROLES)
"""What kernels before a program may still be using while it starts."""

MAX_TOLD_LINES = 8
"""The busiest lines of a program that a profile holds."""

INSPECTED_WORK = 100_000
"""Multiply-adds and elements of the result up to which an inspection runs all blocks of all launches."""
INSPECTED_BLOCKS = 64
"""Of the first launch, where there is more."""
INSPECTED_WARP_STEPS = 2_000_000
"""Most that an inspection of a launch executes: about a second."""

POISON = 0xFF
"""Each byte of scratch and outputs before a run: NaN as a floating-point number, -1 as an index. Reading it is found
anyway."""

MAX_ROWS = 10_000_000
MAX_ALL_PRODUCTS = 1_000_000_000
MAX_DENSE_ELEMENTS = 64_000_000
"""Beyond them the plain kernels take longer than the stage of the baselines may, or the operands most of a laptop's
memory."""


class InterpreterDevice:
    """Constructed in the sandbox's child, which compiles its own stand-ins for the library."""

    builds_formats: BuildsFormats = "never"

    def __init__(self, architecture: Architecture = "sm_90") -> None:
        """Compiles the machine where no process of this computer has: minutes, which no stage's limit allows for."""
        self.architecture = architecture
        warm_up()

    def description(self) -> DeviceDescription:
        return self._description

    @cached_property
    def _description(self) -> DeviceDescription:
        return DeviceDescription(
            kind="interpreter",
            name="PTX interpreter",
            architecture=self.architecture,
            num_sms=NUM_MULTIPROCESSORS,
            copy_bandwidth_gbs=H200.dram_bytes_per_us / 1e3,
            versions={"numba": metadata.version("numba"), **toolchain_versions()},
        )

    def open(self, problem: Problem) -> "InterpreterWorkload":
        """See Device.open."""
        check_size(problem)
        return InterpreterWorkload(self, problem)

    def settle(self) -> None:
        """Nothing runs on."""

    def close(self) -> None:
        """Nothing is held."""


def check_size(problem: Problem) -> None:
    """Raises LimitExceeded where the interpreter would not come to an end in time."""
    for what, value, limit in (
        ("rows", problem.sizes.get("num_rows", 0), MAX_ROWS),
        ("multiply-adds", problem.num_products, MAX_ALL_PRODUCTS),
        ("elements in the dense operands", problem.num_elements, MAX_DENSE_ELEMENTS),
    ):
        if value > limit:
            raise LimitExceeded(
                f"the workload has {value} {what}: without a GPU, at most {limit}", field=what, value=value, limit=limit
            )


class InterpreterWorkload:
    """One problem on the interpreter."""

    def __init__(self, device: InterpreterDevice, problem: Problem) -> None:
        self._device = device
        self.problem = problem
        self._generator = system_generator()
        self._routines: dict[str, Timing] = {}

    @property
    def max_products(self) -> int:
        """Fewer where there are fewer products than results, which take their time as well."""
        num_products = self.problem.num_products
        return MAX_PRODUCTS * num_products // max(num_products, self.problem.num_results)

    @property
    def max_draws(self) -> int:
        """See DeviceWorkload.max_draws. The host's memory, of which nobody asks how much is free."""
        return most_draws(self.problem)

    def baselines(self) -> Baselines:
        """The plain kernels, checked on one draw. Raises Unavailable where they cannot be compiled or fail."""
        checked = self.draw("uniform" if self.problem.matrix is not None else kinds_of(self.problem)[0])
        programs = plain_programs(self.problem.workload)
        routines = (self._routine(name, text, checked) for name, text in programs.items())
        timed = tuple(routine for routine in routines if routine is not None)
        if not timed:
            names = ", ".join(programs)
            raise Unavailable(
                f"{names}: other bits for equal inputs, and deterministic=true asks for a baseline without"
            )
        self._routines = {routine.routine: routine.timing for routine in timed}
        return Baselines(default=timed[0].routine, routines=timed)

    def draw(self, name: str, seed: int | None = None) -> Draw:
        return draw_on_host(name, self.problem, self._generator if seed is None else np.random.default_rng(seed))

    def draws(self, names: Sequence[str]) -> tuple[Draw, ...]:
        """See DeviceWorkload.draws: nothing is run again."""
        found: dict[int, Draw] = {}

        def take(drawn: Drawn) -> None:
            if isinstance(drawn, OfKind):
                found[drawn.place] = drawn.draw

        draw_at_once(self.problem, Batch(names), self._generator, room_for(self.problem), take)
        return tuple(found[place] for place in range(len(names)))

    def vouch(self) -> None:
        """References are made on the host, by the operation itself."""

    def seal(self, draws: Sequence[Draw]) -> HostSeal:
        return HostSeal(draws)

    def load(
        self, program: KernelProgram, matrix: BuiltMatrix, binary: Compiled
    ) -> "InterpretedKernel | Rejected | Crashed":
        try:
            module = load_module(binary.ptx)
        except UnsupportedPtx as error:
            return Rejected(message=f"the interpreter does not model this program: {error}")
        kernel = InterpretedKernel(self, program, matrix, module)
        return kernel.lack_of_registers(binary.resources) or kernel

    def build(self, key: str, format_: Format, parameters: Parameters) -> Layout | None:
        """The host builds."""
        return None

    def retime(self, kernels: Sequence[LoadedKernel], draw: Draw, routine: str) -> Retimed:
        """Estimates do not drift: the ones there are."""
        own = [kernel for kernel in kernels if isinstance(kernel, InterpretedKernel)]
        return Retimed(tuple(kernel.time(draw) for kernel in own), self._routines[routine])

    def close(self) -> None:
        """Nothing is held."""

    def _routine(self, name: str, text: str, checked: Draw) -> BaselineTiming | None:
        """None: it gives other bits each time where the workload asks for equal ones, or cannot be scaled where it
        asks for that."""
        problem = self.problem
        program = program_of(text, problem.workload)
        binary = compile_own(program.source, self._device.architecture)
        if not isinstance(binary, Compiled):
            if problem.workload.alpha_beta:  # It adds to its output.
                return None
            raise Unavailable(f"the baseline {name} does not compile: {binary.log}")
        if problem.workload.deterministic and any(each.unordered for each in binary.facts.kernels.values()):
            return None
        started = time.perf_counter()
        matrix = problem.matrix
        layout = EMPTY_LAYOUT if matrix is None else build_layout(program.format, program.parameters, matrix, None)
        preparation_ms = (time.perf_counter() - started) * 1e3
        kernel = self.load(program, BuiltMatrix(name, layout, 0, preparation_ms), binary)
        if not isinstance(kernel, InterpretedKernel):
            raise Unavailable(f"the baseline {name} is refused: {kernel.message}")
        verdict = check(kernel, [checked], 0)
        if not isinstance(verdict, Correct):
            raise Unavailable(f"the baseline {name} fails: {verdict.message}")
        adverse = slowest([self.draw(kind) for kind in adverse_draws(problem.operation)], kernel.time_on)
        if isinstance(adverse, RunFailure):
            raise Unavailable(f"the baseline {name} fails: {adverse.message}")
        timing = kernel.time(checked)
        return BaselineTiming(routine=name, timing=timing, preparation_ms=preparation_ms, adverse=adverse)


class InterpretedKernel:
    """A program, its launches resolved for the workload."""

    def __init__(
        self,
        device_workload: InterpreterWorkload,
        program: KernelProgram,
        matrix: BuiltMatrix,
        module: PtxModule,
    ) -> None:
        """Raises InvalidProgram for a launch beyond CUDA's limits."""
        problem = device_workload.problem
        self._device_workload = device_workload
        self._matrix = matrix
        self._module = module
        self._shuffle = system_generator() if problem.workload.deterministic else None
        self._bound = bind(program, matrix.layout, problem, NUM_MULTIPROCESSORS)
        allowance = WARP_STEPS_A_PRODUCT * problem.num_products + WARP_STEPS_A_RESULT * problem.num_results
        self._max_warp_steps = max(DEFAULT_MAX_WARP_STEPS, allowance)
        self._counts: dict[str, tuple[Counts, ...]] = {}
        """Of the first run on each draw, by its name."""
        self._waits_for_blocks = False

    def lack_of_registers(self, resources: Mapping[str, KernelResources]) -> Crashed | None:
        """What a device would say of a block whose threads need more registers than a multiprocessor has."""
        for resolved in self._bound.launches:
            num_threads = -(-prod(resolved.block) // WARP_LANES) * WARP_LANES
            registers = -(-resources[resolved.kernel].registers // REGISTER_UNIT) * REGISTER_UNIT
            if num_threads * registers > BLOCK_REGISTERS:
                return Crashed(
                    message=f"kernel {resolved.kernel}: the launch was refused: {registers} registers for each of "
                    f"{num_threads} threads, a block has {BLOCK_REGISTERS}; __launch_bounds__ lets the compiler know"
                )
        return None

    def run(self, draw: Draw, start: Starts | None) -> Ran | RunFailure:
        """See LoadedKernel.run. With a `start` blocks go from the last to the first, or in random order: CUDA promises
        none.

        A program whose blocks wait for earlier ones, which real devices start first, keeps the usual order.
        """
        if start is None or self._waits_for_blocks:
            return self._run(draw, start, is_reordered=False)
        ran = self._run(draw, start, is_reordered=True)
        if isinstance(ran, TimedOut):
            self._waits_for_blocks = True
            return self._run(draw, start, is_reordered=False)
        return ran

    def _run(self, draw: Draw, start: Starts | None, *, is_reordered: bool) -> Ran | RunFailure:
        arrays = self._arrays(draw, start)
        arguments = [self._argument(argument, arrays) for argument in self._bound.arguments]
        counts = []
        steps_left = FULL_LAUNCHES * self._max_warp_steps
        for resolved in self._bound.launches:
            report = self._launched(
                resolved,
                arguments,
                min(self._max_warp_steps, steps_left),
                stride=-1 if is_reordered and self._shuffle is None else 1,
                shuffle=self._shuffle if is_reordered else None,
            )
            if report.finding is not None:
                return failure(report.finding, f"input {draw.name}, kernel {resolved.kernel}")
            counts.append(report.counts)
            steps_left -= report.counts.warp_instructions
        self._counts.setdefault(draw.name, tuple(counts))
        written = self._bound.with_role("output", "inout")
        outputs = {buffer.name: arrays[buffer.name].reshape(buffer.shape) for buffer in written}
        return Ran(outputs, guards_intact=True, inputs_intact=True)

    def inspect(self, draw: Draw) -> Inspected | Crashed | Mismatch:
        """All blocks of a small problem, else the last block of the first launch and others at random. Which other
        block wrote what one of those reads is not known then: such a read ends the inspection and says nothing, and so
        does a wait that does not end, for a block that was left out, perhaps. Where all blocks run it is a finding.

        See Inspecting.inspect.
        """
        problem = self._device_workload.problem
        is_whole = problem.num_products + problem.num_results <= INSPECTED_WORK
        arrays = self._arrays(draw, None)
        arguments = [self._argument(argument, arrays) for argument in self._bound.arguments]
        num_blocks = 0
        for resolved in self._bound.launches if is_whole else self._bound.launches[:1]:
            stride = 1 if is_whole else max(1, prod(resolved.grid) // INSPECTED_BLOCKS)
            shuffle = system_generator() if stride > 1 else None
            report = self._launched(resolved, arguments, INSPECTED_WARP_STEPS, stride=stride, shuffle=shuffle)
            num_blocks += report.counts.blocks
            if report.finding is not None:
                found = failure(report.finding, f"seen by the interpreter, kernel {resolved.kernel}")
                if report.finding.kind == "endless" and is_whole:
                    return Mismatch(message=f"{found.message}: on a device it is the schedule that lets it through")
                if isinstance(found, TimedOut) or (stride > 1 and report.finding.kind == "uninitialised_read"):
                    break
                return found
        return Inspected(num_blocks, sum(prod(resolved.grid) for resolved in self._bound.launches))

    def _launched(
        self,
        resolved: ResolvedLaunch,
        arguments: Sequence[Argument],
        max_warp_steps: int,
        *,
        stride: int,
        shuffle: np.random.Generator | None,
    ) -> LaunchReport:
        """See `launch`."""
        is_dependent = resolved.dependency == "programmatic"
        return launch(
            self._module,
            resolved.kernel,
            resolved.grid,
            resolved.block,
            _dependent(arguments, self._bound.arguments) if is_dependent else arguments,
            dynamic_shared_bytes=resolved.shared_bytes,
            max_warp_steps=max_warp_steps,
            block_stride=stride,
            shuffle=shuffle,
        )

    def time(self, draw: Draw, vouched_to_us: float = math.inf) -> EstimatedTiming:
        """The sum of the launches' estimates, from the counts of the first run: of the draw that a GPU times."""
        return _estimated(self.work())

    def time_on(self, draw: Draw) -> EstimatedTiming | RunFailure:
        """See LoadedKernel.time_on. From the counts of the first run on this draw, which a check has made as a rule."""
        if draw.name not in self._counts:
            ran = self.run(draw, None)
            if isinstance(ran, RunFailure):
                return ran
        return _estimated(self._work_of(self._counts[draw.name]))

    def work(self) -> list[tuple[Counts, int]]:
        """What each launch did in the first run, and the number of its blocks."""
        return self._work_of(next(iter(self._counts.values()), ()))

    def _work_of(self, launches: Sequence[Counts]) -> list[tuple[Counts, int]]:
        return [(counts, prod(resolved.grid)) for counts, resolved in zip(launches, self._bound.launches, strict=True)]

    def counted(self) -> tuple[LaunchWork, ...]:
        """See Counting.counted."""
        return tuple(_told(counts) for counts, _ in self.work())

    def replay(self, draw: Draw, start: Starts) -> Ran | RunFailure:
        return self.run(draw, start)

    def close(self) -> None:
        """Nothing is held."""

    def _arrays(self, draw: Draw, start: Starts | None) -> dict[str, np.ndarray]:
        """The array behind every pointer argument."""
        layout = self._matrix.layout
        arrays = {name: np.ascontiguousarray(array).reshape(-1) for name, array in layout.indices.items()}
        for buffer in self._bound.buffers:
            match buffer.role:
                case "values":
                    arrays[buffer.name] = layout.pack(draw.values)
                case "scratch":
                    arrays[buffer.name] = np.full(buffer.num_bytes, POISON, np.uint8)
                case "input":
                    arrays[buffer.name] = draw.inputs[buffer.name].reshape(-1)
                case "inout":
                    arrays[buffer.name] = draw.inputs[buffer.name].copy().reshape(-1)
                case "output":
                    arrays[buffer.name] = _started(buffer, start)
                case "size" | "index":
                    pass
        return arrays

    def _argument(self, argument: KernelArgument, arrays: dict[str, np.ndarray]) -> Argument:
        """Shared by all launches of a run, so that what one has written may be read by the next."""
        if argument.role == "size":
            return self._bound.sizes[argument.name]
        array = arrays[argument.name]
        is_garbage = argument.role in ("scratch", "output")
        is_writable = argument.role in WRITABLE_ROLES
        return Buffer(argument.name, array, is_writable, nothing_written(array) if is_garbage else None)


def _estimated(work: Sequence[tuple[Counts, int]]) -> EstimatedTiming:
    total_us = sum(estimate_time(counts, grid_blocks).total_us for counts, grid_blocks in work)
    return EstimatedTiming(median_us=total_us, traffic_model=TRAFFIC_MODEL)


def _told(counts: Counts) -> LaunchWork:
    return LaunchWork(
        warp_instructions=counts.warp_instructions,
        lane_instructions=counts.lane_instructions,
        load_requests=counts.global_load_requests,
        load_sectors=counts.global_load_sectors,
        store_requests=counts.global_store_requests,
        store_sectors=counts.global_store_sectors,
        atomic_requests=counts.global_atomic_requests,
        atomic_sectors=counts.global_atomic_sectors,
        unique_sectors=counts.unique_sectors_read + counts.unique_sectors_written,
        shared_requests=counts.shared_requests,
        shared_wavefronts=counts.shared_wavefronts,
        local_requests=counts.local_requests,
        barriers=counts.barriers,
        divergent_branches=counts.divergent_branches,
        longest_warp_instructions=counts.longest_warp_instructions,
        longest_warp_waits=counts.longest_warp_waits,
        lines=tuple(
            LineWork(
                line=each.line,
                warp_instructions=each.warp_instructions,
                lane_instructions=each.lane_instructions,
                sectors=each.sectors,
                bank_conflicts=each.bank_conflicts,
            )
            for each in counts.lines[:MAX_TOLD_LINES]
            if each.line > 0
        ),
    )


def _started(buffer: BoundBuffer, start: Starts | None) -> np.ndarray:
    """What an output holds before a run, in memory of its own."""
    if start is None:
        return np.full(buffer.num_bytes, POISON, np.uint8).view(buffer.dtype)
    return np.array(start[buffer.name], buffer.dtype).reshape(-1)


def _dependent(arguments: Sequence[Argument], signature: Sequence[KernelArgument]) -> list[Argument]:
    """Arguments of a launch that must wait before it touches the vectors or scratch."""
    return [
        replace(argument, dependent=named.role in DEPENDENT_ROLES) if isinstance(argument, Buffer) else argument
        for argument, named in zip(arguments, signature, strict=True)
    ]


def failure(finding: Finding, where: str) -> RunFailure:
    """The outcome of a run that the interpreter stopped."""
    message = f"{where}: {finding.message}"
    match finding.kind:
        case "race" | "early_access":
            return Mismatch(message=message)
        case "deadlock" | "step_limit" | "endless":
            return TimedOut(stage="run", limit_s=0, message=message)
        case _:
            return Crashed(message=message)
