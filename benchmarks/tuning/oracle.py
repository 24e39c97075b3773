"""Plays the tuner against measured prospects: how far from the best of them it is, at which share of their cost.

    python -m benchmarks.tuning.sweep PACK ALL.jsonl.xz --exhaustive --names benchmarks/oracle_matrices.txt --plan spmv:float32:1:0
    python -m benchmarks.tuning.oracle ALL.jsonl.xz --pack PACK [--model models/cost-h200] [--out benchmarks/results]
    python -m benchmarks.tuning.oracle benchmarks/records/h200-grids.jsonl.xz --whole-grids --split all --pack PACK --model models/cost-h200
    python -m benchmarks.tuning.oracle benchmarks/records/h100-grids.jsonl.xz ... --device "NVIDIA H100 80GB HBM3"

Nothing is measured here: the tuner is told the recorded times, as the search would be, batch by batch, and chooses among
recorded programs only. The best of the records is the optimum of the grid where all of it was measured
(`--whole-grids`, a result file of its own), else the best of a sample. Cost is counted in programs, and in seconds of
grading where the records have them.

`--batches 4 8 12 24`: whether it matters how many programs a search asks for before it hears of them, as a table and
`tuner-batches.json`: regret after equal seconds of grading.
"""

import argparse
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from benchmarks.measure.measured import Measured, read_measured
from benchmarks.origin import command, folder_of, source_commit, write_result
from sparsesmith.formats.format import ParameterValue
from sparsesmith.tuning.boosted import BoostedCost, load_boosted_cost
from sparsesmith.tuning.columns import all_words
from sparsesmith.tuning.cost import AnalyticCost, CostModel, Doubt
from sparsesmith.tuning.grid import Choices, FloatArray
from sparsesmith.tuning.tuner import Tuner, TuningLimits

H200 = "NVIDIA H200"
SHARES = (0.01, 0.02, 0.05, 0.10, 0.25)
COUNTS = (1, 2, 4, 8, 16, 32, 64, 96)
BATCH_PROGRAMS = 8
SECONDS = (0.1, 0.25, 0.5, 1.0)
"""Of grading, at which searches by batches of different sizes are compared."""


@dataclass(frozen=True, eq=False)
class KnownCost:
    """A cost model's word on some prospects, said among all of them."""

    name: ClassVar = "known costs"
    known: FloatArray
    doubt: Doubt
    left_out: frozenset[str]
    seldom_seen: frozenset[str]
    never_seen: ClassVar = frozenset[str]()

    def log_costs(self, grid: Choices) -> FloatArray:
        return self.known


@dataclass(frozen=True, eq=False)
class Play:
    """One workload tuned from its records."""

    measured: Measured
    order: tuple[int, ...]
    """Prospects in the order the tuner asked for them."""
    num_until_stop: int
    """After this many it would have stopped by itself."""

    @property
    def num_prospects(self) -> int:
        return len(self.measured.times_us)

    def regret_after(self, count: int) -> float:
        """Time of the best of the first `count` over the oracle's, less one."""
        times = self.measured.times_us
        return float(times[list(self.order[: max(1, count)])].min() / times.min() - 1)

    def place_after(self, count: int) -> int:
        """Of the best of the first `count` among all prospects; the fastest has place 1."""
        times = self.measured.times_us
        return 1 + int((times < times[list(self.order[: max(1, count)])].min()).sum())

    def regret_within(self, seconds: float) -> float:
        """As regret_after, of what was graded within so many seconds; the first program counts in any case."""
        spent = np.cumsum(self.measured.grading_s[list(self.order)])
        return self.regret_after(int((spent <= seconds).sum()))

    def seconds(self, count: int) -> float:
        """Of grading the first `count`; NaN where the records do not say."""
        return float(self.measured.grading_s[list(self.order[:count])].sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", type=Path, nargs="+")
    parser.add_argument("--pack", type=Path, nargs="+", required=True)
    parser.add_argument("--model", type=Path, help="folder of a cost model; without it: the analytic estimate")
    parser.add_argument("--split", choices=("train", "validation", "all"), default="validation")
    parser.add_argument("--least", type=int, default=20, help="workloads with fewer measured prospects are left out")
    parser.add_argument("--whole-grids", action="store_true", help="the records hold all that the families offer")
    parser.add_argument("--no-feedback", action="store_true", help="the cost model's order alone, for comparison")
    parser.add_argument("--batches", type=int, nargs="+", help="programs that are asked for at a time, compared")
    parser.add_argument("--device", help="name of the GPU that the records are of; default: the cost model's")
    parser.add_argument("--out", type=Path, help="results folder; without it only the table is printed")
    options = parser.parse_args()
    cost = load_boosted_cost(options.model) if options.model else None
    words = cost.description.words if cost else all_words()
    split = None if options.split == "all" else options.split
    measured = read_measured(options.records, options.pack, words, split, options.least)
    device = options.device or (H200 if cost is None else cost.device)
    head = {
        "device": device,
        "commit": source_commit(),
        "command": command("benchmarks.tuning.oracle"),
        "cost_model": "analytic" if cost is None else options.model.name,
        "records": [path.name for path in options.records],
        "split": options.split,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    if options.batches:
        by_size = {
            size: [play(each, known_cost(each, cost), batch=size) for each in measured] for size in options.batches
        }
        result = {
            "kind": "tuner_batches",
            **head,
            "workloads": len(measured),
            "batches": {str(size): batch_summary(plays) for size, plays in by_size.items()},
        }
        print("\n".join(batch_table(result["batches"])))
        if options.out is not None:
            write_result(options.out / folder_of(device) / "tuner-batches.json", result)
        return
    plays = [play(each, known_cost(each, cost), feedback=not options.no_feedback) for each in measured]
    result = {
        "kind": "tuner_grids" if options.whole_grids else "tuner",
        **head,
        "kinds": summary(plays),
        "rows": [row(each) for each in plays],
    }
    print("\n".join(table(result["kinds"])))
    if options.out is not None:
        write_result(
            options.out / folder_of(device) / ("tuner-grids.json" if options.whole_grids else "tuner.json"), result
        )


def known_cost(measured: Measured, cost: BoostedCost | None) -> KnownCost:
    """Of the analytic estimate without a model."""
    if cost is None:
        return KnownCost(
            np.log(measured.grid.estimates()), AnalyticCost.doubt, AnalyticCost.left_out, AnalyticCost.seldom_seen
        )
    return KnownCost(cost.log_costs_of(measured.columns), cost.doubt, cost.left_out, cost.seldom_seen)


def play(measured: Measured, cost: CostModel, feedback: bool = True, batch: int = BATCH_PROGRAMS) -> Play:
    """What the tuner asks for when nothing stops it early, and after how many it would have stopped."""
    num_prospects = len(measured.times_us)
    if not feedback:
        order = np.argsort(cost.log_costs(measured.grid), kind="stable")
        return Play(measured, tuple(map(int, order)), num_prospects)
    most = min(num_prospects, max(COUNTS[-1], math.ceil(SHARES[-1] * num_prospects)))
    tireless = Tuner(measured.grid, cost, TuningLimits(most, patience=most, hope=0.0))
    return Play(measured, played(tireless, measured, batch), len(played(Tuner(measured.grid, cost), measured, batch)))


def played(tuner: Tuner, measured: Measured, batch_size: int = BATCH_PROGRAMS) -> tuple[int, ...]:
    """Prospects in the order asked for, each told its recorded time."""
    places = {_key(each.family.name, each.parameters): index for index, each in enumerate(measured.grid.prospects)}
    order: list[int] = []
    while batch := tuner.next_batch(batch_size):
        for instance in batch:
            order.append(places[_key(instance.family, instance.parameters)])
            tuner.tell(instance, float(measured.times_us[order[-1]]))
    return tuple(order)


def _key(family: str, parameters: Mapping[str, ParameterValue]) -> tuple[str, frozenset[tuple[str, ParameterValue]]]:
    return family, frozenset(parameters.items())


def summary(plays: Sequence[Play]) -> dict[str, Any]:
    """By workload kind: geometric mean and worst regret at shares of the cost, after counts, and at the tuner's stop."""
    by_kind: dict[str, list[Play]] = defaultdict(list)
    for each in plays:
        by_kind[each.measured.workload].append(each)
        by_kind["all"].append(each)
    return {kind: _summary(of_kind) for kind, of_kind in sorted(by_kind.items())}


def _summary(plays: Sequence[Play]) -> dict[str, Any]:
    return {
        "workloads": len(plays),
        "prospects_median": float(np.median([each.num_prospects for each in plays])),
        "regret_at_share": {
            str(share): _regrets([each.regret_after(math.ceil(share * each.num_prospects)) for each in plays])
            for share in SHARES
        },
        "regret_after": {str(count): _regrets([each.regret_after(count) for each in plays]) for count in COUNTS},
        "regret_at_stop": _regrets([each.regret_after(each.num_until_stop) for each in plays]),
        "asked_until_stop_median": float(np.median([each.num_until_stop for each in plays])),
        "seconds_until_stop_median": _median([each.seconds(each.num_until_stop) for each in plays]),
        "seconds_exhaustive_median": _median([float(each.measured.grading_s.sum()) for each in plays]),
    }


def batch_summary(plays: Sequence[Play]) -> dict[str, Any]:
    """Regret at equal cost, and what the tuner asks for until it stops."""
    return {
        "regret_within_s": {f"{s:g}": _regrets([each.regret_within(s) for each in plays]) for s in SECONDS},
        "regret_after": {str(count): _regrets([each.regret_after(count) for each in plays]) for count in COUNTS},
        "regret_at_stop": _regrets([each.regret_after(each.num_until_stop) for each in plays]),
        "asked_until_stop_median": float(np.median([each.num_until_stop for each in plays])),
        "seconds_until_stop_median": _median([each.seconds(each.num_until_stop) for each in plays]),
    }


def batch_table(batches: Mapping[str, Any]) -> list[str]:
    """Markdown: mean regret in per cent."""
    heads = [f"{seconds:g} s" for seconds in SECONDS] + [f"{count} programs" for count in COUNTS]
    lines = [f"| batch | {' | '.join(heads)} | at stop | asked | s |", "|---" * (len(heads) + 4) + "|"]
    for size, entry in batches.items():
        cells = [*entry["regret_within_s"].values(), *entry["regret_after"].values(), entry["regret_at_stop"]]
        shown = " | ".join(f"{100 * cell['mean']:.2f}" for cell in cells)
        lines.append(
            f"| {size} | {shown} | {entry['asked_until_stop_median']:.0f} | {entry['seconds_until_stop_median']} |"
        )
    return lines


def _regrets(values: Sequence[float]) -> dict[str, float]:
    mean = float(np.expm1(np.mean(np.log1p(values))))
    return {"mean": round(mean, 5), "p90": round(float(np.quantile(values, 0.9)), 5), "worst": round(max(values), 5)}


def _median(seconds: Sequence[float]) -> float | None:
    value = float(np.median(seconds))
    return round(value, 4) if math.isfinite(value) else None


def row(each: Play) -> dict[str, Any]:
    """One workload."""
    matrix, times = each.measured.matrix, each.measured.times_us
    return {
        "name": matrix.name,
        "class": matrix.matrix_class,
        "split": matrix.split,
        "nnz": matrix.nnz,
        "workload": each.measured.workload,
        "prospects": each.num_prospects,
        "offered": each.measured.num_offered,
        "oracle_us": float(times.min()),
        "oracle_family": each.measured.grid.families[int(times.argmin())],
        "asked_until_stop": each.num_until_stop,
        "regret_at_stop": round(each.regret_after(each.num_until_stop), 5),
        "place_at_stop": each.place_after(each.num_until_stop),
        "within_5_percent": int((times <= 1.05 * times.min()).sum()),
        "regret_at_share": {
            str(share): round(each.regret_after(math.ceil(share * each.num_prospects)), 5) for share in SHARES
        },
    }


def table(kinds: dict[str, Any]) -> list[str]:
    """Markdown: mean (90th percentile) of the regret in per cent."""
    heads = [f"{share:.0%}" for share in SHARES] + [f"{count}" for count in COUNTS]
    lines = [
        "| workload | n | prospects | " + " | ".join(heads) + " | at stop | asked |",
        "|---|---|---|" + "---|" * (len(heads) + 2),
    ]
    for kind, entry in kinds.items():
        cells = [*entry["regret_at_share"].values(), *entry["regret_after"].values(), entry["regret_at_stop"]]
        shown = " | ".join(f"{100 * cell['mean']:.2f} ({100 * cell['p90']:.1f})" for cell in cells)
        lines.append(
            f"| {kind} | {entry['workloads']} | {entry['prospects_median']:.0f} | {shown} | "
            f"{entry['asked_until_stop_median']:.0f} |"
        )
    return lines


if __name__ == "__main__":
    main()
