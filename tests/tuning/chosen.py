"""What is chosen at once, for the record beside this file: `python -m tests.tuning.chosen` writes it anew.

A change that makes choosing faster leaves it as it is; a change of what is chosen says so in the changelog.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from benchmarks.measure.instant import named_patterns
from sparsesmith.matrix.pattern import Pattern, pattern_from_scipy
from sparsesmith.operations import Problem
from sparsesmith.tuning.instant import choices
from sparsesmith.tuning.models import CostModels
from sparsesmith_proto.kernel import Workload

RECORD = Path(__file__).with_name("chosen.json")
WORKLOADS: dict[str, dict[str, Any]] = {
    "spmv float32": {"operation": "spmv", "element_type": "float32"},
    "spmv float64": {"operation": "spmv", "element_type": "float64"},
    "spmm 32 float32": {"operation": "spmm", "element_type": "float32", "num_dense_cols": 32},
}
"""All choices of these are recorded, one by one."""
OTHERS: dict[str, dict[str, Any]] = {
    "spmv float16": {"operation": "spmv", "element_type": "float16"},
    "spmv bfloat16": {"operation": "spmv", "element_type": "bfloat16"},
    "spmm 8 float64": {"operation": "spmm", "element_type": "float64", "num_dense_cols": 8},
    "spmm 128 float32": {"operation": "spmm", "element_type": "float32", "num_dense_cols": 128},
    "spmm 32 float16": {"operation": "spmm", "element_type": "float16", "num_dense_cols": 32},
    "spmm 32 bfloat16": {"operation": "spmm", "element_type": "bfloat16", "num_dense_cols": 32},
    "spmv_t float32": {"operation": "spmv_t", "element_type": "float32"},
    "spmv_t float64": {"operation": "spmv_t", "element_type": "float64"},
    "sddmm 16 float32": {"operation": "sddmm", "element_type": "float32", "num_dense_cols": 16},
    "sddmm 16 float64": {"operation": "sddmm", "element_type": "float64", "num_dense_cols": 16},
}
"""Of these, the digest of all choices together."""


def patterns() -> Mapping[str, Pattern]:
    """Of two sizes, below and above what is sampled whole; and awkward ones."""
    sized = {f"{name} {nnz:g}": each for nnz in (3e3, 2e5) for name, each in named_patterns(nnz).items()}
    return sized | {
        "empty rows": _random(40_000, 3_000, 30_000),
        "wide": _random(40, 300_000, 150_000),
        "tall": _random(300_000, 40, 150_000),
        "one long row": _with_long_row(_random(20_000, 90_000, 60_000)),
    }


def _random(num_rows: int, num_cols: int, nnz: int) -> Pattern:
    random = np.random.default_rng(7)
    places = random.integers(num_rows, size=nnz), random.integers(num_cols, size=nnz)
    return pattern_from_scipy(scipy.sparse.csr_matrix((np.ones(nnz, np.int8), places), (num_rows, num_cols)))


def _with_long_row(pattern: Pattern) -> Pattern:
    rows, cols = pattern.row_indices(), pattern.col_indices
    long = np.arange(0, pattern.num_cols, 2)
    places = np.append(rows, np.full(long.size, pattern.num_rows // 2)), np.append(cols, long)
    shape = (pattern.num_rows, pattern.num_cols)
    return pattern_from_scipy(scipy.sparse.csr_matrix((np.ones(places[0].size, np.int8), places), shape))


def chosen(models: CostModels) -> dict[str, list[str]]:
    """All choices in order, each as its family and the first digits of its program's digest, by matrix and workload; of
    OTHERS the first digits of one digest."""
    found = {}
    for name, pattern in patterns().items():
        for label, workload in WORKLOADS.items():
            found[f"{name}, {label}"] = list(_of(pattern, workload, models))
        for label, workload in OTHERS.items():
            found[f"{name}, {label}"] = [_digest("\n".join(_of(pattern, workload, models)))]
    return found


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _of(pattern: Pattern, workload: dict[str, Any], models: CostModels) -> Iterator[str]:
    cost = models.on("NVIDIA H200", workload["operation"])
    for choice in choices(Problem(Workload(pattern=pattern.digest, **workload), pattern), cost):
        yield f"{choice.instance.family} {_digest(choice.instance.program)}"


if __name__ == "__main__":
    shipped = CostModels(Path(__file__).parents[2] / "models" / "cost-h200")
    RECORD.write_text(json.dumps(chosen(shipped), indent=1) + "\n", encoding="utf-8")
