"""What a course did, one JSON line an event: whoever goes on after a kill knows from it where the course stands.

A line that a kill tore is passed over. Seconds are those of learning: starts, judgements and pauses do not count.
"""

import json
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

Event = Mapping[str, Any]


class Ledger:
    """Events in the order in which they happened. Used from several threads."""

    def __init__(self, path: Path) -> None:
        """Reads what an earlier piece of the course left."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._lock = threading.Lock()
        self._events = list(_read(path))

    def write(self, event: str, at_s: float, **fields: Any) -> None:
        """On disk when this returns."""
        entry = {"event": event, "at_s": round(at_s, 3), **fields}
        with self._lock:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")
            self._events.append(entry)

    def events(self, name: str) -> list[Event]:
        """Of one kind."""
        with self._lock:
            return [each for each in self._events if each["event"] == name]

    @property
    def seconds(self) -> float:
        """Of learning, at the newest event."""
        with self._lock:
            return max((float(each["at_s"]) for each in self._events), default=0.0)

    def open_jobs(self) -> dict[str, Event]:
        """Jobs that were posted, and not seen to end, by their ids."""
        ended = {each["job"] for name in ("graded", "failed") for each in self.events(name)}
        return {each["job"]: each for each in self.events("posted") if each["job"] not in ended}


def _read(path: Path) -> Iterator[Event]:
    lines = path.read_text(encoding="utf-8").split("\n") if path.exists() else []
    if lines and lines[-1]:  # Torn: what comes next must not be written behind it.
        with path.open("a", encoding="utf-8") as file:
            file.write("\n")
    for line in lines:
        try:
            entry = json.loads(line) if line else None
        except json.JSONDecodeError:
            entry = None
        if isinstance(entry, dict) and "event" in entry and "at_s" in entry:
            yield entry
