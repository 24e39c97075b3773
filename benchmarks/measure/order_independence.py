"""Whether a result depends on what was graded before it: the same programs on the same matrices in random orders.

    python -m benchmarks.measure.order_independence [--programs 24] [--orders 3] [--out FOLDER]

Outcomes must be the same in every order. Times may differ by noise: by a few per cent where a program far from the best
was timed briefly, by less where it came to the finals. Estimates (without a GPU) must be the same to the last bit.
"""

import argparse
import json
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from random import SystemRandom
from statistics import median
from typing import Any

import numpy as np
import scipy.sparse

from benchmarks.matrices.generated import fem_blocks, power_law, stencil_2d
from benchmarks.origin import ROOT, command, device_folder, source_commit
from services.evaluator.candidates import parse_candidate
from services.evaluator.compiling.ahead import CompilationsAhead
from services.evaluator.compiling.compiler import Compiler
from services.evaluator.devices import device_process
from services.evaluator.evaluation import evaluate_kernel
from services.evaluator.grading import run_finals
from services.evaluator.isolation.sandbox import DeviceProcess
from services.evaluator.race import FINALIST_RATIO, Race
from services.evaluator.settings import EvaluatorSettings
from sparsesmith.families import propose
from sparsesmith.matrix.pattern import Pattern, pattern_from_scipy
from sparsesmith.operations import Problem
from sparsesmith_proto.kernel import Candidate, FromFamily, Outcome, Passed, Workload

COMPILE_WAIT_S = 600

Run = Mapping[str, Outcome]
"""Outcomes by candidate."""


def _small() -> Pattern:
    return pattern_from_scipy(
        scipy.sparse.random(2000, 2000, 0.005, format="csr", random_state=np.random.default_rng(2))
    )


MATRICES: Mapping[str, Callable[[], Pattern]] = {
    "random_2000": _small,
    "stencil2d5_300": lambda: stencil_2d(300, 5),
    "fem3_80": lambda: fem_blocks(80, 3),
    "power_law_60000": lambda: power_law(60_000, 12),
}
LARGEST_WITHOUT_GPU = 25_000
"""Nonzeros: the interpreter takes seconds for more."""


def main() -> None:
    options = _options()
    settings = EvaluatorSettings()
    num_compilers = max(1, (os.cpu_count() or 1) - 1)
    with (
        closing(device_process(settings)) as process,
        Compiler(num_compilers, timeout_s=settings.compile_limit_s) as compiler,
    ):
        device = process.start()
        rows, times = [], {}
        for name, make in MATRICES.items():
            pattern = make()
            if device.kind == "interpreter" and pattern.nnz > LARGEST_WITHOUT_GPU:
                continue
            runs = graded_in_orders(pattern, process, compiler, options.programs, options.orders)
            rows.append({"name": name, "nnz": pattern.nnz, **compared(runs)})
            times[name] = {each: [_us(run[each]) for run in runs] for each in runs[0]}
            print(rows[-1], flush=True)
    result = {
        "kind": "order_independence",
        "device": device.model_dump(),
        "commit": options.commit or source_commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "command": command("benchmarks.measure.order_independence"),
        "orders": options.orders,
        "same_outcomes": all(row["same_outcomes"] for row in rows),
        "worst_spread_near_the_best": max(row["worst_spread_near_the_best"] for row in rows),
        "worst_spread": max(row["worst_spread"] for row in rows),
        "rows": rows,
        "times_us": times,
    }
    folder = options.out / device_folder(device)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "order-independence.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def graded_in_orders(
    pattern: Pattern, process: DeviceProcess, compiler: Compiler, num_programs: int, num_orders: int
) -> list[dict[str, Outcome]]:
    """Every order is a batch of its own, with inputs of its own; all programs are compiled before the first."""
    workload = Workload(pattern=pattern.digest, operation="spmv", element_type="float32")
    candidates = [
        Candidate(
            candidate_id=f"program-{number}",
            program=instance.program,
            origin=FromFamily(family=instance.family, parameters=dict(instance.parameters)),
        )
        for number, instance in enumerate(propose(pattern, "spmv", "float32", 1, limit=num_programs))
    ]
    runs = []
    with CompilationsAhead(compiler, process.description().architecture, COMPILE_WAIT_S) as ahead:
        parsed = [parse_candidate(each, workload) for each in candidates]
        compiled = list(ahead.as_compiled(parsed, time.monotonic() + COMPILE_WAIT_S))
        baselines = process.open(Problem(workload, pattern)).baselines()
        for _ in range(num_orders):
            SystemRandom().shuffle(compiled)
            workbench, race = process.open(Problem(workload, pattern)), Race(baselines.best_routine().timing.median_us)
            outcomes = {
                each.candidate.program: evaluate_kernel(each, ahead.result, workbench, race) for each in compiled
            }
            outcomes, _ = run_finals(race, workbench, compiled, outcomes, baselines)
            runs.append({each.candidate_id: outcomes[each.program] for each in candidates})
    return runs


def compared(runs: Sequence[Run]) -> dict[str, Any]:
    """How outcomes and times of the same programs agree. A spread is the largest time over the smallest, less 1."""
    outcomes = [{name: outcome.outcome for name, outcome in run.items()} for run in runs]
    passed = [name for name in runs[0] if all(isinstance(run[name], Passed) for run in runs)]
    times = {name: [us for run in runs if (us := _us(run[name])) is not None] for name in passed}
    spreads = {name: max(series) / min(series) - 1 for name, series in times.items()}
    best_us = min((median(series) for series in times.values()), default=0.0)
    near = [name for name, series in times.items() if median(series) <= best_us * FINALIST_RATIO]
    return {
        "programs": len(runs[0]),
        "passed": len(passed),
        "same_outcomes": all(each == outcomes[0] for each in outcomes),
        "median_spread": median(spreads.values()) if spreads else 0.0,
        "worst_spread": max(spreads.values(), default=0.0),
        "worst_spread_near_the_best": max((spreads[name] for name in near), default=0.0),
    }


def _us(outcome: Outcome) -> float | None:
    return outcome.timing.median_us if isinstance(outcome, Passed) else None


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=24)
    parser.add_argument("--orders", type=int, default=3)
    parser.add_argument("--commit", default="", help="of the code, where git does not say")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    return parser.parse_args()


if __name__ == "__main__":
    main()
