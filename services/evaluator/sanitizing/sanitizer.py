"""Runs of NVIDIA's compute-sanitizer over one program: memcheck, racecheck and initcheck at once, within one limit.

A tool that does not end in time, or comes to no word about the kernel, has not checked it, and the answer says so.

Not protected against: what runs under the tool is not confined by the kernel (it loads libraries into the process that
it looks at); it is machine code that has passed every other check, in a process without packages, privileges of ours or
a network address, which is killed at the limit. An error that the drawn inputs do not lead to is not found.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from services.evaluator.sanitizing import launch
from services.evaluator.sanitizing.tool_report import MAX_CHARACTERS, MAX_SHOWN_CHARACTERS, Fault, read_report
from sparsesmith_proto.kernel import SanitizerTool, ToolCheck

TOOLS: Sequence[SanitizerTool] = get_args(SanitizerTool)
PRINT_LIMIT = 4
"""Errors that a tool describes; it counts all."""
FOUND_ERRORS = 86
"""Exit code of the tool where it found errors."""
KILL_PATIENCE_S = 2.0

_OPTIONS: Mapping[SanitizerTool, Sequence[str]] = {
    "memcheck": ("--report-api-errors", "no", "--leak-check", "no", "--padding", "4096"),
    "racecheck": ("--racecheck-report", "analysis"),
    "initcheck": (),
}


@dataclass(frozen=True)
class Found:
    """A tool that has an error of the kernel to tell."""

    tool: SanitizerTool
    fault: Fault
    num_errors: int


class Sanitizer:
    """The command, for one GPU."""

    def __init__(self, command: Path, limit_s: float, visible_device: str = "0") -> None:
        """`visible_device`: as CUDA_VISIBLE_DEVICES names the GPU."""
        self._command = command
        self._limit_s = limit_s
        self._visible_device = visible_device

    def look(self, write_plan: Callable[[Path], None], limit_s: float | None = None) -> tuple[ToolCheck, ...] | Found:
        """What the tools say of a program whose plan is written into a folder; an error that one of them found.

        `limit_s`: at most this instead of the sanitizer's own limit, writing the plan included.
        """
        limit_s = self._limit_s if limit_s is None else min(limit_s, self._limit_s)
        ends = time.monotonic() + limit_s
        with tempfile.TemporaryDirectory(prefix="sparsesmith-sanitizer-") as place:
            folder = Path(place)
            plan = folder / "plan"
            plan.mkdir()
            write_plan(plan)
            runs = [self._start(tool, folder, limit_s) for tool in TOOLS]
            try:
                return _said(runs, ends, limit_s)
            finally:
                for run in runs:
                    run.kill()

    def _start(self, tool: SanitizerTool, folder: Path, limit_s: float) -> "_Run":
        """Each tool has a copy of the plan's folder, by links: it leaves a file there."""
        own = folder / tool
        own.mkdir()
        for file in (folder / "plan").iterdir():
            (own / file.name).symlink_to(file)
        command: list[str | Path] = [
            self._command,
            "--tool",
            tool,
            "--log-file",
            own / "log",
            "--print-limit",
            str(PRINT_LIMIT),
        ]
        command += ["--error-exitcode", str(FOUND_ERRORS), *_OPTIONS[tool]]
        command += [sys.executable, "-I", "-S", Path(launch.__file__), own, str(limit_s + KILL_PATIENCE_S)]
        said = (own / "said").open("wb")
        with said:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=said,
                env=self._environment(folder),
                cwd=own,
                start_new_session=True,
            )
        return _Run(tool, own, process)

    def _environment(self, folder: Path) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
        ours = {"HOME": str(folder), "TMPDIR": str(folder), "CUDA_CACHE_DISABLE": "1"}
        return {**kept, **ours, "CUDA_VISIBLE_DEVICES": self._visible_device, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


@dataclass(frozen=True)
class _Run:
    tool: SanitizerTool
    folder: Path
    process: "subprocess.Popen[bytes]"

    def wait(self, ends: float) -> bool:
        """Whether it ended in time."""
        try:
            self.process.wait(max(0.0, ends - time.monotonic()))
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self) -> None:
        """All of its session."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(KILL_PATIENCE_S)

    def said(self) -> ToolCheck | Found:
        """Of a run that ended."""
        report = read_report(_text(self.folder / "log"))
        if report.faults:
            return Found(self.tool, report.faults[0], report.num_errors or len(report.faults))
        if report.num_errors == 0 and (self.folder / launch.RAN).exists():
            return ToolCheck(tool=self.tool, state="clean")
        return ToolCheck(tool=self.tool, state="not_checked", reason=self._reason(report.others))

    def _reason(self, others: Sequence[str]) -> str:
        lines = _text(self.folder / "said").strip().splitlines()
        told = next(iter(others), None) or (lines[-1] if lines else f"it ended with {self.process.returncode}")
        return told[:MAX_SHOWN_CHARACTERS]


def _said(runs: Sequence[_Run], ends: float, limit_s: float) -> tuple[ToolCheck, ...] | Found:
    checks = []
    for run in runs:
        said = run.said() if run.wait(ends) else _late(run, limit_s)
        if isinstance(said, Found):
            return said
        checks.append(said)
    return tuple(checks)


def _late(run: _Run, limit_s: float) -> ToolCheck | Found:
    """What it has found until now counts; that it has found nothing does not."""
    if faults := read_report(_text(run.folder / "log")).faults:
        return Found(run.tool, faults[0], len(faults))
    return ToolCheck(tool=run.tool, state="not_checked", reason=f"it did not end within {limit_s:.3g} s")


def _text(path: Path) -> str:
    with suppress(OSError), path.open("rb") as file:
        return file.read(MAX_CHARACTERS).decode(errors="replace")
    return ""
