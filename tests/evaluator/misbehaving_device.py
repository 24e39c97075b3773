"""A Device whose kernels do what a comment in their program says: for tests of the sandbox, which must survive them."""

import math
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from services.evaluator.checking.correctness import HostSeal
from services.evaluator.checking.draws import MIXED, draw, system_generator
from services.evaluator.compiling.compiler import Compiled
from services.evaluator.compiling.contract.facts import NO_FACTS
from services.evaluator.device import (
    Array,
    BuildsFormats,
    BuiltMatrix,
    DeviceLost,
    Draw,
    LoadedKernel,
    Ran,
    Retimed,
    RunFailure,
    Starts,
)
from sparsesmith.errors import LimitExceeded
from sparsesmith.formats.format import Format, Layout, Parameters
from sparsesmith.operations import Problem
from sparsesmith.program.program import KernelProgram
from sparsesmith_proto.kernel import Baselines, BaselineTiming, DeviceDescription, MeasuredTiming

WEDGED = "SPARSESMITH_TEST_WEDGED"
"""Names a file: a kernel that wedges the device makes it, once; no device starts while it is there. A kernel that hangs
makes a file beside it that ends in `.hanging`."""

BINARY = Compiled(ptx="", cubin=b"", log="", resources={}, compile_ms=1.0, facts=NO_FACTS)
MAX_NNZ = 10_000


def measured(median_us: float) -> MeasuredTiming:
    return MeasuredTiming(
        median_us=median_us,
        low_us=median_us,
        high_us=median_us,
        cold_us=median_us,
        num_batches=8,
        stable=True,
        sm_clock_mhz=1980,
    )


def program_text(behaviour: str) -> str:
    """A legal program with a behaviour: `right`, `right 3.5` (its time), `die`, `hang`, `wrong`, `lose`, ..."""
    return f"""//@ format csr
//@ launch spmv grid=1 block=32
// behaviour: {behaviour}
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices,
                                const float* values, const float* x, float* y) {{}}
"""


@dataclass(frozen=True)
class MisbehavingFactory:
    """Makes the device in the sandbox's child; `at_start` is what the device does when it is made."""

    at_start: str = "right"
    hold_s: float = 0
    """What it takes to make one draw."""

    def __call__(self, known: DeviceDescription | None = None) -> "MisbehavingDevice":
        behave(self.at_start)
        return MisbehavingDevice(self.hold_s)


@dataclass(frozen=True)
class PreloadedFactory(MisbehavingFactory):
    """Its children are forked from a process that has imported this module."""

    preloaded: ClassVar = ("tests.evaluator.misbehaving_device",)


class MisbehavingDevice:
    builds_formats: BuildsFormats = "never"

    def __init__(self, hold_s: float) -> None:
        self._hold_s = hold_s

    def description(self) -> DeviceDescription:
        return DeviceDescription(
            kind="cuda",
            name="misbehaving",
            architecture="sm_90",
            num_sms=1,
            copy_bandwidth_gbs=1,
            versions={"pid": str(os.getpid())},
        )

    def open(self, problem: Problem) -> "MisbehavingWorkload":
        if problem.nnz > MAX_NNZ:
            raise LimitExceeded(f"nnz is {problem.nnz}: at most {MAX_NNZ}", field="nnz")
        return MisbehavingWorkload(problem, self._hold_s)

    def settle(self) -> None:
        pass

    def close(self) -> None:
        pass


class MisbehavingWorkload:
    max_products = 10**9
    max_draws = 6

    def __init__(self, problem: Problem, hold_s: float) -> None:
        self._problem = problem
        self._hold_s = hold_s

    def baselines(self) -> Baselines:
        return Baselines(
            default="library", routines=(BaselineTiming(routine="library", timing=measured(10), preparation_ms=0),)
        )

    def draw(self, name: str, seed: int | None = None) -> Draw:
        time.sleep(self._hold_s)
        return draw(name, self._problem, system_generator() if seed is None else np.random.default_rng(seed))

    def draws(self, names: Sequence[str]) -> tuple[Draw, ...]:
        return tuple(map(self.draw, names))

    def vouch(self) -> None:
        pass

    def seal(self, draws: Sequence[Draw]) -> HostSeal:
        return HostSeal(draws)

    def build(self, key: str, format_: Format, parameters: Parameters) -> Layout | None:
        return None

    def load(self, program: KernelProgram, matrix: BuiltMatrix, binary: Compiled) -> "MisbehavingKernel":
        return MisbehavingKernel(program.text.partition("// behaviour: ")[2].splitlines()[0])

    def retime(self, kernels: Sequence[LoadedKernel], draw: Draw, routine: str) -> Retimed:
        timings = tuple(kernel.time(draw) for kernel in kernels)
        final = (each.model_copy(update={"is_final": True}) for each in timings if isinstance(each, MeasuredTiming))
        return Retimed(tuple(final), measured(9))

    def close(self) -> None:
        pass


class MisbehavingKernel:
    def __init__(self, behaviour: str) -> None:
        self._behaviour, _, median_us = behaviour.partition(" ")
        self._median_us = float(median_us or 5)
        self._has_run = 0

    def run(self, draw: Draw, start: Starts | None) -> Ran | RunFailure:
        behave(self._behaviour)
        output = draw.reference.astype(draw.dense.dtype)
        if self._behaviour == "wrong":
            output = output + 1
        self._has_run += 1
        if self._behaviour == "unsteady" and draw.name == MIXED:
            output = _with_bits_of(self._has_run, output, draw)
        if self._behaviour == "by_process" and draw.name == MIXED:
            output = _with_bits_of(os.getpid(), output, draw)
        if self._behaviour == "corrupt":
            draw.reference[0] += 1e-9
        return Ran({draw.output: output}, self._behaviour != "overrun", self._behaviour != "overwrite")

    def time(self, draw: Draw, vouched_to_us: float = math.inf) -> MeasuredTiming:
        if self._behaviour == "die_timing":
            behave("die")
        return measured(self._median_us)

    def time_on(self, draw: Draw) -> MeasuredTiming:
        return self.time(draw)

    def replay(self, draw: Draw, start: Starts) -> Ran | RunFailure:
        if self._behaviour == "lazy":
            return Ran(start, True, True)
        return self.run(draw, start)

    def close(self) -> None:
        pass


def _with_bits_of(number: int, output: Array, draw: Draw) -> Array:
    """Right, but for the last bits of a few entries, which tell the number."""
    most_room = np.argsort(-draw.bound / (abs(draw.reference) + 1e-30))
    told = np.array([entry for bit, entry in enumerate(most_room[:32]) if number >> bit & 1])
    output[told] = np.nextafter(output[told], np.inf)
    return output


def behave(behaviour: str) -> None:
    match behaviour:
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "segfault":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "hang":
            if WEDGED in os.environ:
                Path(os.environ[WEDGED]).with_suffix(".hanging").touch()
            time.sleep(600)
        case "wedge":
            _wedge()
        case "start_unless_wedged":
            while Path(os.environ[WEDGED]).exists():
                time.sleep(0.05)
        case "lose":
            raise DeviceLost("an illegal memory access was encountered")
        case "raise":
            raise RuntimeError("a defect of our own")


def _wedge() -> None:
    """The first time for good; a device that was repaired (the file was moved away) computes."""
    wedged = Path(os.environ[WEDGED])
    if not wedged.with_suffix(".repaired").exists():
        wedged.touch()
        time.sleep(600)
