"""How well programs of a workload are put in order before they are compiled: the value model, which reads their text,
beside today's cost model, which knows families and their parameters, and beside the estimate that every family has.

    python -m benchmarks.learning.value_model VALUE_FOLDER --examples EXAMPLES.jsonl.xz --pack PATTERNS.pack [--device cpu]

Rank correlations are within a workload, over the workloads of validation matrices (benchmarks/split.csv). The cost model
ranks prospects of today's grids alone, so there are two tables: all measured programs, and those that both know.
"""

import argparse
import json
import platform
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.measure.measured import Measured, read_measured
from benchmarks.origin import ROOT, command, source_commit, write_result
from services.trainer.offline.example_file import read_examples
from services.trainer.offline.prompt_pool import Device, build_pool
from services.trainer.offline.recipe import RECORDS
from services.trainer.offline.sides import Patterns
from services.trainer.offline.targets import TargetRule, WorkloadKey, WorkloadTargets
from services.trainer.offline.value_training import (
    LEAST_PROGRAMS,
    FloatArray,
    Judged,
    Programs,
    ValueSettings,
    judged,
    log_times,
    ranking_of,
    thinned,
)
from services.trainer.policy_model import num_parameters
from services.trainer.tokenizer import load_tokenizer
from sparsesmith.policy.value import load_value_model
from sparsesmith.tuning.boosted import load_boosted_cost

OUT = ROOT / "benchmarks" / "results" / "cpu" / "value-model.json"
COST = ROOT / "models" / "cost-h200"


def main() -> None:
    options = _options()
    model, description = load_value_model(options.folder)
    model.to(options.device)
    settings, programs = (
        ValueSettings(device=options.device),
        Programs(load_tokenizer(options.folder / "tokenizer.json")),
    )
    workloads = read_examples(options.examples, TargetRule()).workloads["validation"]
    patterns = Patterns(options.pack)
    names = sorted({each.key.pattern for each in workloads})
    pool = build_pool({name: patterns.named(name) for name in names}, model.encoder.kind, 1, options.device)
    expected: dict[WorkloadKey, tuple[Judged, FloatArray]] = {}
    for each in workloads:
        known = thinned(programs.within(judged(each, Device()), settings.max_program_tokens), options.most)
        expected[each.key] = known, log_times(model, pool, known, programs, settings)
    boosted = load_boosted_cost(COST)
    measured = read_measured(list(RECORDS), options.pack, boosted.description.words, split="validation")
    trained = description.training["value"]
    result = {
        "kind": "value_model",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": source_commit(),
        "command": command("benchmarks.learning.value_model"),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "device": options.device,
        "model": {
            "name": description.name,
            "encoder": description.encoder,
            "parameters": num_parameters(model),
            **{
                name: trained[name]
                for name in ("settings", "steps", "passes", "seconds", "programs", "failures", "checks")
            },
        },
        "all_programs": asdict(ranking_of(pairs_of(expected.values()))),
        "by_operation": by_operation(expected),
        "programs_of_todays_grids": compared(measured, workloads, expected, boosted.log_costs_of),
    }
    write_result(options.out, result)
    print(json.dumps({name: result[name] for name in ("all_programs", "programs_of_todays_grids")}, indent=1))


def pairs_of(judgements: Iterable[tuple[Judged, FloatArray]]) -> list[tuple[FloatArray, FloatArray]]:
    """Logarithms of times, measured and expected, of workloads with enough programs."""
    return [(each.log_times, costs) for each, costs in judgements if len(each.programs) >= LEAST_PROGRAMS]


def by_operation(expected: Mapping[WorkloadKey, tuple[Judged, FloatArray]]) -> dict[str, Any]:
    """A ranking each: `spmv float32 1`, `spmm float32 32`."""
    groups: dict[str, list[tuple[Judged, FloatArray]]] = defaultdict(list)
    for key, judgement in expected.items():
        groups[f"{key.operation} {key.element_type} {key.num_dense_cols}"].append(judgement)
    return {name: asdict(ranking_of(pairs_of(groups[name]))) for name in sorted(groups)}


def compared(
    measured: Sequence[Measured],
    workloads: Sequence[WorkloadTargets],
    expected: Mapping[WorkloadKey, tuple[Judged, FloatArray]],
    cost: Callable[[Mapping[str, FloatArray]], FloatArray],
) -> dict[str, Any]:
    """Rankings of the same programs by the value model, by the cost model and by the families' estimates."""
    opened = {each.key: {program.graded: program.program for program in each.measured} for each in workloads}
    pairs: dict[str, list[tuple[FloatArray, FloatArray]]] = defaultdict(list)
    for each in measured:
        plan = each.plan
        key = WorkloadKey(each.matrix.name, plan.operation, plan.element_type, plan.num_dense_cols)
        if key not in expected:
            continue
        known, costs = expected[key]
        places = {text: place for place, text in enumerate(known.programs)}
        texts = [opened[key].get(each.grid.instance(index).program, "") for index in range(len(each.times_us))]
        rows = [row for row, text in enumerate(texts) if text in places]
        if len(rows) >= LEAST_PROGRAMS:
            times = np.log(each.times_us[rows])
            pairs["value model"].append((times, costs[[places[texts[row]] for row in rows]]))
            pairs["cost model"].append((times, cost(each.columns)[rows]))
            pairs["estimate"].append((times, each.columns["log_estimate"][rows]))
    return {name: asdict(ranking_of(found)) for name, found in pairs.items()}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="what the stage `value` wrote")
    parser.add_argument("--examples", type=Path, required=True, help="what the stage `examples` wrote")
    parser.add_argument("--pack", type=Path, nargs="+", required=True, help="pack of the patterns")
    parser.add_argument("--most", type=int, default=2_000, help="programs of a workload, evenly chosen by time")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=OUT)
    return parser.parse_args()


if __name__ == "__main__":
    main()
