"""The interpreter's traffic model against times measured on a GPU: how well it ranks, and which constants fit best.

    python -m benchmarks.measure.calibrate_traffic PACK SWEEP.jsonl.xz [--out FILE.json] [--patterns 120] [--programs 8]

Programs of a sweep (`benchmarks.tuning.sweep`) are run by the interpreter on their patterns; a few constants of the model are
fitted on the training side of benchmarks/split.csv and judged on the validation side.
"""

import argparse
import csv
import json
import lzma
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from math import exp, log
from pathlib import Path
from statistics import mean, median
from typing import Any

import scipy.optimize
import scipy.stats

from benchmarks.matrices.split import SPLIT_FILE
from benchmarks.origin import RESULTS, write_result
from services.evaluator.checking.draws import draw, system_generator
from services.evaluator.compiling.compiler import Compiled, Compiler
from services.evaluator.device import BuiltMatrix, Ran
from services.evaluator.interpreter import (
    H200,
    TRAFFIC_MODEL,
    Counts,
    DeviceDescription,
    estimate_time,
)
from services.evaluator.interpreter.device import InterpretedKernel, InterpreterDevice
from sparsesmith.matrix.pack import read_pack
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.operations import Problem
from sparsesmith.program.program import parse_program
from sparsesmith_proto.kernel import Workload

FITTED = ("launch_overhead_us", "l2_bytes_per_us", "clocks_per_instruction", "wavefronts_per_clock")
"""Constants that the fit may change. Clock, DRAM and sizes are measured or given; hardly a program uses atomics."""
MAX_NNZ = 400_000
Work = list[tuple[Counts, int]]


@dataclass(frozen=True)
class Sample:
    """A program on a pattern: what the interpreter counted, what a GPU took."""

    pattern: str
    split: str
    family: str
    work: Work
    measured_us: float

    def estimated_us(self, device: DeviceDescription) -> float:
        return sum(estimate_time(counts, grid_blocks, device).total_us for counts, grid_blocks in self.work)


def choose(
    rows: Sequence[Mapping[str, Any]], num_patterns: int, num_programs: int
) -> list[tuple[str, list[Mapping[str, Any]]]]:
    """Patterns evenly by size from each side of the split, programs evenly by time; float32 SpMV."""
    with SPLIT_FILE.open(encoding="utf-8", newline="") as file:
        sizes = {row["name"]: (row["split"], int(row["nnz"])) for row in csv.DictReader(file)}
    programs: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        split, nnz = sizes.get(row["pattern"], ("", 0))
        if split and nnz <= MAX_NNZ and (row["operation"], row["element_type"]) == ("spmv", "float32"):
            programs[row["pattern"]].append({**row, "split": split})
    chosen = []
    for split, share in (("train", 0.6), ("validation", 0.4)):
        names = sorted((name for name in programs if sizes[name][0] == split), key=lambda name: sizes[name][1])
        for name in _spread(names, round(share * num_patterns)):
            chosen.append((name, _spread(sorted(programs[name], key=lambda row: row["median_us"]), num_programs)))
    return chosen


def _spread(items: Sequence[Any], count: int) -> list[Any]:
    """Evenly from first to last."""
    if len(items) <= count:
        return list(items)
    return [items[round(position * (len(items) - 1) / (count - 1))] for position in range(count)]


def interpret(name: str, pattern: Pattern, rows: Sequence[Mapping[str, Any]], compiler: Compiler) -> list[Sample]:
    """The programs that the interpreter models, run once each."""
    workload = Workload(pattern=pattern.digest, operation="spmv", element_type="float32")
    device_workload = InterpreterDevice().open(Problem(workload, pattern))
    inputs = draw("uniform", Problem(workload, pattern), system_generator())
    samples = []
    for row in rows:
        program = parse_program(row["program"], "spmv", "float32")
        binary = compiler.compile(program.source, "sm_90")
        assert isinstance(binary, Compiled), binary
        layout = program.format.build(pattern, program.parameters)
        kernel = device_workload.load(program, BuiltMatrix(name, layout, 0, 0.0), binary)
        if isinstance(kernel, InterpretedKernel) and isinstance(kernel.run(inputs, None), Ran):
            samples.append(Sample(name, row["split"], row["family"], kernel.work(), row["median_us"]))
    return samples


def with_constants(logs: Sequence[float]) -> DeviceDescription:
    fitted: dict[str, Any] = {name: exp(value) for name, value in zip(FITTED, logs, strict=True)}
    return replace(H200, **fitted)


def fit(samples: Sequence[Sample]) -> DeviceDescription:
    """Least absolute errors of the logarithm of the time: of each program, and beside its pattern's other programs."""
    patterns = sorted({sample.pattern for sample in samples})
    groups = [[sample for sample in samples if sample.pattern == pattern] for pattern in patterns]

    def loss(logs: Sequence[float]) -> float:
        device = with_constants(logs)
        errors = [[log(sample.estimated_us(device) / sample.measured_us) for sample in group] for group in groups]
        return sum(abs(error) / 2 + abs(error - mean(group)) for group in errors for error in group)

    start = [log(getattr(H200, name)) for name in FITTED]
    options = {"maxiter": 300, "xatol": 1e-3, "fatol": 1e-2}
    return with_constants(scipy.optimize.minimize(loss, start, method="Nelder-Mead", options=options).x)


def quality(samples: Sequence[Sample], device: DeviceDescription) -> dict[str, float]:
    """Error of the time, and how well programs of one pattern are ranked (Spearman, mean over patterns)."""
    estimates = {id(sample): sample.estimated_us(device) for sample in samples}
    errors = [abs(estimates[id(sample)] / sample.measured_us - 1) for sample in samples]
    by_pattern: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        by_pattern[sample.pattern].append(sample)
    within = [
        scipy.stats.spearmanr([estimates[id(s)] for s in group], [s.measured_us for s in group]).statistic
        for group in by_pattern.values()
        if len(group) > 2
    ]
    picked = [
        min(group, key=lambda sample: estimates[id(sample)]).measured_us / min(sample.measured_us for sample in group)
        for group in by_pattern.values()
    ]
    return {
        "programs": len(samples),
        "patterns": len(by_pattern),
        "median_relative_error": round(median(errors), 3),
        "rank_correlation_within_a_pattern": round(mean(within), 3),
        "time_of_the_pick_over_the_best": round(mean(picked), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pack", type=Path)
    parser.add_argument("sweep", type=Path)
    parser.add_argument("--out", type=Path, default=RESULTS / "h200" / "traffic_model.json")
    parser.add_argument("--patterns", type=int, default=120)
    parser.add_argument("--programs", type=int, default=8)
    options = parser.parse_args()
    with lzma.open(options.sweep, "rt") as file:
        rows = [json.loads(line) for line in file]
    chosen = dict(choose(rows, options.patterns, options.programs))
    samples: list[Sample] = []
    with Compiler(1) as compiler:
        for name, pattern in read_pack(options.pack, chosen):
            samples += interpret(name, pattern, chosen[name], compiler)
            print(f"{name}: {len(samples)} programs", flush=True)
    train = [sample for sample in samples if sample.split == "train"]
    validation = [sample for sample in samples if sample.split == "validation"]
    fitted = fit(train)
    result = {
        "kind": "traffic_model",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "measured_on": H200.name,
        "model": TRAFFIC_MODEL,
        "constants": asdict(H200),
        "train": quality(train, H200),
        "validation": quality(validation, H200),
        "fitted_constants": {name: getattr(fitted, name) for name in FITTED},
        "fitted_train": quality(train, fitted),
        "fitted_validation": quality(validation, fitted),
    }
    write_result(options.out, result)
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
