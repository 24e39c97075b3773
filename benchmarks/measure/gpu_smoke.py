"""A quick look at a GPU: its rates, every library routine and a few family programs on a handful of matrices.

    python -m benchmarks.measure.gpu_smoke [--out FILE.json] [--families N] [--quick]

Everything goes through the evaluator's own code in this process; a program that destroys the CUDA context ends the run.
"""

import argparse
import json
import logging
import os
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse

from benchmarks.matrices.generated import fem_blocks, power_law, stencil_2d, uniform_rows
from services.evaluator.checking.correctness import Correct
from services.evaluator.compiling.compiler import Compiled, CompileError, Compiler
from services.evaluator.isolation.workbench import Built, LocalWorkbench
from sparsesmith.families import propose
from sparsesmith.matrix.pattern import Pattern, pattern_from_scipy
from sparsesmith.operations import Problem
from sparsesmith.program.program import KernelProgram, parse_program
from sparsesmith_proto.kernel import MeasuredTiming, Workload
from sparsesmith_proto.message import ElementType, Operation

if TYPE_CHECKING:
    from services.evaluator.cuda.device import CudaDevice


@dataclass(frozen=True)
class Case:
    """One workload to look at."""

    name: str
    make: Callable[[], Pattern]
    operation: Operation = "spmv"
    element_type: ElementType = "float32"
    num_dense_cols: int = 1


def _small_random() -> Pattern:
    return pattern_from_scipy(
        scipy.sparse.random(2000, 2000, 0.005, format="csr", random_state=np.random.default_rng(2))
    )


CASES = (
    Case("lap2d_1000", lambda: stencil_2d(1000, 5)),
    Case("lap2d_100", lambda: stencil_2d(100, 5)),
    Case("small_random", _small_random),
    Case("uniform_200k_20", lambda: uniform_rows(200_000, 20)),
    Case("power_law_300k", lambda: power_law(300_000, 12)),
    Case("lap2d_1000 f64", lambda: stencil_2d(1000, 5), element_type="float64"),
    Case("uniform_50k_20 spmm32", lambda: uniform_rows(50_000, 20), "spmm", "float32", 32),
    Case("power_law_50k spmm8 f64", lambda: power_law(50_000, 12), "spmm", "float64", 8),
    Case("fem_blocks_3", lambda: fem_blocks(150, 3)),
    Case("fem_blocks_4 spmm16", lambda: fem_blocks(60, 4), "spmm", "float32", 16),
)


@dataclass
class Stages:
    """Wall time of each stage of each candidate, milliseconds."""

    build: list[float] = field(default_factory=list)
    check: list[float] = field(default_factory=list)
    quick: list[float] = field(default_factory=list)
    full: list[float] = field(default_factory=list)

    def medians(self) -> dict[str, float]:
        return {name: round(median(series), 2) for name, series in asdict(self).items() if series}


def main() -> None:
    arguments = _arguments()
    logging.basicConfig(level=logging.INFO, format="  %(message)s")
    started = time.perf_counter()
    from services.evaluator.cuda.device import CudaDevice  # Needs CuPy, which --help does not.

    device = CudaDevice()
    start_s = time.perf_counter() - started
    description = device.description()
    print(f"{description.name} {description.architecture}, {description.num_sms} SMs, L2 {device.l2_bytes >> 20} MiB, "
          f"{description.versions}")  # fmt: skip
    print(f"start {start_s:.2f} s, copy {description.copy_bandwidth_gbs:.0f} GB/s, empty kernel in a graph "
          f"{device.rates.graph_kernel_us:.3f} us, empty single graph {device.stopwatch.empty_single_us:.2f} us, "
          f"clocks {device.clocks.read()}")  # fmt: skip
    report: dict[str, Any] = {
        "device": description.model_dump(),
        "graph_kernel_us": device.rates.graph_kernel_us,
        "empty_single_us": device.stopwatch.empty_single_us,
        "cases": [],
    }
    with Compiler(num_workers=max(1, (os.cpu_count() or 2) - 1)) as compiler:
        for case in CASES[:3] if arguments.quick else CASES:
            try:
                report["cases"].append(_look_at(case, device, compiler, arguments.families))
            except Exception:  # A script for people: one broken case must not hide the others.
                traceback.print_exc()
            if arguments.out:
                arguments.out.write_text(json.dumps(report, indent=1))


def _look_at(case: Case, device: "CudaDevice", compiler: Compiler, num_families: int) -> dict[str, Any]:
    pattern = case.make()
    workload = Workload(
        pattern=pattern.digest,
        operation=case.operation,
        element_type=case.element_type,
        num_dense_cols=case.num_dense_cols,
    )
    workbench = LocalWorkbench(device, Problem(workload, pattern))
    print(f"\n== {case.name}: {pattern.num_rows} x {pattern.num_cols}, {pattern.nnz} nonzeros")
    started = time.perf_counter()
    baselines = workbench.baselines()
    print(f"  baselines in {time.perf_counter() - started:.2f} s")
    for routine in sorted(baselines.routines, key=lambda routine: routine.timing.median_us):
        _print_row(routine.routine, routine.timing, f"preparation {routine.preparation_ms:.2f} ms")
    best_us = baselines.best_routine().timing.median_us
    programs, stages = _family_rows(case, pattern, workbench, compiler, device.architecture, num_families, best_us)
    rows = {routine.routine: routine.timing.model_dump() for routine in baselines.routines}
    finalists = sorted((row for row in programs if "median_us" in row), key=lambda row: float(row["median_us"]))[:2]
    if finalists:
        final = workbench.retime([row["id"] for row in finalists], baselines.best_routine().routine)
        for row in finalists:
            timing = final.kernels[row["id"]]
            if isinstance(timing, MeasuredTiming):
                note = f"x{final.routine.median_us / timing.median_us:.2f}"
                _print_row(f"in turns {row['family']}", timing, note)
            else:
                print(f"  in turns {row['family']}: {timing}")
        _print_row("in turns library", final.routine, "")
    workbench.close()
    return {"name": case.name, "nnz": pattern.nnz, "baselines": rows, "programs": programs, "stages_ms": stages}


def _family_rows(
    case: Case,
    pattern: Pattern,
    workbench: LocalWorkbench,
    compiler: Compiler,
    architecture: str,
    limit: int,
    best_us: float,
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    proposals = propose(pattern, case.operation, case.element_type, case.num_dense_cols, limit)
    texts = [proposal.program for proposal in proposals]
    parsed = [parse_program(text, case.operation, case.element_type) for text in texts]
    started = time.perf_counter()
    binaries = list(compiler.compile_many([program.source for program in parsed], architecture))
    compile_s = time.perf_counter() - started
    stages = Stages()
    rows: list[dict[str, Any]] = []
    started = time.perf_counter()
    for number, (proposal, program, binary) in enumerate(zip(proposals, parsed, binaries, strict=True)):
        row: dict[str, Any] = {"id": f"f{number}", "family": proposal.family, "parameters": dict(proposal.parameters)}
        rows.append(row | _graded(row["id"], program, binary, workbench, stages))
    grade_s = time.perf_counter() - started
    for row in sorted(rows, key=lambda row: float(row.get("median_us", 1e30))):
        if "median_us" in row:
            shares = f"x{best_us / row['median_us']:.2f} error {row['worst_error']:.1e} {row['parameters']}"
            _print_row(row["family"], row["timing"], shares)
        else:
            print(f"  {row['family']:28s} {row['parameters']} {row['problem'][:300]}")
    print(f"  {len(rows)} programs: compiled in {compile_s:.2f} s, graded {len(rows) / grade_s:.1f} a second; "
          f"medians in ms {stages.medians()}")  # fmt: skip
    for row in rows:
        row.pop("timing", None)
    return rows, stages.medians()


def _graded(
    kernel_id: str, program: KernelProgram, binary: Compiled | CompileError, workbench: LocalWorkbench, stages: Stages
) -> dict[str, Any]:
    if isinstance(binary, CompileError):
        return {"problem": binary.log}
    with _clock(stages.build):
        built = workbench.build(program)
    if not isinstance(built, Built):
        return {"problem": built.message}
    with _clock(stages.check):
        verdict = workbench.check(kernel_id, program, binary)
    if not isinstance(verdict, Correct):
        return {"problem": verdict.message}
    with _clock(stages.quick):
        timing = workbench.time(kernel_id)
    if not isinstance(timing, MeasuredTiming):
        return {"problem": getattr(timing, "message", str(timing))}
    return {"median_us": timing.median_us, "timing": timing, "worst_error": verdict.worst_error,
            "cold_us": timing.cold_us, "format_bytes": built.format_bytes}  # fmt: skip


@contextmanager
def _clock(series: list[float]) -> Iterator[None]:
    started = time.perf_counter()
    yield
    series.append((time.perf_counter() - started) * 1e3)


def _print_row(name: str, timing: Any, note: str) -> None:
    width = (timing.high_us - timing.low_us) / timing.median_us * 100
    mark = " " if timing.stable else "~"
    print(f"  {name:28s} {timing.median_us:9.3f} us {mark} +-{width:4.1f} % ({timing.num_batches:2d}) cold "
          f"{timing.cold_us:9.2f} us {timing.sm_clock_mhz:5d} MHz  {note}")  # fmt: skip


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    default = Path(os.environ["OUT"]) / "gpu_smoke.json" if "OUT" in os.environ else None
    parser.add_argument("--out", type=Path, default=default, help="write all numbers here as JSON")
    parser.add_argument("--families", type=int, default=16, help="family programs a case")
    parser.add_argument("--quick", action="store_true", help="the first three cases only")
    return parser.parse_args()


if __name__ == "__main__":
    main()
