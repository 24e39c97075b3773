"""A traffic model: from what a launch did to the time it might take on a device.

The model, "sector-v2", adds up what a launch spends: the launch itself, the slower of DRAM and L2, atomics, issued
instructions, wavefronts of shared memory, and its longest warp. From DRAM comes each sector once, unless the data of a
repeated launch stays in the L2 cache. It is an estimate for ranking programs without a GPU; never report it as a
measurement. benchmarks/measure/calibrate_traffic.py fits its constants and says how good it is.

What it leaves out: overlap between what it adds, occupancy, instruction mix, tensor cores, TLB and row-buffer effects,
clocks that change. It was fitted on matrices that stay in the L2.
"""

from __future__ import annotations

from dataclasses import dataclass

from services.evaluator.interpreter.machine.report import Counts

TRAFFIC_MODEL = "sector-v2"
SECTOR_BYTES = 32
WARP_SCHEDULERS = 4
"""Warp instructions that a multiprocessor can issue in one clock."""


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
    clocks_per_instruction: float
    """Of the longest warp, its waits for memory included."""
    wavefronts_per_clock: float
    """Of a multiprocessor's shared memory."""
    launch_overhead_us: float
    """Of one launch among many in a graph."""


H200 = DeviceDescription(
    name="NVIDIA H200",
    num_multiprocessors=132,
    clock_mhz=1_980.0,
    dram_bytes_per_us=4.17e6,
    l2_bytes_per_us=10.8e6,
    l2_bytes=50 << 20,
    atomic_sectors_per_us=1.5e5,
    clocks_per_instruction=7.5,
    wavefronts_per_clock=0.64,
    launch_overhead_us=0.92,
)
"""Sizes from the data sheet, clock and DRAM as measured, the rest as fitted."""


@dataclass(frozen=True)
class TrafficEstimate:
    """Estimated microseconds in all and of each part."""

    model: str
    total_us: float
    dram_us: float
    l2_us: float
    atomics_us: float
    issue_us: float
    shared_us: float
    longest_warp_us: float
    launch_us: float


def estimate_time(
    counts: Counts, grid_blocks: int, device: DeviceDescription = H200, *, warm: bool = True
) -> TrafficEstimate:
    """Estimate one launch of this many blocks. Counts of a sample of the blocks are scaled up; `warm` means that an
    identical launch ran just before, so that what fits the L2 cache is there."""
    scale = grid_blocks / max(1, counts.blocks)
    clocks_per_us = device.clock_mhz * device.num_multiprocessors
    unique_bytes = SECTOR_BYTES * scale * (counts.unique_sectors_read + counts.unique_sectors_written)
    dram_us = (max(0.0, unique_bytes - device.l2_bytes) if warm else unique_bytes) / device.dram_bytes_per_us
    l2_sectors = counts.global_load_sectors - counts.l1_hit_sectors
    l2_sectors += counts.global_store_sectors + counts.global_atomic_sectors
    l2_us = SECTOR_BYTES * scale * l2_sectors / device.l2_bytes_per_us
    atomics_us = scale * counts.global_atomic_sectors / device.atomic_sectors_per_us
    issue_us = scale * counts.warp_instructions / (WARP_SCHEDULERS * clocks_per_us)
    shared_us = scale * counts.shared_wavefronts / (device.wavefronts_per_clock * clocks_per_us)
    longest_warp_us = counts.longest_warp_instructions * device.clocks_per_instruction / device.clock_mhz
    launch_us = device.launch_overhead_us
    return TrafficEstimate(
        model=TRAFFIC_MODEL,
        total_us=launch_us + max(dram_us, l2_us) + atomics_us + issue_us + shared_us + longest_warp_us,
        dram_us=dram_us,
        l2_us=l2_us,
        atomics_us=atomics_us,
        issue_us=issue_us,
        shared_us=shared_us,
        longest_warp_us=longest_warp_us,
        launch_us=launch_us,
    )
