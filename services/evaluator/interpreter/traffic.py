"""A traffic model: from what a launch did to the time it might take on a device.

The model, "sector-v1", takes the slowest of six resources, each used on its own, plus the cost of a launch: bytes from
DRAM (each sector once, unless the data of a repeated launch stays in the L2 cache), sectors through the L2, atomics,
issued instructions, wavefronts of shared memory, and the latency of waiting for memory in as many rounds as blocks do
not fit the device at once. It is an estimate for ranking programs without a GPU; never report it as a measurement.

What it leaves out: overlap losses between resources, instruction mix, tensor cores, TLB and row-buffer effects, clocks
that change, and imbalance between blocks other than the longest warp.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from services.evaluator.interpreter.report import Counts

TRAFFIC_MODEL = "sector-v1"
SECTOR_BYTES = 32


@dataclass(frozen=True)
class DeviceDescription:
    """Rates and sizes of a device, as the model needs them."""

    name: str
    num_multiprocessors: int
    clock_mhz: float
    dram_bytes_per_us: float
    l2_bytes_per_us: float
    l2_bytes: int
    atomic_sectors_per_us: float
    memory_latency_us: float
    launch_overhead_us: float
    threads_per_multiprocessor: int = 2048
    blocks_per_multiprocessor: int = 32
    registers_per_multiprocessor: int = 65536
    shared_bytes_per_multiprocessor: int = 228 * 1024
    issue_slots: int = 4
    """Warp instructions a multiprocessor can issue in one clock."""
    cycles_per_instruction: float = 5.0
    """Of one warp alone: dependent instructions."""


H200 = DeviceDescription(
    name="NVIDIA H200",
    num_multiprocessors=132,
    clock_mhz=1_830.0,
    dram_bytes_per_us=4.26e6,
    l2_bytes_per_us=7.0e6,
    l2_bytes=50 << 20,
    atomic_sectors_per_us=1.5e5,
    memory_latency_us=0.45,
    launch_overhead_us=1.8,
)


@dataclass(frozen=True)
class LaunchResources:
    """What a launch asks of the device: blocks of the whole grid, threads and shared bytes of a block, registers."""

    grid_blocks: int
    block_threads: int
    shared_bytes: int = 0
    registers_per_thread: int = 32


@dataclass(frozen=True)
class TrafficEstimate:
    """Estimated microseconds in all and for each resource; the largest of the parts decides."""

    model: str
    total_us: float
    dram_us: float
    l2_us: float
    atomics_us: float
    issue_us: float
    shared_us: float
    latency_us: float
    launch_us: float


def estimate_time(
    counts: Counts, resources: LaunchResources, device: DeviceDescription = H200, *, warm: bool = True
) -> TrafficEstimate:
    """Estimate one launch. Counts of a sample of the blocks are scaled up; `warm` means that an identical launch ran
    just before, so that what fits the L2 cache is there."""
    scale = resources.grid_blocks / max(1, counts.blocks)
    clocks_per_us = device.clock_mhz * device.num_multiprocessors
    unique_bytes = SECTOR_BYTES * scale * (counts.unique_sectors_read + counts.unique_sectors_written)
    dram_bytes = max(0.0, unique_bytes - device.l2_bytes) if warm else unique_bytes
    l2_sectors = counts.global_load_sectors - counts.l1_hit_sectors
    l2_sectors += counts.global_store_sectors + counts.global_atomic_sectors
    parts = {
        "dram_us": dram_bytes / device.dram_bytes_per_us,
        "l2_us": SECTOR_BYTES * scale * l2_sectors / device.l2_bytes_per_us,
        "atomics_us": scale * counts.global_atomic_sectors / device.atomic_sectors_per_us,
        "issue_us": scale * counts.warp_instructions / (device.issue_slots * clocks_per_us),
        "shared_us": scale * counts.shared_wavefronts / clocks_per_us,
        "latency_us": _latency_us(counts, resources, device),
    }
    total_us = device.launch_overhead_us + max(parts.values())
    return TrafficEstimate(TRAFFIC_MODEL, total_us, **parts, launch_us=device.launch_overhead_us)


def resident_blocks(resources: LaunchResources, device: DeviceDescription) -> int:
    """Blocks that a multiprocessor can hold at once (at least one)."""
    warp_threads = ceil(resources.block_threads / 32) * 32
    limits = [device.blocks_per_multiprocessor, device.threads_per_multiprocessor // warp_threads]
    limits.append(device.registers_per_multiprocessor // max(1, warp_threads * resources.registers_per_thread))
    if resources.shared_bytes:
        limits.append(device.shared_bytes_per_multiprocessor // (resources.shared_bytes + 1024))
    return max(1, min(limits))


def _latency_us(counts: Counts, resources: LaunchResources, device: DeviceDescription) -> float:
    """The longest warp, or the rounds of average warps, whichever takes longer."""
    longest = counts.longest_warp_instructions * device.cycles_per_instruction / device.clock_mhz
    longest += counts.longest_warp_waits * device.memory_latency_us
    warps = max(1, counts.blocks) * ceil(resources.block_threads / 32)
    average_share = min(1.0, counts.warp_instructions / warps / max(1, counts.longest_warp_instructions))
    at_once = resident_blocks(resources, device) * device.num_multiprocessors
    rounds = ceil(resources.grid_blocks / at_once)
    return max(longest, rounds * average_share * longest)
