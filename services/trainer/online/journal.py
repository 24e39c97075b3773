"""The log of updates, one JSON line each; and the sign of life that `--check` looks for."""

import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

OnEntry = Callable[[Mapping[str, object]], None]
"""Told of each entry."""


def unheard(entry: Mapping[str, object]) -> None:
    """Nobody listens."""


class Journal:
    """updates.jsonl: what each update measured; verdicts.jsonl: what was decided of each version."""

    def __init__(self, path: Path, on_entry: OnEntry = unheard) -> None:
        """Cuts off a line that a kill tore."""
        self._path = path
        self._on_entry = on_entry
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            content = path.read_bytes()
            os.truncate(path, content.rfind(b"\n") + 1)

    def write(self, entry: Mapping[str, object]) -> None:
        """Appends a line."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
        self._on_entry(entry)

    def last(self) -> dict[str, object]:
        """The last line; empty where there is none."""
        lines = self._path.read_text(encoding="utf-8").splitlines() if self._path.exists() else []
        return dict(json.loads(lines[-1])) if lines else {}


class Heartbeat:
    """A file whose age tells whether the trainer's main loop goes round."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)

    def beat(self) -> None:
        self._path.touch()

    def age_s(self) -> float | None:
        """Seconds since the last beat; None before the first."""
        try:
            return time.time() - self._path.stat().st_mtime
        except FileNotFoundError:
            return None
