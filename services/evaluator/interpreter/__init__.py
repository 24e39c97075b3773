"""A warp-synchronous, memory-safe interpreter of compiled PTX: checks and counts without a GPU."""

from services.evaluator.interpreter.machine.launching import (
    Argument,
    Buffer,
    KernelInfo,
    PtxModule,
    launch,
    load_module,
    nothing_written,
    warm_up,
)
from services.evaluator.interpreter.machine.report import Counts, Finding, FindingKind, LaunchReport, LineCounts
from services.evaluator.interpreter.machine.traffic import (
    H200,
    TRAFFIC_MODEL,
    DeviceDescription,
    TrafficEstimate,
    estimate_time,
)
from services.evaluator.interpreter.ptx.parsing import UnsupportedPtx

__all__ = [
    "H200",
    "TRAFFIC_MODEL",
    "Argument",
    "Buffer",
    "Counts",
    "DeviceDescription",
    "Finding",
    "FindingKind",
    "KernelInfo",
    "LaunchReport",
    "LineCounts",
    "PtxModule",
    "TrafficEstimate",
    "UnsupportedPtx",
    "estimate_time",
    "launch",
    "load_module",
    "nothing_written",
    "warm_up",
]
