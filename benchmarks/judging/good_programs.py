"""Whether honest programs are ever refused: instances of the families over random patterns, through all checks.

    python -m benchmarks.judging.good_programs [--patterns 400] [--programs 4] [--seconds S] [--out FILE]

Pattern number n is made by a generator that n seeds. For each of them and each workload, some of what the families
propose for it is compiled, judged by the contract and checked on the interpreter with freshly drawn inputs. The result
file holds how far it came, so that the command goes on where it was stopped; every program that did not pass is listed
with its reason.
"""

import argparse
import json
import os
import platform
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.origin import ROOT, source_commit, write_result
from services.evaluator.compiling.compiler import Compiled, CompileError, Compiler
from services.evaluator.interpreter.device import InterpreterDevice
from services.evaluator.isolation.workbench import LocalWorkbench
from sparsesmith.families import FamilyInstance, propose
from sparsesmith.matrix.pattern import Pattern, pattern_from_scipy
from sparsesmith.operations import Problem
from sparsesmith.program.program import parse_program
from sparsesmith_proto.kernel import Workload

WORKLOADS = (("spmv", "float32", 1), ("spmv", "float64", 1), ("spmm", "float32", 8), ("spmm", "float64", 32))
MAX_SIDE = 400
COMPILE_LIMIT_S = 60.0
OUT = ROOT / "benchmarks" / "results" / "cpu" / "good-programs.json"


def random_pattern(number: int) -> Pattern:
    """Of up to 400 rows and columns; uniform, banded, blocked, with long rows or power-law rows, some rows empty."""
    generator = np.random.default_rng(number)
    rows, cols = (int(side) for side in generator.integers(1, MAX_SIDE, 2))
    density = float(generator.uniform(0.002, 0.15))
    match number % 5:
        case 0:
            matrix = sp.random(rows, cols, density, format="csr", random_state=generator)
        case 1:
            offsets = np.unique(generator.integers(-rows + 1, cols, int(generator.integers(1, 9))))
            matrix = sp.diags([1.0] * len(offsets), offsets.tolist(), shape=(rows, cols), format="csr")
        case 2:
            side = int(generator.integers(2, 6))
            blocks = sp.random(rows // side + 1, cols // side + 1, density, format="csr", random_state=generator)
            matrix = sp.kron(blocks, np.ones((side, side)), format="csr")
        case 3:
            dense = generator.random((rows, cols)) < density / 4
            dense[generator.integers(rows)] = True
            matrix = sp.csr_matrix(dense.astype(float))
        case _:
            lengths = np.minimum(generator.zipf(1.7, rows), cols)
            dense = generator.random((rows, cols)) < (lengths / cols)[:, None]
            matrix = sp.csr_matrix(dense.astype(float))
    if matrix.nnz == 0:
        matrix = sp.csr_matrix(([1.0], ([0], [0])), shape=matrix.shape)
    return pattern_from_scipy(matrix)


def main() -> None:
    options = _options()
    state = _read(options.out)
    until = time.monotonic() + options.seconds
    with Compiler(1, timeout_s=COMPILE_LIMIT_S) as compiler:
        while state["num_patterns"] < options.patterns and time.monotonic() < until:
            _judge(state["num_patterns"], options.programs, compiler, state)
            state["num_patterns"] += 1
            _write(options.out, state)
    print(f"{state['num_patterns']} patterns, {state['num_programs']} programs, not passed: {len(state['refused'])}")


def _judge(number: int, num_programs: int, compiler: Compiler, state: dict[str, Any]) -> None:
    pattern = random_pattern(number)
    for operation, element_type, num_dense_cols in WORKLOADS:
        workload = Workload(
            pattern=pattern.digest, operation=operation, element_type=element_type, num_dense_cols=num_dense_cols
        )
        workbench = LocalWorkbench(InterpreterDevice(), Problem(workload, pattern))
        for instance in _chosen(pattern, workload, num_programs, number):
            outcome = _outcome(instance.program, workload, workbench, compiler)
            state["num_programs"] += 1
            if outcome:
                state["refused"].append(
                    {"pattern": number, "workload": [operation, element_type, num_dense_cols], "reason": outcome}
                    | {"family": instance.family, "program": instance.program}
                )
        workbench.close()


def _chosen(pattern: Pattern, workload: Workload, count: int, number: int) -> Iterator[FamilyInstance]:
    """A random few of all that may be proposed: the hopeful ones are much alike."""
    every = propose(pattern, workload.operation, workload.element_type, workload.num_dense_cols, limit=512)
    order = np.random.default_rng(number).permutation(len(every))[:count]
    yield from (every[index] for index in order)


def _outcome(text: str, workload: Workload, workbench: LocalWorkbench, compiler: Compiler) -> str:
    """Why a program did not pass; empty where it did."""
    program = parse_program(text, workload.operation, workload.element_type)
    binary = compiler.compile(program.source, "sm_90")
    match binary:
        case CompileError():
            return "" if binary.reason == "timeout" else f"compile: {binary.log[:500]}"
        case Compiled():
            workbench.build(program)
            verdict = workbench.check("kernel", program, binary)
            workbench.unload("kernel")
            return getattr(verdict, "message", "")


def _read(path: Path) -> dict[str, Any]:
    if path.is_file():
        state: dict[str, Any] = json.loads(path.read_text())
        return state
    return {"kind": "good_programs", "num_patterns": 0, "num_programs": 0, "refused": []}


def _write(path: Path, state: dict[str, Any]) -> None:
    state |= {
        "commit": source_commit(),
        "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": {"kind": "interpreter", "name": "PTX interpreter"},
        "host": {"machine": platform.machine(), "num_cores": os.cpu_count()},
    }
    write_result(path, state)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--patterns", type=int, default=400)
    parser.add_argument("--programs", type=int, default=4, help="for each pattern and workload")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after so long and go on with the next call")
    parser.add_argument("--out", type=Path, default=OUT)
    return parser.parse_args()


if __name__ == "__main__":
    main()
