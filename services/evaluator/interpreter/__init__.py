"""A warp-synchronous, memory-safe interpreter of compiled PTX: checks and counts without a GPU."""

from services.evaluator.interpreter.launching import (
    Argument,
    Buffer,
    KernelInfo,
    PtxModule,
    launch,
    load_module,
)
from services.evaluator.interpreter.ptx import UnsupportedPtx
from services.evaluator.interpreter.report import Counts, Finding, FindingKind, LaunchReport, LineCounts

__all__ = [
    "Argument",
    "Buffer",
    "Counts",
    "Finding",
    "FindingKind",
    "KernelInfo",
    "LaunchReport",
    "LineCounts",
    "PtxModule",
    "UnsupportedPtx",
    "launch",
    "load_module",
]
