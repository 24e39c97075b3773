"""One item of a benchmark in a process of its own, several at a time: rows of all of them."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

Command = Callable[[str, Path], Sequence[str]]
"""Arguments behind `python -m` for an item; its result file goes into the folder."""


def rows_apart(items: Sequence[str], command: Command, at_once: int, end: float) -> Iterator[list[dict[str, Any]]]:
    """Rows of each item as it is done. None is begun after `end` (monotonic clock), and what is not done by then is
    ended and has none."""
    with TemporaryDirectory() as folder, ThreadPoolExecutor(at_once) as pool:
        asked = [pool.submit(_rows, command, item, Path(folder) / item, end) for item in items]
        for done in as_completed(asked):
            yield done.result()


def _rows(command: Command, item: str, folder: Path, end: float) -> list[dict[str, Any]]:
    left = end - time.monotonic()
    if left <= 0:
        return []
    folder.mkdir()
    try:
        subprocess.run([sys.executable, "-m", *command(item, folder)], timeout=left, check=True)
    except subprocess.TimeoutExpired:
        print(f"{item}: not done in time", flush=True)
    except subprocess.CalledProcessError as error:
        print(f"{item}: exit status {error.returncode}", flush=True)
    return [row for path in folder.rglob("*.json") for row in json.loads(path.read_text(encoding="utf-8"))["rows"]]
