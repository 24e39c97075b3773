"""Which device an evaluator has, and its sandbox."""

import logging
import os
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from typing import ClassVar, Literal

from services.evaluator.device import Device
from services.evaluator.gpu_claim import claim_gpu
from services.evaluator.isolation.child import DeviceFactory
from services.evaluator.isolation.sandbox import DeviceProcess, StageLimits
from services.evaluator.settings import EvaluatorSettings
from sparsesmith.errors import Unavailable
from sparsesmith_proto.kernel import DeviceDescription
from sparsesmith_proto.message import Architecture

logger = logging.getLogger(__name__)

CUDA_RUN_LIMIT_S = 15.0
"""Beside checks of microseconds: a kernel that takes this long hangs."""

CUDA_START_LIMIT_S = 180.0
INTERPRETER_START_LIMIT_S = 900.0
"""On a new computer the interpreter compiles its machine: minutes where others work."""

NEEDED_CUDA, NEEDED_DRIVER = 13_000, 580
"""What CuPy and NVRTC of the extra `evaluator-gpu` are made for, and the first driver that runs it."""

INTERPRETER_RUN_LIMIT_S = 120.0
"""The interpreter stops an endless loop itself, by its step limit; this is for matrices of many million nonzeros."""


@dataclass(frozen=True)
class CudaFactory:
    """Makes the device of one GPU; CUDA sees no other."""

    preloaded: ClassVar = ("services.evaluator.cuda.device",)
    """See `isolation.child.PRELOADED`: importing CuPy takes longer than making a context."""
    visible_device: str

    def __call__(self, known: DeviceDescription | None = None) -> Device:
        os.environ["CUDA_VISIBLE_DEVICES"] = self.visible_device
        from services.evaluator.cuda.device import CudaDevice

        return CudaDevice(known=known)


@dataclass(frozen=True)
class InterpreterFactory:
    """Makes the interpreter's device."""

    architecture: Architecture

    def __call__(self, known: DeviceDescription | None = None) -> Device:
        from services.evaluator.interpreter.device import InterpreterDevice

        return InterpreterDevice(self.architecture)


def device_process(settings: EvaluatorSettings) -> DeviceProcess:
    """The sandbox of the device that the settings ask for; not started yet."""
    kind = _device_kind(settings.device)
    run_limit_s = settings.run_limit_s or (CUDA_RUN_LIMIT_S if kind == "cuda" else INTERPRETER_RUN_LIMIT_S)
    limits = StageLimits(
        start_s=settings.start_limit_s or (CUDA_START_LIMIT_S if kind == "cuda" else INTERPRETER_START_LIMIT_S),
        open_s=settings.open_limit_s,
        baselines_s=settings.baselines_limit_s,
        store_s=settings.store_limit_s,
        draw_s=settings.draw_limit_s,
        check_s=run_limit_s,
        time_s=run_limit_s,
    )
    has_spare = kind == "cuda" if settings.spare_process is None else settings.spare_process
    return DeviceProcess(_factory(kind, settings), limits, most_spares=settings.most_spares if has_spare else 0)


def _factory(kind: Literal["cuda", "interpreter"], settings: EvaluatorSettings) -> DeviceFactory:
    match kind:
        case "cuda":
            refuse_older_driver(_cuda_of_driver())
            return CudaFactory(_visible_device(_gpu_index(settings)))
        case "interpreter":
            return InterpreterFactory(settings.architecture)


def _device_kind(asked: Literal["auto", "cuda", "interpreter"]) -> Literal["cuda", "interpreter"]:
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


def _gpu_index(settings: EvaluatorSettings) -> int:
    return settings.cuda_device if settings.gpu_claims_dir is None else claim_gpu(settings.gpu_claims_dir, _num_gpus())


def _visible_device(index: int) -> str:
    """The index counts among the devices that this process may see."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if not visible:
        return str(index)
    names = visible.split(",")
    return names[index] if index < len(names) else str(index)
