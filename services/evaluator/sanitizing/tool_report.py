"""What a run of compute-sanitizer says, read from the lines that it writes.

    ========= Invalid __global__ write of size 4 bytes
    =========     at spmv(int, const float *, float *)+0x170 in kernel.cu:12
    =========     by thread (0,0,0) in block (0,0,0)
    ...
    ========= ERROR SUMMARY: 1 error

Source: NVIDIA, Compute Sanitizer user manual, "Memcheck tool", "Racecheck tool", "Initcheck tool". Releases write
places in two ways, `at KERNEL+0x170 in FILE:12` and `at 0x170 in FILE:12:KERNEL`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

MAX_CHARACTERS = 1_000_000
"""Of a log that is read: `--print-limit` bounds what the tool prints, not what a kernel's name makes of it."""
MAX_SHOWN_CHARACTERS = 200

_MARK = "========="
_SUMMARY = re.compile(
    r"^========= (?:ERROR SUMMARY: (?P<errors>\d+) errors?"
    r"|RACECHECK SUMMARY: \d+ hazards? displayed \((?P<hazards>\d+) errors?, (?P<warnings>\d+) warnings?\))",
    re.MULTILINE,
)
_OF_A_KERNEL = re.compile(r"^=========\s+(?:at |by thread )", re.MULTILINE)
_LINE = re.compile(r" in (?:[^\s:]|:(?!\d))*:(\d+)(?=[:\s]|$)", re.MULTILINE)
_RACE = re.compile(r"^(?P<what>Race reported between (?P<one>\w+) access) at .*?$", re.DOTALL)
_OTHER_ACCESS = re.compile(r"^=========\s+and (\w+) access at ", re.MULTILINE)


@dataclass(frozen=True)
class Fault:
    """An error of a kernel."""

    kind: str
    """`Invalid __global__ write of size 4 bytes`."""
    lines: tuple[int, ...]
    """Of the program, those that the tool names; empty where it names none."""

    def describe(self) -> str:
        if not self.lines:
            return self.kind
        word = "line" if len(self.lines) == 1 else "lines"
        return f"{self.kind}, {word} {' and '.join(map(str, self.lines))}"


@dataclass(frozen=True)
class ToolReport:
    """All of one run."""

    num_errors: int | None
    """As the tool counts them; None: it came to no end."""
    faults: tuple[Fault, ...]
    """Those that it describes, of kernels."""
    others: tuple[str, ...]
    """Errors that are not a kernel's: of the run or of the tool itself."""


def read_report(log: str) -> ToolReport:
    """Of the tool's log."""
    log = log[:MAX_CHARACTERS]
    summary = _SUMMARY.search(log)
    faults, others = [], []
    for block in _blocks(log):
        if (fault := _fault(block)) is not None:
            faults.append(fault)
        elif block[0].startswith(("Error", "Internal", "Program hit")):
            others.append(block[0][:MAX_SHOWN_CHARACTERS])
    counted = None if summary is None else int(summary["errors"] or summary["hazards"] or 0)
    return ToolReport(counted, tuple(faults), tuple(others))


def _blocks(log: str) -> Sequence[Sequence[str]]:
    """Each a first line without its mark, and the lines that are set in below it."""
    blocks: list[list[str]] = []
    for line in log.splitlines():
        if not line.startswith(_MARK) or not (text := line.removeprefix(_MARK)).strip():
            continue
        if text.startswith("  ") and blocks:
            blocks[-1].append(line)
        else:
            blocks.append([text.strip()])
    return blocks


def _fault(block: Sequence[str]) -> Fault | None:
    """None: not of a kernel, or a warning."""
    head, below = block[0], "\n".join(block[1:])
    if head.startswith("Warning"):
        return None
    race = _RACE.match(head.removeprefix("Error: "))
    if race is not None:
        others = [line for line in block[1:] if _OTHER_ACCESS.match(line)]
        accesses = [race["one"], *_OTHER_ACCESS.findall(below)]
        return Fault(f"Race reported between {' and '.join(accesses)} access", _lines("\n".join([head, *others])))
    if not _OF_A_KERNEL.search(below):
        return None
    place = next((line for line in block[1:] if re.match(r"=========\s+at ", line)), "")
    return Fault(head.removeprefix("Error: ")[:MAX_SHOWN_CHARACTERS], _lines(place))


def _lines(text: str) -> tuple[int, ...]:
    return tuple(sorted({int(line) for line in _LINE.findall(text)}))
