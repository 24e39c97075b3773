"""A GPU for the tests of this folder; without one they are skipped, or fail when SPARSESMITH_REQUIRE_GPU is 1."""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from services.evaluator.isolation.sandbox import DeviceProcess, StageLimits
from services.evaluator.isolation.spares import SpareLimits
from tests.gpu.programs import make_device

if TYPE_CHECKING:
    from services.evaluator.cuda.device import CudaDevice


def _why_no_gpu() -> str:
    """Empty where a CUDA device answers. Touches no context: the sandbox's processes create their own."""
    try:
        import pynvml
    except ImportError:
        return "pynvml is not installed"
    try:
        pynvml.nvmlInit()
        return "" if pynvml.nvmlDeviceGetCount() else "no CUDA device"
    except pynvml.NVMLError as error:
        return str(error)


@pytest.fixture(scope="session")
def gpu() -> None:
    """Skips or fails without a GPU."""
    reason = _why_no_gpu()
    if not reason:
        return
    if os.environ.get("SPARSESMITH_REQUIRE_GPU") == "1":
        pytest.fail(f"SPARSESMITH_REQUIRE_GPU is set, but {reason}")
    pytest.skip(reason)


@pytest.fixture(scope="session")
def device_here(gpu: None) -> Iterator["CudaDevice"]:
    device = make_device()
    yield device
    device.close()


@pytest.fixture
def device(device_here: "CudaDevice") -> "CudaDevice":
    """A device in this process: for kernels that do no harm. An evaluator's process has one device, whose stream stays
    the thread's; here other tests' code has streams of its own."""
    device_here.stream.use()
    return device_here


@pytest.fixture(scope="session")
def sandbox(gpu: None) -> Iterator[DeviceProcess]:
    """A device behind a process boundary: for kernels that do."""
    process = DeviceProcess(make_device, StageLimits(check_s=8, time_s=20), spares=SpareLimits(most=4))
    process.start()
    yield process
    process.close()
