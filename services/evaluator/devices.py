"""Which device an evaluator has, and its sandbox."""

import logging
import os
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar, Literal

import scipy.sparse

from services.evaluator.compiling.assembler import possible_assemblers
from services.evaluator.confinement.profile import ConfinementOption, Profile, available
from services.evaluator.device import BuildsFormats, Device
from services.evaluator.gpu_claim import claim_gpu
from services.evaluator.gpu_turn import HOST_STAGES, NO_TURNS, GpuTurns, Turns
from services.evaluator.inspection import Inspections, Inspector, NoInspections
from services.evaluator.isolation.child import DeviceFactory
from services.evaluator.isolation.confined import Confined
from services.evaluator.isolation.sandbox import DeviceProcess, StageLimits
from services.evaluator.isolation.spares import NO_SPARES, SpareLimits
from services.evaluator.references.client import ReferenceLimits
from services.evaluator.references.limits import WithReferences, reference_limits
from services.evaluator.settings import EvaluatorSettings
from sparsesmith.cuda.nvrtc import toolkits
from sparsesmith.errors import InvalidOption, SparsesmithError, Unavailable
from sparsesmith.matrix.pattern import pattern_from_scipy
from sparsesmith.operations import Problem
from sparsesmith.operations.imported.folder import imported_folder
from sparsesmith_proto.kernel import DeviceDescription, DeviceKind, Workload
from sparsesmith_proto.message import Architecture

logger = logging.getLogger(__name__)

CUDA_RUN_LIMIT_S = 15.0
"""Beside checks of microseconds: a kernel that takes this long hangs."""

CUDA_START_LIMIT_S = 180.0
INTERPRETER_START_LIMIT_S = 900.0
"""On a new computer the interpreter compiles its machine: minutes where others work."""

INSPECTION_LIMIT_S = 10.0
"""For drawing an input and for a program, whose launches are stopped after two million instructions each."""

NEEDED_CUDA, NEEDED_DRIVER = 13_000, 580
"""What CuPy and NVRTC of the extra `evaluator-gpu` are made for, and the first driver that runs it."""

FEWEST_SPARES, MOST_SPARES, BYTES_A_SPARE = 4, 12, 8 << 30
"""Of spare processes that a GPU may have where kernels end one after another: one for each so much of its memory,
within these bounds."""

MOST_AS_A_RULE, BYTES_A_SPARE_AS_A_RULE = 4, 32 << 30
"""Of those that wait as a rule, in the same way."""

INTERPRETER_RUN_LIMIT_S = 120.0
"""The interpreter stops an endless loop itself, by its step limit; this is for matrices of many million nonzeros."""

TRIALS = 2
"""Of a confined device, before it runs without confinement: a process may end by chance, which says nothing of it."""


@dataclass(frozen=True)
class CudaFactory:
    """Makes the device of one GPU; CUDA sees no other."""

    preloaded: ClassVar = (
        "services.evaluator.cuda.device",
        "services.evaluator.isolation.child",
        "services.evaluator.isolation.confined",
        "services.evaluator.devices",
    )
    """See `isolation.child.PRELOADED`: importing CuPy takes longer than making a context, and no child imports anew
    what it is made with."""
    visible_device: str
    builds_formats: BuildsFormats = "never"
    sharers: int = 1

    def __call__(self, known: DeviceDescription | None = None) -> Device:
        os.environ["CUDA_VISIBLE_DEVICES"] = self.visible_device
        os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # As NVML counts: it is asked about the same GPU.
        from services.evaluator.cuda.device import CudaDevice

        return CudaDevice(known=known, builds_formats=self.builds_formats, sharers=self.sharers)


@dataclass(frozen=True)
class InterpreterFactory:
    """Makes the interpreter's device."""

    architecture: Architecture

    def __call__(self, known: DeviceDescription | None = None) -> Device:
        from services.evaluator.interpreter.device import InterpreterDevice

        return InterpreterDevice(self.architecture)


@dataclass(frozen=True)
class Gpu:
    """By its name as in CUDA_VISIBLE_DEVICES, and its index among those that this process may see."""

    visible_device: str
    index: int


@dataclass(frozen=True)
class Interpreter:
    """No GPU."""


Chosen = Gpu | Interpreter


def chosen_device(settings: EvaluatorSettings, quarantined: Callable[[], Collection[str]] = tuple) -> Chosen:
    """What the settings ask for; of a machine's GPUs one that no other evaluator has, ours until this process ends.

    `quarantined`: UUIDs of GPUs that nobody may take. Raises Unavailable where there is none.
    """
    match _device_kind(settings.device):
        case "cuda":
            refuse_older_driver(_cuda_of_driver())
            index = _gpu_index(settings, quarantined())
            return Gpu(_visible_device(index), index)
        case "interpreter":
            return Interpreter()


def device_process(settings: EvaluatorSettings, chosen: Chosen | None = None) -> DeviceProcess:
    """The sandbox of a device, else of the one that the settings ask for; started only where it was tried whether the
    device works in a process that the kernel confines. Raises Unavailable where it must be confined and cannot."""
    if settings.confinement == "on" and not available().is_whole:
        raise Unavailable(f"confinement is on, and this kernel has not all of it: {available().describe()}")
    chosen = chosen or chosen_device(settings)
    kind: DeviceKind = "cuda" if isinstance(chosen, Gpu) else "interpreter"
    run_limit_s = settings.run_limit_s or (CUDA_RUN_LIMIT_S if kind == "cuda" else INTERPRETER_RUN_LIMIT_S)
    limits = StageLimits(
        start_s=settings.start_limit_s or (CUDA_START_LIMIT_S if kind == "cuda" else INTERPRETER_START_LIMIT_S),
        open_s=settings.open_limit_s,
        baselines_s=settings.baselines_limit_s,
        build_s=settings.build_limit_s,
        draw_s=settings.draw_limit_s,
        check_s=run_limit_s,
        time_s=run_limit_s,
    )
    has_spare = kind == "cuda" if settings.spare_process is None else settings.spare_process
    spares = num_spares(settings, _memory_bytes(chosen) // settings.sharers) if has_spare else NO_SPARES
    references = None if imported_folder() is None else reference_limits(settings)
    turns = turns_of(settings, chosen)
    return held(_factory(chosen, settings), _profile(kind), limits, spares, settings.confinement, references, turns)


def turns_of(settings: EvaluatorSettings, chosen: Chosen) -> Turns:
    """With the other evaluators of this device. The interpreter's take turns like a GPU's, so that what is tried
    without a GPU is what runs with one. Raises InvalidOption where sharers have no folder to meet in."""
    if settings.sharers == 1:
        return NO_TURNS
    if settings.gpu_claims_dir is None:
        raise InvalidOption(
            f"{settings.sharers} sharers of a GPU take turns in a folder: set gpu_claims_dir", field="gpu_claims_dir"
        )
    builds = "build" if settings.builds_formats == "always" else ""
    name = f"gpu-{chosen.index}" if isinstance(chosen, Gpu) else "interpreter"
    return GpuTurns(settings.gpu_claims_dir / name, HOST_STAGES - {builds})


def num_spares(settings: EvaluatorSettings, memory_bytes: int) -> SpareLimits:
    """How many spare processes wait as a rule, and at most, on a GPU of so much memory (0: unknown)."""
    by_memory = max(FEWEST_SPARES, min(MOST_SPARES, memory_bytes // BYTES_A_SPARE))
    least = settings.least_spares or max(1, min(MOST_AS_A_RULE, memory_bytes // BYTES_A_SPARE_AS_A_RULE))
    most = settings.most_spares or max(by_memory, least)
    return SpareLimits(min(least, most), most)


@contextmanager
def inspections_beside(
    settings: EvaluatorSettings, device: DeviceDescription, *, waits: bool = False
) -> Iterator[Callable[[Problem], Inspections]]:
    """The interpreter beside a GPU, for a grader; nobody where the device is the interpreter itself, or the settings
    want none. `waits`: until it has started; else programs of the first seconds pass without."""
    if device.kind != "cuda" or not settings.inspects:
        yield lambda problem: NoInspections()
        return
    factory = InterpreterFactory(device.architecture)
    limits = StageLimits(start_s=INTERPRETER_START_LIMIT_S, check_s=INSPECTION_LIMIT_S, draw_s=INSPECTION_LIMIT_S)
    make = partial(held, factory, _profile("interpreter"), limits, NO_SPARES, settings.confinement)
    with closing(Inspector(make)) as inspector:
        if waits:
            inspector.wait_until_started()
        yield inspector.of


def held(
    factory: DeviceFactory,
    profile: Profile,
    limits: StageLimits,
    spares: SpareLimits,
    confinement: ConfinementOption,
    references: ReferenceLimits | None = None,
    turns: Turns = NO_TURNS,
) -> DeviceProcess:
    """The sandbox, its processes confined as far as the setting says and the device works so. `references`:
    limits of those of imported tasks, where there are any."""
    if confinement != "off":
        held_factory = _asking(Confined(factory, profile), references)
        confined = DeviceProcess(held_factory, limits, spares=spares, is_confined=True, turns=turns)
        if confinement == "on" or any(_works(confined) for _ in range(TRIALS)):
            return confined
        logger.warning("the device's process runs without confinement, for with it the device does not work")
        confined.close()
    return DeviceProcess(_asking(factory, references), limits, spares=spares, turns=turns)


def _asking(factory: DeviceFactory, references: ReferenceLimits | None) -> DeviceFactory:
    return factory if references is None else WithReferences(factory, references)


def _works(process: DeviceProcess) -> bool:
    """Whether a device does what it must in a confined process, on a small matrix; why not is in the log."""
    try:
        process.start()
        workbench = process.open(_trial_problem())
        workbench.baselines()
        workbench.draw()
    except SparsesmithError as error:
        logger.warning("the device did not work confined: %s", error)
        return False
    return True


def _trial_problem() -> Problem:
    matrix = pattern_from_scipy(scipy.sparse.random(45, 37, 0.1, format="csr", random_state=1))
    return Problem(Workload(pattern=matrix.digest, operation="spmv", element_type="float32", num_dense_cols=1), matrix)


def _profile(kind: DeviceKind) -> Profile:
    """What the device needs beside libraries: its caches, the assembler of our own kernels, of a GPU the driver's
    files."""
    imported = imported_folder()
    read = (*toolkits(), *(() if imported is None else (imported.resolve(),)))
    run = tuple(possible_assemblers())
    match kind:
        case "cuda":
            caches = (_cache("CUPY_CACHE_DIR", Path.home() / ".cupy"), _cache("CUDA_CACHE_PATH", Path.home() / ".nv"))
            return Profile(read, caches, run, gpu=True)
        case "interpreter":
            compiled = _cache("NUMBA_CACHE_DIR", Path(__file__).parent / "interpreter" / "machine" / "__pycache__")
            return Profile(read, (compiled,), run)


def _cache(variable: str, usual: Path) -> Path:
    """A folder that is there, where it can be."""
    folder = Path(os.environ.get(variable) or usual)
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


def _factory(chosen: Chosen, settings: EvaluatorSettings) -> DeviceFactory:
    match chosen:
        case Gpu(visible_device=visible_device):
            return CudaFactory(visible_device, settings.builds_formats, settings.sharers)
        case Interpreter():
            return InterpreterFactory(settings.architecture)


def _device_kind(asked: Literal["auto", "cuda", "interpreter"]) -> DeviceKind:
    if asked != "auto":
        return asked
    if _num_gpus() == 0:
        return "interpreter"
    if find_spec("cupy") is None:
        logger.warning("there is a GPU, but CuPy is not installed (extra `evaluator-gpu`): using the interpreter")
        return "interpreter"
    return "cuda"


def _num_gpus() -> int:
    """That this process may see. Asks NVML, which makes no CUDA context in this process."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible in ("", "-1") or find_spec("pynvml") is None:
        return 0
    import pynvml

    try:
        pynvml.nvmlInit()
        return min(int(pynvml.nvmlDeviceGetCount()), len(visible.split(",")) if visible else sys.maxsize)
    except pynvml.NVMLError:
        return 0


def refuse_older_driver(cuda_version: int | None) -> None:
    """By the newest CUDA that a driver runs, as NVML counts it; None: unknown, CUDA itself will say.

    Raises Unavailable: what CUDA says of an older one names no version.
    """
    if cuda_version is not None and cuda_version < NEEDED_CUDA:
        has, needs = (f"{version // 1000}.{version % 1000 // 10}" for version in (cuda_version, NEEDED_CUDA))
        raise Unavailable(
            f"the GPU's driver runs CUDA {has} at most: CuPy and NVRTC need {needs}, driver {NEEDED_DRIVER} or newer",
            field="driver",
            value=has,
            limit=needs,
        )


def _cuda_of_driver() -> int | None:
    if find_spec("pynvml") is None:
        return None
    import pynvml

    try:
        pynvml.nvmlInit()
        return int(pynvml.nvmlSystemGetCudaDriverVersion_v2())
    except pynvml.NVMLError:
        return None


def _gpu_index(settings: EvaluatorSettings, quarantined: Collection[str]) -> int:
    """Among the devices that this process may see."""

    def is_sound(index: int) -> bool:
        return not quarantined or _uuid(_visible_device(index)) not in quarantined

    if settings.gpu_claims_dir is not None:
        return claim_gpu(settings.gpu_claims_dir, _num_gpus(), is_sound, settings.sharers)
    if not is_sound(settings.cuda_device):
        raise Unavailable(
            f"GPU {settings.cuda_device} is in quarantine: its memory was found faulty",
            field="cuda_device",
            value=settings.cuda_device,
        )
    return settings.cuda_device


def _memory_bytes(chosen: Chosen) -> int:
    """Of the GPU; 0 where it is not known."""
    if not isinstance(chosen, Gpu) or find_spec("pynvml") is None:
        return 0
    from services.evaluator.cuda.installed import memory_bytes

    return memory_bytes(chosen.visible_device)


def _uuid(visible_device: str) -> str:
    from services.evaluator.cuda.ecc import EccCounters

    return EccCounters(visible_device).uuid


def _visible_device(index: int) -> str:
    """The index counts among the devices that this process may see."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if not visible:
        return str(index)
    names = visible.split(",")
    return names[index] if index < len(names) else str(index)
