"""Result files that are written after every row: a run that is cut off leaves what it had, the next goes on there."""

import argparse
import json
import platform
import time
import traceback
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.origin import command, device_folder, source_commit
from sparsesmith_proto.kernel import DeviceDescription

Row = dict[str, Any]


class RowFile:
    """Rows by name, of one benchmark on one device, each with the commit that it was measured at. Rows of other settings are not gone on with, rows that failed are
    measured again."""

    def __init__(
        self,
        kind: str,
        device: DeviceDescription,
        options: argparse.Namespace,
        settings: Row,
        summary: Callable[[list[Row]], Row],
    ) -> None:
        """`summary`: what the rows come to, beside them in the file."""
        folder = options.out / ("cpu" if device.kind == "interpreter" else device_folder(device))
        self.path: Path = folder / f"{kind.replace('_', '-')}.json"
        self._summary = summary
        self._head: Row = {
            "kind": kind,
            "device": device.model_dump(),
            "commit": options.commit or source_commit(),
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "python": platform.python_version(),
            "command": command(f"benchmarks.solvers.{kind}"),
            "settings": settings,
        }
        self.rows = self._kept(settings)

    def _kept(self, settings: Row) -> list[Row]:
        if not self.path.is_file():
            return []
        found = json.loads(self.path.read_text(encoding="utf-8"))
        rows = found["rows"] if found["settings"] == settings else []
        return [row for row in rows if "failed" not in row]

    def fill(self, work: Mapping[str, Callable[[], Row]], end: float) -> None:
        """The rows that are not there yet, in order; none is begun after `end`, of time.monotonic."""
        known = {row["name"] for row in self.rows}
        for name, make in work.items():
            if name in known:
                continue
            if time.monotonic() > end:
                return
            self.measure(name, make)

    def measure(self, name: str, make: Callable[[], Row]) -> None:
        """A row; where it fails, for whatever reason, one that says so, and the next may be begun."""
        try:
            row = make()
        except Exception as error:
            traceback.print_exc()
            row = {"failed": f"{type(error).__name__}: {error}"[:2000]}
        self.add({"name": name, "commit": self._head["commit"], **row})

    def add(self, row: Row) -> None:
        """And write."""
        self.rows.append(row)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({**self._head, **self._summary(self.rows), "rows": self.rows}, indent=1)
        self.path.write_text(text + "\n", encoding="utf-8")
        print(json.dumps(row), flush=True)
