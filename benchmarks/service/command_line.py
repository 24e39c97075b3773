"""What the command line takes before it does anything: seconds of `--version`, `--help` and completion, each in a process.

    python -m benchmarks.service.command_line [--out benchmarks/results/cpu/command-line.json] [--runs 20]

Processor seconds beside the clock's: on a busy machine the second counts the neighbours as well.
"""

import argparse
import os
import resource
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from benchmarks.origin import RESULTS, machine, source_commit, write_result

COMPLETION = {"_SPARSESMITH_COMPLETE": "complete_bash", "COMP_WORDS": "sparsesmith ", "COMP_CWORD": "1"}
INVOCATIONS: tuple[tuple[str, tuple[str, ...], Mapping[str, str]], ...] = (
    ("python -c pass", (), {}),
    ("sparsesmith --version", ("--version",), {}),
    ("sparsesmith --help", ("--help",), {}),
    ("sparsesmith tune --help", ("tune", "--help"), {}),
    ("completion of a command", (), COMPLETION),
)


@dataclass(frozen=True)
class Started:
    """Medians of several processes."""

    invocation: str
    wall_s: float
    wall_worst_s: float
    processor_s: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS / "cpu" / "command-line.json")
    parser.add_argument("--runs", type=int, default=20)
    options = parser.parse_args()
    invocations = [measured(*invocation, runs=options.runs) for invocation in INVOCATIONS]
    for invocation in invocations:
        print(invocation, flush=True)
    result = {
        "kind": "command_line",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": source_commit(),
        "command": "python -m benchmarks.service.command_line",
        "machine": machine(),
        "load_average": os.getloadavg()[0],
        "runs": options.runs,
        "invocations": [asdict(invocation) for invocation in invocations],
    }
    write_result(options.out, result)


def measured(name: str, arguments: tuple[str, ...], environment: Mapping[str, str], *, runs: int) -> Started:
    """Start it a number of times, one after the other."""
    command = [sys.executable, "-c", "pass"] if name == INVOCATIONS[0][0] else [sys.executable, "-m", "sparsesmith.cli"]
    seconds = [_once([*command, *arguments], {**os.environ, **environment}) for _ in range(runs)]
    walls = [wall for wall, _ in seconds]
    return Started(name, median(walls), max(walls), median(processor for _, processor in seconds))


def _once(command: list[str], environment: Mapping[str, str]) -> tuple[float, float]:
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    wall_s, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall_s, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


if __name__ == "__main__":
    main()
