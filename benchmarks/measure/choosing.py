"""What a choice at once costs a core, and whether it is the choice of an older tree.

    python -m benchmarks.measure.choosing --old TREE --old-commit C [--matrices FOLDER] [--nnz 1e5 1e6 1e7] [--turns 3]

**times**: CPU milliseconds of `sparsesmith.tuning.instant.choices` up to its first program, on generated patterns of which
nothing is remembered, by this tree and the old one in turns. **choices**: of every matrix of benchmarks/split.csv that the
folder holds, what both choose; where they differ, the cost model's prediction over the whole grid of a search, of the
new choice over the old one.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import scipy.sparse

from benchmarks.matrices.split import read_split
from benchmarks.measure.choices_made import WORKLOADS
from benchmarks.origin import RESULTS, ROOT, command, machine, source_commit, write_result
from sparsesmith.matrix.pattern import pattern_from_scipy
from sparsesmith.tuning.cost import CostModel
from sparsesmith.tuning.grid import grid_of
from sparsesmith.tuning.models import CostModels

NEAR = 1.01
"""A choice whose predicted time is so much of the other's is as good."""

Made = Mapping[str, Mapping[str, Any]]


def main() -> None:
    options = _options()
    trees = {"old": options.old.resolve(), "new": ROOT}
    result: dict[str, Any] = {
        "kind": "choosing",
        "commit": source_commit(),
        "old": options.old_commit,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command("benchmarks.measure.choosing"),
        "machine": machine(),
        "times": [times(trees, nnz, options) for nnz in options.nnz],
    }
    print(json.dumps(result["times"]), flush=True)
    if options.matrices is not None:
        result["choices"] = compared(trees, options)
        print(json.dumps(result["choices"]), flush=True)
    write_result(options.out, result)


def times(trees: Mapping[str, Path], nnz: float, options: argparse.Namespace) -> dict[str, Any]:
    """Medians over the patterns of a size, of the median of each pattern's runs in all turns."""
    taken: dict[str, dict[str, dict[str, list[float]]]] = {version: {} for version in trees}
    asked = {"cost_model": str(options.cost_model), "nnz": nnz, "runs": options.runs}
    for turn in range(options.turns):
        for version in list(trees) if turn % 2 == 0 else list(trees)[::-1]:
            for label, rows in made_by(trees[version], asked).items():
                of_label = taken[version].setdefault(label, {})
                for name, ms in rows.items():
                    of_label.setdefault(name, []).extend(ms)
    return {
        "nnz": nnz,
        "cpu_ms": {
            label: {version: _in_the_median(taken[version][label]) for version in trees} for label in taken["new"]
        },
    }


def _in_the_median(rows: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    each = {name: round(median(ms), 1) for name, ms in rows.items()}
    return {"median": round(median(each.values()), 1), "worst": max(each.values()), "patterns": each}


def compared(trees: Mapping[str, Path], options: argparse.Namespace) -> dict[str, Any]:
    """How often both trees choose alike, by workload; every difference with its predicted worth."""
    names = [name for name in sorted(read_split()) if (options.matrices / f"{name}.npz").exists()]
    asked = {"cost_model": str(options.cost_model), "matrices": str(options.matrices.resolve()), "names": names}
    old, new = (made_by(tree, asked) for tree in trees.values())
    cost = CostModels(options.cost_model).on("NVIDIA H200")
    return {label: _compared(label, old, new, cost, options.matrices) for label in WORKLOADS}


def _compared(label: str, old: Made, new: Made, cost: CostModel, folder: Path) -> dict[str, Any]:
    differences = []
    for name in old:
        before, after = old[name][label], new[name][label]
        if (before["family"], before["parameters"]) != (after["family"], after["parameters"]):
            ratio = predicted_ratio(folder / f"{name}.npz", WORKLOADS[label], cost, (before, after))
            differences.append(
                {"name": name, "nnz": old[name]["nnz"], "old": before, "new": after, "predicted_ratio": ratio}
            )
    near = sum(each["predicted_ratio"] is not None and each["predicted_ratio"] <= NEAR for each in differences)
    equal = len(old) - len(differences)
    return {
        "matrices": len(old),
        "equal": equal,
        "equal_or_near": equal + near,
        "share": round((equal + near) / len(old), 4),
        "cpu_ms": {version: _total(label, rows) for version, rows in (("old", old), ("new", new))},
        "families": dict(Counter(row[label]["family"] for row in new.values()).most_common()),
        "differences": differences,
    }


def _total(label: str, rows: Made) -> dict[str, float]:
    ms = [row[label]["ms"] for row in rows.values()]
    return {"median": round(median(ms), 1), "most": round(max(ms), 1)}


def predicted_ratio(
    path: Path, workload: Mapping[str, Any], cost: CostModel, both: Sequence[Mapping[str, Any]]
) -> float | None:
    """The second choice's predicted time over the first's, among all prospects of a search; None where that has not
    both."""
    grid = grid_of(pattern_from_scipy(scipy.sparse.load_npz(path)), **workload)
    log_costs = cost.log_costs(grid)
    places = {
        (name, json.dumps(dict(entry.parameters), sort_keys=True)): number
        for number, (name, entry) in enumerate(zip(grid.families, grid.entries, strict=True))
    }
    first, second = (places.get((each["family"], json.dumps(each["parameters"], sort_keys=True))) for each in both)
    if first is None or second is None:
        return None
    return round(float(np.exp(log_costs[second] - log_costs[first])), 4)


def made_by(tree: Path, asked: Mapping[str, Any]) -> dict[str, Any]:
    """What `choices_made` finds with a tree's code."""
    inherited = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    others = [entry for entry in inherited if not Path(entry).resolve().is_relative_to(ROOT)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tree), str(tree / "proto"), *others])}
    driver = Path(__file__).with_name("choices_made.py")
    # Away from this tree: a script's own folder comes first on the path.
    code = "import sys, runpy; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    with tempfile.TemporaryDirectory() as folder:
        words, out = Path(folder) / "words.json", Path(folder) / "out.json"
        words.write_text(json.dumps(asked), encoding="utf-8")
        subprocess.run([sys.executable, "-c", code, driver, words, out], cwd=tree, env=environment, check=True)
        found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return found


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", type=Path, required=True, help="source tree to compare with")
    parser.add_argument("--old-commit", default="")
    parser.add_argument("--matrices", type=Path, help="folder of patterns as .npz")
    parser.add_argument("--nnz", type=float, nargs="+", default=[1e5, 1e6, 1e7])
    parser.add_argument("--runs", type=int, default=3, help="of each pattern in a turn")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--cost-model", type=Path, default=ROOT / "models" / "cost-h200")
    parser.add_argument("--out", type=Path, default=RESULTS / "cpu" / "choosing.json")
    return parser.parse_args()


if __name__ == "__main__":
    main()
