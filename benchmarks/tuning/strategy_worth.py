"""What each kernel family is worth: how much slower the best program would be, were the family not there.

    python -m benchmarks.tuning.strategy_worth RECORDS.jsonl.xz ... [--out benchmarks/results]

From records of sweeps, exhaustive or not: the best recorded program of each workload against the best of all other
families. A loss of 0.02 means that without the family the geometric mean of the best times would be 2 % higher; `wins`
counts the workloads where its program is the fastest. Families that nobody would miss have a loss near zero.
"""

import argparse
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure.measured import MatrixEntry, Record, matrix_entries, read_records
from benchmarks.origin import write_result
from sparsesmith.families import FAMILIES

NNZ_CLASSES = (("< 1e5", 0.0, 1e5), ("1e5-1e6", 1e5, 1e6), (">= 1e6", 1e6, math.inf))


MIN_WORKLOADS = 20
"""A family measured on fewer has not had its chance."""


@dataclass(frozen=True)
class BestTimes:
    """The best time of each family on one workload, in microseconds."""

    kind: str
    """`spmv float32`, `spmm 32 float32`."""
    matrix_class: str
    nnz: int
    of_family: dict[str, float]

    def loss_without(self, family: str) -> float:
        """Log of how much slower the best of the others is; 0 where the family is not the fastest or stands alone."""
        others = [us for name, us in self.of_family.items() if name != family]
        if not others or family not in self.of_family:
            return 0.0
        return max(0.0, math.log(min(others) / self.of_family[family]))

    @property
    def fastest(self) -> str:
        return min(self.of_family, key=self.of_family.__getitem__)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, help="results folder; without it only a table is printed")
    parser.add_argument("--device", default="h200", help="folder of the results")
    options = parser.parse_args()
    best = best_times(read_records(options.records))
    kinds = worth(best)
    result = {
        "kind": "strategy_worth",
        "records": [path.name for path in options.records],
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "workloads": len(best),
        "kinds": kinds,
    }
    print("\n".join(table(kinds)))
    if options.out is not None:
        path = options.out / options.device / "strategy-worth.json"
        write_result(path, result)


def best_times(
    records: Iterable[Record], split: str | None = None, entries: Mapping[str, MatrixEntry] | None = None
) -> list[BestTimes]:
    """One a workload whose matrix is among `entries`, the development split if none are given. `split`: only matrices
    of this side."""
    entries = matrix_entries() if entries is None else entries
    families: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for record in records:
        entry = entries.get(record["pattern"])
        if entry is not None and split in (None, entry.split):
            of_family = families[record["pattern"], kind_of(record)]
            us = float(record["median_us"])
            of_family[record["family"]] = min(us, of_family.get(record["family"], us))
    return [
        BestTimes(kind, entries[name].matrix_class, entries[name].nnz, of_family)
        for (name, kind), of_family in families.items()
    ]


def never_fastest(best: Sequence[BestTimes]) -> list[str]:
    """Families that nobody would miss, of those measured on MIN_WORKLOADS and more."""
    measured = Counter(name for each in best for name in each.of_family)
    winners = {each.fastest for each in best}
    return sorted(name for name, count in measured.items() if count >= MIN_WORKLOADS and name not in winners)


def seldom_measured(best: Sequence[BestTimes]) -> list[str]:
    """Families that have not had their chance yet."""
    measured = Counter(name for each in best for name in each.of_family)
    return sorted(name for name in FAMILIES if measured[name] < MIN_WORKLOADS)


def kind_of(record: Record) -> str:
    columns = f" {record['num_dense_cols']}" if record["operation"] == "spmm" else ""
    return f"{record['operation']}{columns} {record['element_type']}"


def worth(best: Sequence[BestTimes]) -> dict[str, list[dict[str, Any]]]:
    """By workload kind, the families that lose most first."""
    by_kind: dict[str, list[BestTimes]] = defaultdict(list)
    for each in best:
        by_kind[each.kind].append(each)
    return {kind: _worth_of_all(of_kind) for kind, of_kind in sorted(by_kind.items())}


def _worth_of_all(best: Sequence[BestTimes]) -> list[dict[str, Any]]:
    families = sorted({name for each in best for name in each.of_family})
    return sorted((_worth_of(family, best) for family in families), key=lambda entry: -entry["loss"])


def _worth_of(family: str, best: Sequence[BestTimes]) -> dict[str, Any]:
    of_class: dict[str, list[BestTimes]] = defaultdict(list)
    of_size: dict[str, list[BestTimes]] = defaultdict(list)
    for each in best:
        of_class[each.matrix_class].append(each)
        of_size[next(name for name, low, high in NNZ_CLASSES if low <= each.nnz < high)].append(each)
    return {
        "family": family,
        "measured": sum(family in each.of_family for each in best),
        "wins": sum(each.fastest == family for each in best),
        "loss": _loss(family, best),
        "largest_loss": round(math.expm1(max(each.loss_without(family) for each in best)), 5),
        "loss_of_size": {name: _loss(family, of_size[name]) for name, _, _ in NNZ_CLASSES if name in of_size},
        "loss_of_class": {name: _loss(family, of_class[name]) for name in sorted(of_class)},
    }


def _loss(family: str, best: Sequence[BestTimes]) -> float:
    return round(math.expm1(float(np.mean([each.loss_without(family) for each in best]))), 5)


def table(kinds: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Markdown."""
    lines = ["| workload | family | wins | loss without it | largest |", "|---|---|---|---|---|"]
    for kind, families in kinds.items():
        lines += [
            f"| {kind} | {entry['family']} | {entry['wins']} of {entry['measured']} | {100 * entry['loss']:.2f} % | "
            f"{100 * entry['largest_loss']:.1f} % |"
            for entry in families
        ]
    return lines


if __name__ == "__main__":
    main()
