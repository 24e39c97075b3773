"""What a stack holds over a soak: memory of each kind of process, and bytes on disk, as short series."""

import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from benchmarks.service.killing import ENGINE, memory_bytes, process_ids, session
from sparsesmith.runtime.stack import Stack

EVERY_S = 20.0
MIB = 2**20


@dataclass
class Footprint:
    """Samples of one stack. Evaluators are one kind: the mean of those that run."""

    stack: Stack
    samples: list[dict[str, float]] = field(default_factory=list)
    """`s` since the first one; MiB by kind, their children included, and on disk by folder."""
    _began: float = field(default_factory=time.monotonic)

    def follow(self, stop: threading.Event) -> None:
        """A sample every `EVERY_S`."""
        self.take()
        while not stop.wait(EVERY_S):
            self.take()

    def take(self) -> None:
        """One sample."""
        held = memory_mib(self.stack)
        held |= {f"disk {name}": round(size, 1) for name, size in disk_mib(self.stack.state).items()}
        self.samples.append({"s": round(time.monotonic() - self._began, 1), **held})

    def told(self) -> dict[str, object]:
        """The series of each kind; what its slope says the report tells (`slopes`)."""
        kinds = sorted({kind for sample in self.samples for kind in sample} - {"s"})
        return {
            "sampled_s": [sample["s"] for sample in self.samples],
            "mib": {kind: [sample.get(kind) for sample in self.samples] for kind in kinds},
        }


def memory_mib(stack: Stack) -> dict[str, float]:
    """What each kind of process holds now with its children, the engine apart from the generator."""
    ids = process_ids(stack)
    found: dict[str, list[float]] = defaultdict(list)
    for name, pid in ids.items():
        kind = "evaluator" if name.startswith("evaluator") else name
        family = {pid} if kind in (ENGINE, "valkey") else {pid, *session(pid)} - {ids.get(ENGINE, pid)} | {pid}
        found[kind].append(sum(map(memory_bytes, family)) / MIB)
    return {kind: round(fmean(each), 1) for kind, each in sorted(found.items())}


def disk_mib(state: Path) -> Mapping[str, float]:
    """By folder of the state."""
    return {folder.name: _size(folder) / MIB for folder in sorted(state.iterdir()) if folder.is_dir()}


def _size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with suppress(OSError):  # Files of others come and go.
            total += path.lstat().st_size if path.is_file() else 0
    return total
