"""What this GPU can do: copy bandwidth and the cost of a kernel in a graph, measured once a process."""

from dataclasses import dataclass
from statistics import median

import cupy
from cupy.cuda import runtime

from services.evaluator.cuda.launch import CapturedGraph, cuda_errors
from services.evaluator.cuda.own_kernels import DeviceKernels
from services.evaluator.cuda.stopwatch import Stopwatch

MAX_COPY_BYTES = 2 << 30
"""One buffer of the copy; a small GPU takes an eighth of its free memory."""
_COPIES_A_GRAPH = 3
_EMPTY_KERNELS_A_GRAPH = 200
_BATCHES = 9


@dataclass(frozen=True)
class DeviceRates:
    """Measured ceilings and floors."""

    copy_bandwidth_gbs: float
    """Device-to-device copy by a kernel, read plus written bytes, 1e9 bytes a second."""
    graph_kernel_us: float
    """One empty kernel among many in a graph."""


DOUBLE_DATA_RATE = 2
_BUS_WIDTH_ATTRIBUTE = 37  # cudaDevAttrGlobalMemoryBusWidth, bits


def peak_memory_gbs(device_index: int, max_memory_clock_mhz: int) -> float:
    """The rate at which the memory's pins can move data, 1e9 bytes a second; 0 where the clock is not known."""
    with cuda_errors():
        bus_bits = int(runtime.deviceGetAttribute(_BUS_WIDTH_ATTRIBUTE, device_index))
    return DOUBLE_DATA_RATE * max_memory_clock_mhz * 1e6 * bus_bits / 8 / 1e9


def measured_rates(kernels: DeviceKernels, stopwatch: Stopwatch) -> DeviceRates:
    """About a tenth of a second; frees what it allocates."""
    return DeviceRates(_copy_bandwidth_gbs(kernels, stopwatch), _graph_kernel_us(kernels, stopwatch))


def _copy_bandwidth_gbs(kernels: DeviceKernels, stopwatch: Stopwatch) -> float:
    with cuda_errors():
        free_bytes, _ = runtime.memGetInfo()
        part_bytes = cupy.get_default_memory_pool().get_limit() or int(free_bytes)
        num_bytes = min(MAX_COPY_BYTES, int(free_bytes) // 8, part_bytes // 8) // 4096 * 4096
        source, target = cupy.cuda.alloc(num_bytes), cupy.cuda.alloc(num_bytes)
        # Not zeros: memory compresses and buses toggle less on constant data.
        kernels.refresh(int(source.ptr), num_bytes // 8, 1, "float64")
    copy = kernels.copying(int(source.ptr), int(target.ptr), num_bytes)
    with cuda_errors():
        copy.enqueue(kernels.stream.ptr)
    graph = CapturedGraph(copy.enqueue, _COPIES_A_GRAPH, kernels.stream)
    # The best, not the median: another process may be busy on the GPU while a spare one starts.
    best_us = min(stopwatch.batch_us(graph) for _ in range(_BATCHES))
    del source, target
    cupy.get_default_memory_pool().free_all_blocks()
    return 2 * num_bytes / best_us / 1e3


def _graph_kernel_us(kernels: DeviceKernels, stopwatch: Stopwatch) -> float:
    graph = CapturedGraph(kernels.emptiness().enqueue, _EMPTY_KERNELS_A_GRAPH, kernels.stream)
    return median(stopwatch.batch_us(graph, lead_us=200.0) for _ in range(_BATCHES))
