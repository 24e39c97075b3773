"""What one source tree chooses at once, and how long it takes over it: what `benchmarks.measure.choosing` compares.

    PYTHONPATH=TREE:TREE/proto python CHOICES_MADE.py WORDS.json OUT.json

Run as a file, so that everything else is the tree's own. WORDS names `cost_model`, and either `nnz` and `runs` (times on
generated patterns) or `matrices` and `names` (choices for matrices of a folder). Milliseconds are those of this
process's CPU time; each run is of a pattern that nothing is remembered of but its digest.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import scipy.sparse

from benchmarks.measure.instant import named_patterns
from sparsesmith.matrix.pattern import Pattern, pattern_from_scipy
from sparsesmith.operations import Problem
from sparsesmith.tuning.cost import CostModel
from sparsesmith.tuning.instant import Choice, choices
from sparsesmith.tuning.models import CostModels
from sparsesmith_proto.kernel import Workload

WORKLOADS: dict[str, dict[str, Any]] = {
    "spmv float32": {"operation": "spmv", "element_type": "float32"},
    "spmv float64": {"operation": "spmv", "element_type": "float64"},
    "spmm 32 float32": {"operation": "spmm", "element_type": "float32", "num_dense_cols": 32},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    asked = json.loads(options.words.read_text(encoding="utf-8"))
    cost = CostModels(Path(asked["cost_model"])).on("NVIDIA H200")
    rows = timed(cost, asked["nnz"], asked["runs"]) if "nnz" in asked else made(cost, asked)
    options.out.write_text(json.dumps(rows), encoding="utf-8")


def timed(cost: CostModel, nnz: float, runs: int) -> dict[str, dict[str, list[float]]]:
    """CPU milliseconds by workload and pattern; what only a first call pays is paid before."""
    patterns = named_patterns(nnz)
    for workload in WORKLOADS.values():
        choice_of(patterns["uniform"], workload, cost)
    return {
        name: {
            label: [choice_of(pattern, workload, cost)[1] for _ in range(runs)] for label, pattern in patterns.items()
        }
        for name, workload in WORKLOADS.items()
    }


def made(cost: CostModel, asked: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Family, parameters and CPU milliseconds by matrix and workload."""
    rows: dict[str, dict[str, Any]] = {}
    for name in asked["names"]:
        pattern = pattern_from_scipy(scipy.sparse.load_npz(Path(asked["matrices"]) / f"{name}.npz"))
        rows[name] = {"nnz": pattern.nnz}
        for label, workload in WORKLOADS.items():
            choice, ms = choice_of(pattern, workload, cost)
            rows[name][label] = {
                "family": choice.instance.family,
                "parameters": dict(choice.instance.parameters),
                "ms": round(ms, 2),
            }
    return rows


def choice_of(pattern: Pattern, workload: dict[str, Any], cost: CostModel) -> tuple[Choice, float]:
    """The first choice, and its CPU milliseconds."""
    fresh = Pattern(pattern.num_rows, pattern.num_cols, pattern.row_offsets, pattern.col_indices)
    problem = Problem(Workload(pattern=fresh.digest, **workload), fresh)
    began = time.process_time()
    choice = next(choices(problem, cost))
    return choice, (time.process_time() - began) * 1e3


if __name__ == "__main__":
    main()
