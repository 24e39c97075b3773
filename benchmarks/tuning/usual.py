"""Which programs are chosen at once again and again: writes sparsesmith/families/usual.json.

    python -m benchmarks.tuning.usual --matrices FOLDER [--cost-model FOLDER]

The first choices (`sparsesmith.tuning.instant`) for the matrices of the train side of benchmarks/split.csv that the folder
holds: programs that several of them come to. Evaluators compile these before anybody asks. What share of the validation
side they serve is printed.
"""

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import scipy.sparse

from benchmarks.matrices.split import read_split
from benchmarks.measure.choices_made import WORKLOADS, choice_of
from benchmarks.origin import ROOT
from sparsesmith.families.usual import USUAL_FILE
from sparsesmith.matrix.pattern import pattern_from_scipy
from sparsesmith.tuning.cost import CostModel
from sparsesmith.tuning.models import CostModels

AGAIN = 2
"""Matrices that come to a program."""


def main() -> None:
    options = _options()
    cost = CostModels(options.cost_model).on("NVIDIA H200")
    chosen: dict[str, Counter[str]] = {"train": Counter(), "validation": Counter()}
    for name, side in sorted(read_split().items()):
        if (path := options.matrices / f"{name}.npz").exists():
            chosen[side].update(_chosen(path, cost))
    again = {each: count for each, count in chosen["train"].most_common() if count >= AGAIN}
    USUAL_FILE.write_text(json.dumps([json.loads(each) for each in again], indent=1) + "\n", encoding="utf-8")
    for side, counted in chosen.items():
        for label, workload in WORKLOADS.items():
            of_workload = {each: count for each, count in counted.items() if _workload(json.loads(each)) == workload}
            served = sum(count for each, count in of_workload.items() if each in again)
            print(f"{side}, {label}: {served} of {sum(of_workload.values())} served")
    print(f"{len(again)} programs")


def _chosen(path: Path, cost: CostModel) -> Iterator[str]:
    """Of each workload, as a row of the file in JSON."""
    pattern = pattern_from_scipy(scipy.sparse.load_npz(path))
    for workload in WORKLOADS.values():
        instance = choice_of(pattern, workload, cost)[0].instance
        yield json.dumps({"family": instance.family, **workload, "parameters": dict(instance.parameters)})


def _workload(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in ("family", "parameters")}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--matrices", type=Path, required=True, help="folder of patterns as .npz")
    parser.add_argument("--cost-model", type=Path, default=ROOT / "models" / "cost-h200")
    return parser.parse_args()


if __name__ == "__main__":
    main()
