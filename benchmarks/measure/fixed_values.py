"""What values="fixed" is worth: the best program for any values, the best for these values, the best library routine.

    python -m benchmarks.measure.fixed_values [--names poisson2d_1000 ...] [--types float32 float64] [--candidates 48]

Writes benchmarks/results/<device>/fixed-values.json, anew after every workload.
"""

import argparse
import json
import os
import platform
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

import numpy as np
import scipy.sparse

from benchmarks.matrices.generated import fem_blocks, power_law, stencil_3d
from benchmarks.origin import ROOT, device_folder, source_commit
from services.evaluator.compiling.compiler import Compiler
from services.evaluator.devices import device_process
from services.evaluator.jobs import Grader
from services.evaluator.settings import EvaluatorSettings
from sparsesmith.errors import SparsesmithError
from sparsesmith.families import FamilyInstance, propose
from sparsesmith.families.fixed.proposal import propose_fixed
from sparsesmith.matrix.pattern import Pattern, pattern_from_scipy
from sparsesmith.matrix.values import FixedValues, fixed_values
from sparsesmith.operations import Problem
from sparsesmith_proto.evaluation import EvaluationJob, EvaluationReport
from sparsesmith_proto.kernel import Candidate, DeviceDescription, FromFamily, MeasuredTiming, Passed, Workload
from sparsesmith_proto.message import ElementType

JOB_BUDGET_S = 120

Row = dict[str, Any]


def poisson_2d(side: int) -> scipy.sparse.csr_matrix:
    """Five-point Laplacian with Dirichlet borders: values 4 and -1."""
    line, one = _second_difference(side), scipy.sparse.identity(side)
    return scipy.sparse.csr_matrix(scipy.sparse.kron(line, one) + scipy.sparse.kron(one, line))


def poisson_3d(side: int) -> scipy.sparse.csr_matrix:
    """Seven-point Laplacian with Dirichlet borders: values 6 and -1."""
    line, one = _second_difference(side), scipy.sparse.identity(side)
    plane = scipy.sparse.kron(line, one) + scipy.sparse.kron(one, line)
    return scipy.sparse.csr_matrix(
        scipy.sparse.kron(plane, one) + scipy.sparse.kron(scipy.sparse.identity(side * side), line)
    )


def trilinear_3d(side: int) -> scipy.sparse.csr_matrix:
    """Stiffness of trilinear elements on a cube: 27 points, the value depends on which neighbours there are."""
    pattern = stencil_3d(side, 27)
    rows = pattern.row_indices()
    steps = sum(
        (rows // scale % side != pattern.col_indices // scale % side).astype(np.int8)
        for scale in (1, side, side * side)
    )
    lengths = pattern.row_lengths[rows]
    off_diagonal = np.array([0.0, 0.0, -1 / 6, -1 / 12])[steps] * np.where(lengths == 27, 1.0, 0.5)
    return pattern.to_scipy(np.where(steps == 0, 8 / 3 * lengths / 27, off_diagonal))


def unweighted_graph(num_rows: int) -> scipy.sparse.csr_matrix:
    """A scale-free graph with ones: what a GNN multiplies with."""
    return _with_ones(power_law(num_rows, 10))


def unweighted_mesh(side: int) -> scipy.sparse.csr_matrix:
    """A triangulation whose patches are numbered at random, with ones."""
    return _with_ones(fem_blocks(side, 1))


def elasticity(side: int, unknowns: int) -> scipy.sparse.csr_matrix:
    """A node block of its own for each kind of neighbour: some sixty distinct values on a regular mesh."""
    pattern = fem_blocks(side, unknowns)
    blocks = np.round(np.random.default_rng(1).uniform(-1, 1, (3, unknowns, unknowns)), 3)
    rows, cols = pattern.row_indices(), pattern.col_indices
    kinds = np.sign(cols // unknowns - rows // unknowns) + 1
    return pattern.to_scipy(blocks[kinds, rows % unknowns, cols % unknowns])


def single_precision_data(side: int) -> scipy.sparse.csr_matrix:
    """Measured in float32, computed with in float64: every value another."""
    pattern = fem_blocks(side, 2)
    return pattern.to_scipy(np.random.default_rng(2).uniform(-1, 1, pattern.nnz).astype(np.float32).astype(np.float64))


MATRICES: dict[str, Callable[[], scipy.sparse.csr_matrix]] = {
    "poisson2d_100": lambda: poisson_2d(100),
    "poisson2d_1000": lambda: poisson_2d(1000),
    "poisson3d_128": lambda: poisson_3d(128),
    "trilinear3d_90": lambda: trilinear_3d(90),
    "unweighted_mesh_1000": lambda: unweighted_mesh(1000),
    "unweighted_graph_500000": lambda: unweighted_graph(500_000),
    "elasticity3_400": lambda: elasticity(400, 3),
    "single_precision_500": lambda: single_precision_data(500),
}


@dataclass(frozen=True)
class OneMatrix:
    """What the grader takes patterns and values from, without a Redis."""

    pattern: Pattern
    values: FixedValues

    def problem(self, workload: Workload) -> Problem:
        assert workload.pattern == self.pattern.digest
        assert workload.values in (None, self.values.digest)
        return Problem(workload, self.pattern, None if workload.values is None else self.values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", nargs="+", choices=tuple(MATRICES), default=tuple(MATRICES))
    parser.add_argument("--types", nargs="+", choices=get_args(ElementType), default=get_args(ElementType))
    parser.add_argument("--candidates", type=int, default=48, help="programs for any values; twice as many for fixed")
    parser.add_argument("--seconds", type=float, default=3600, help="no new workload is begun after this time")
    parser.add_argument("--commit", default="", help="of the code, where git does not say")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    options = parser.parse_args()
    deadline = time.monotonic() + options.seconds
    settings = EvaluatorSettings()
    num_compilers = max(1, (os.cpu_count() or 1) - 1)
    rows: list[Row] = []
    with (
        closing(device_process(settings)) as process,
        Compiler(num_compilers, timeout_s=settings.compile_limit_s) as compiler,
    ):
        device, grader = process.start(), Grader(process, compiler)
        for name in options.names:
            matrix = MATRICES[name]()
            for element_type in options.types:
                if time.monotonic() > deadline:
                    print(f"time is up at {name}", flush=True)
                    return
                rows.append(measured_row(grader, name, matrix, element_type, options.candidates))
                print(_line(rows[-1]), flush=True)
                _write(options.out, device, rows, options.commit)


def measured_row(
    grader: Grader, name: str, matrix: scipy.sparse.csr_matrix, element_type: ElementType, limit: int
) -> Row:
    """Both questions on one matrix; times in microseconds, warm (`us`) and cold (`cold_us`)."""
    pattern, values = pattern_from_scipy(matrix), fixed_values(matrix.data, element_type)
    store = OneMatrix(pattern, values)
    row: Row = {"name": name, "element_type": element_type, "num_rows": pattern.num_rows, "nnz": pattern.nnz}
    row["distinct_values"] = int(np.unique(values.array).size)
    general = propose(pattern, "spmv", element_type, 1, limit=limit)
    began = time.monotonic()
    special = propose_fixed(pattern, values, "spmv", element_type, general, limit=2 * limit)
    row["propose_fixed_s"] = time.monotonic() - began
    workload = Workload(pattern=pattern.digest, operation="spmv", element_type=element_type)
    try:
        any_report = _graded(grader, store, workload, general)
        fixed_report = _graded(grader, store, workload.model_copy(update={"values": values.digest}), special)
    except SparsesmithError as error:
        return {**row, "failed": error.message}
    best = any_report.baselines.best_routine()
    return {
        **row,
        "best_baseline": {"routine": best.routine, **_times(best.timing)},
        "default_us": any_report.baselines.default_routine().timing.median_us,
        "csr_bytes": any_report.csr_bytes,
        "any": _summary(any_report),
        "fixed": _summary(fixed_report),
    }


def _graded(
    grader: Grader, store: OneMatrix, workload: Workload, instances: Sequence[FamilyInstance]
) -> EvaluationReport:
    candidates = tuple(
        Candidate(
            candidate_id=f"family-{number}",
            program=instance.program,
            origin=FromFamily(family=instance.family, parameters=dict(instance.parameters)),
        )
        for number, instance in enumerate(instances)
    )
    job = EvaluationJob(job_id="fixed-values", workload=workload, candidates=candidates, budget_s=JOB_BUDGET_S)
    return grader.grade(job, store)


def _summary(report: EvaluationReport) -> Row:
    """Outcomes counted, the fastest of each family, messages of those that failed."""
    outcomes = Counter(each.outcome.outcome for each in report.evaluations)
    families: dict[str, tuple[tuple[bool, float], Row]] = {}
    failures = []
    for each in report.evaluations:
        origin = each.candidate.origin
        assert isinstance(origin, FromFamily)
        if not isinstance(each.outcome, Passed):
            failures.append(f"{origin.family} {origin.parameters}: {each.outcome.model_dump_json()[:300]}")
            continue
        name = " ".join([origin.family, *str(origin.parameters.get("values", "")).split()])
        found = {
            **_times(each.outcome.timing),
            "storage_format": each.outcome.storage_format,
            "format_bytes": each.outcome.format_bytes,
            "conversion_ms": each.outcome.conversion_ms,
            "parameters": origin.parameters,
        }
        standing = each.outcome.standing
        if name not in families or standing < families[name][0]:
            families[name] = standing, found
    ranking = {name: families[name][1] for name in sorted(families, key=lambda name: families[name][0])}
    best = next(iter(ranking), None)
    return {
        "outcomes": dict(outcomes),
        "best": None if best is None else {"family": best, **ranking[best]},
        "families": ranking,
        "failures": failures[:8],
    }


def _times(timing: Any) -> Row:
    if isinstance(timing, MeasuredTiming):
        return {"us": timing.median_us, "cold_us": timing.cold_us, "stable": timing.stable}
    return {"us": timing.median_us, "traffic_model": timing.traffic_model}


def _line(row: Row) -> str:
    head = f"{row['name']:26s} {row['element_type']} {row['nnz']:9d}"
    if "failed" in row:
        return f"{head} FAILED {row['failed'][:200]}"
    base, parts = row["best_baseline"]["us"], []
    for question in ("any", "fixed"):
        best = row[question]["best"]
        parts.append(
            f"{question} {best['us']:8.2f} x{base / best['us']:.2f} {best['family']}" if best else "none passed"
        )
    return f"{head} {base:8.2f} {row['best_baseline']['routine']:22s} | {' | '.join(parts)}"


def _write(out: Path, device: DeviceDescription, rows: list[Row], commit: str) -> None:
    folder = out / device_folder(device)
    folder.mkdir(parents=True, exist_ok=True)
    content = {
        "kind": "fixed_values",
        "operation": "spmv",
        "device": device.model_dump(),
        "commit": commit or source_commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "cpu_cores": os.cpu_count(),
        "command": "python -m benchmarks.measure.fixed_values",
        "rows": rows,
    }
    (folder / "fixed-values.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _second_difference(side: int) -> scipy.sparse.dia_matrix:
    return scipy.sparse.diags([-1.0, 2.0, -1.0], [-1, 0, 1], shape=(side, side))


def _with_ones(pattern: Pattern) -> scipy.sparse.csr_matrix:
    return pattern.to_scipy(np.ones(pattern.nnz))


if __name__ == "__main__":
    main()
