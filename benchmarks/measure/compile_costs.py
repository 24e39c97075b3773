"""What compiling a candidate costs a core, by stage, and beside an older version of the evaluator.

    python -m benchmarks.measure.compile_costs [--old TREE --old-commit C] [--programs 60] [--turns 3]

The programs are what the cost model proposes first for the matrices of examples/, for two operations. **stages**: CPU
seconds of each step, measured in one process (a child that a step starts counts as the step's). **turns**: CPU seconds a
program of whole compilers, this tree's and the old one's, in turns.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from statistics import fmean, median
from typing import Any, TypeVar

from benchmarks.matrices.suites import example_sources
from benchmarks.origin import ROOT, source_commit, write_result
from services.evaluator.compiling.contract.facts import facts_of
from services.evaluator.compiling.contract.flow.unset import with_registers_set
from services.evaluator.compiling.toolchain import Toolchain
from services.evaluator.cores import num_cores
from services.evaluator.ptx import is_read_alike, print_module, read_module
from sparsesmith.families import propose
from sparsesmith.program.program import parse_program
from sparsesmith_proto.message import ElementType, Operation

ARCHITECTURE = "sm_90"
Result = TypeVar("Result")
PLANS: Sequence[tuple[Operation, ElementType, int]] = (
    ("spmv", "float32", 1),
    ("spmm", "float32", 8),
    ("spmv", "float64", 1),
)


def main() -> None:
    options = _options()
    sources = _sources(options.programs)
    result: dict[str, Any] = {
        "kind": "compile_costs",
        "commit": source_commit(),
        "old": options.old_commit,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "host": {"machine": platform.machine(), "num_cores": num_cores()},
        "versions": {name: metadata.version(name) for name in ("nvidia-cuda-nvrtc", "nvidia-cuda-nvcc")},
        "programs": len(sources),
        "ms_by_stage": stages(sources),
    }
    print(json.dumps(result["ms_by_stage"]), flush=True)
    if options.old is not None:
        result |= in_turns(sources, {"old": options.old.resolve(), "new": ROOT}, options.turns)
        print(json.dumps({key: result[key] for key in ("cpu_ms_a_program", "share_of_old")}))
    write_result(options.out, result)


def _sources(count: int) -> list[str]:
    """Sources that differ, as many of each plan and matrix."""
    found: dict[str, None] = {}
    matrices = [source.load() for source in example_sources()]
    each = -(-count // (len(matrices) * len(PLANS)))
    for matrix in matrices:
        for operation, element_type, columns in PLANS:
            instances = propose(matrix.pattern, operation, element_type, columns, limit=each)
            found.update(
                (parse_program(instance.program, operation, element_type).source, None) for instance in instances
            )
    return list(found)[:count]


# -- by stage ----------------------------------------------------------------------------------------------------------
class Stopwatch:
    """CPU milliseconds of steps, by name: this process and children that have ended."""

    def __init__(self) -> None:
        self.taken: dict[str, list[float]] = {}

    def of(self, name: str, step: Callable[[], Result]) -> Result:
        began = _cpu_s()
        result = step()
        self.taken.setdefault(name, []).append((_cpu_s() - began) * 1e3)
        return result


def _cpu_s() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def stages(sources: Sequence[str]) -> dict[str, dict[str, float]]:
    toolchain = Toolchain.find()
    compiler, assembler, options = toolchain.compiler, toolchain.assembler, toolchain.options(ARCHITECTURE)
    watch = Stopwatch()
    for source in sources:
        ptx = watch.of("nvrtc", lambda text=source: compiler.compile(text, options).ptx)  # type: ignore[misc]
        watch.of("compare", lambda text=ptx: is_read_alike(text))  # type: ignore[misc]
        module = watch.of("read", lambda text=ptx: read_module(text))  # type: ignore[misc]
        module, unset = watch.of("registers", lambda read=module: with_registers_set(read))  # type: ignore[misc]
        printed = watch.of("print", lambda read=module: print_module(read))  # type: ignore[misc]
        watch.of("assemble", lambda text=printed: assembler.assemble(text, ARCHITECTURE))  # type: ignore[misc]
        watch.of("judge", lambda read=module, known=unset: facts_of(read, known))  # type: ignore[misc]
    return {name: _spread(taken) for name, taken in watch.taken.items()}


def _spread(taken: Sequence[float]) -> dict[str, float]:
    return {"mean": round(fmean(taken), 2), "median": round(median(taken), 2), "most": round(max(taken), 2)}


# -- beside an older version -------------------------------------------------------------------------------------------
def in_turns(sources: Sequence[str], trees: Mapping[str, Path], turns: int) -> dict[str, Any]:
    taken: dict[str, list[float]] = {version: [] for version in trees}
    walls: dict[str, list[float]] = {version: [] for version in trees}
    with tempfile.TemporaryDirectory() as folder:
        written, out = Path(folder) / "sources.json", Path(folder) / "out.json"
        written.write_text(json.dumps(sources), encoding="utf-8")
        for turn in range(turns):
            for version in list(trees) if turn % 2 == 0 else list(trees)[::-1]:
                row = _compiled_by(trees[version], written, out)
                taken[version].append(round(row["cpu_s"] * 1e3 / len(sources), 1))
                walls[version].append(round(row["wall_s"] * 1e3 / len(sources), 1))
    share = median(taken["new"]) / median(taken["old"])
    return {"cpu_ms_a_program": taken, "wall_ms_a_program": walls, "share_of_old": round(share, 3)}


def _compiled_by(tree: Path, sources: Path, out: Path) -> dict[str, float]:
    inherited = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    others = [entry for entry in inherited if not Path(entry).resolve().is_relative_to(ROOT)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tree), str(tree / "proto"), *others])}
    driver = Path(__file__).with_name("compiled_sources.py")
    # Away from this tree: a script's own folder comes first on the path.
    code = "import sys, runpy; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    words = [sys.executable, "-c", code, str(driver), str(sources), str(out)]
    subprocess.run(words, cwd=tree, env=environment, check=True)
    row: dict[str, float] = json.loads(out.read_text(encoding="utf-8"))
    return row


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=60)
    parser.add_argument("--old", type=Path, help="source tree to compare with")
    parser.add_argument("--old-commit", default="")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "cpu" / "compile-costs.json")
    return parser.parse_args()


if __name__ == "__main__":
    main()
