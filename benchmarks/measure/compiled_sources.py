"""Compiles the sources of a file with the compiler of one source tree: what `benchmarks.measure.compile_costs` compares.

    PYTHONPATH=TREE:TREE/proto python COMPILED_SOURCES.py SOURCES.json OUT.json

Run as a file, so that everything else is the tree's own. CPU seconds are those of the worker, of what it starts, and of
the process that asks it.
"""

import argparse
import json
import os
import time
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    sources = json.loads(options.sources.read_text(encoding="utf-8"))
    is_new = find_spec("services.evaluator.compiling") is not None
    module = import_module("services.evaluator.compiling.compiler" if is_new else "services.evaluator.compilation")
    with module.Compiler(1, timeout_s=120.0) as compiler:
        compiler.compile(sources[0], "sm_90")
        began, wall = cpu_s(), time.perf_counter()
        compiled = [compiler.compile(source, "sm_90") for source in sources]
        row = {"cpu_s": cpu_s() - began, "wall_s": time.perf_counter() - wall}
    row["compiled"] = sum(isinstance(each, module.Compiled) for each in compiled)
    options.out.write_text(json.dumps(row), encoding="utf-8")


def cpu_s() -> float:
    """Of this process and its children, with theirs that have ended."""
    return time.process_time() + sum(map(_of_process, _children()))


def _children() -> Iterator[int]:
    for task in Path("/proc/self/task").iterdir():
        yield from map(int, (task / "children").read_text().split())


def _of_process(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) * TICK_S


if __name__ == "__main__":
    main()
