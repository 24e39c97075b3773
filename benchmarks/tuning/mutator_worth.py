"""What choosing mutators by how often they won is worth: counts of a harvest, and what they bring on matrices not counted.

    python -m benchmarks.tuning.mutator_worth benchmarks/records/h200-harvest*.jsonl.xz [--out benchmarks/results]

The counts are those of `sparsesmith/mutation/worth.py`: single changes of the tuner's best programs, and those whose parent takes
1.02 times their time. Then each matrix in turn is left out of them, and its own single changes are weighted by what the others say:
the share of a weighted choice that wins, beside the same changes chosen alike, and beside all that the harvest tried (one, two
and three changes at a time). Changes that were not made by chance are not counted. No device is asked; intervals are 95 % over matrices, by bootstrap.
"""

import argparse
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.origin import RESULTS, command, folder_of, source_commit, write_result
from benchmarks.report.intervals import Interval, resampled
from benchmarks.tuning.harvested import read_lines
from sparsesmith.mutation.catalogue import SEPARATOR
from sparsesmith.mutation.worth import GAIN, Counts, worth_by_mutator

Json = dict[str, Any]


@dataclass(frozen=True)
class Change:
    """One mutant of a harvest."""

    pattern: str
    operation: str
    mutators: tuple[str, ...]
    has_won: bool


def main() -> None:
    options = _options()
    heads, changes = read(options.harvest)
    result = {
        "kind": "mutator_worth",
        "device": heads[-1]["device"],
        "harvest_commit": ", ".join(head["commit"] for head in heads),
        "commit": source_commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command("benchmarks.tuning.mutator_worth"),
        "matrices": len({each.pattern for each in changes}),
        "counts": {name: dict(counts) for name, counts in counted(changes).items()},
        "shares": shares(changes),
    }
    path = options.out / folder_of(heads[-1]["device"]["name"]) / "mutator-worth.json"
    write_result(path, result)
    print(json.dumps(result["shares"], indent=1))


def read(harvests: Sequence[Path]) -> tuple[list[Json], list[Change]]:
    """The heads of packed harvests, and the mutants that were made by chance."""
    lines = list(read_lines(harvests))
    heads = [line for line in lines if line["kind"] == "harvest"]
    return heads, [_change(line) for line in lines if line["kind"] == "mutant" and "chosen" not in line]


def _change(line: Mapping[str, Any]) -> Change:
    names = tuple(deed.partition(":")[0] for deed in line["deed"].split(SEPARATOR))
    return Change(line["pattern"], line["operation"], names, line.get("gain", 0.0) >= GAIN)


def counted(changes: Sequence[Change]) -> dict[str, Counts]:
    """Of single changes, by operation and mutator."""
    tried, won = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for each in _single(changes):
        tried[each.operation, each.mutators[0]] += 1
        won[each.operation, each.mutators[0]] += each.has_won
    by_operation = defaultdict[str, dict[str, tuple[int, int]]](dict)
    for operation, name in sorted(tried):
        by_operation[operation][name] = tried[operation, name], won[operation, name]
    return dict(by_operation)


def shares(changes: Sequence[Change]) -> Json:
    """Of changes that won: as harvested, single ones alike, and single ones chosen by what other matrices say."""
    matrices = sorted({each.pattern for each in changes})
    own = {name: [each for each in changes if each.pattern == name] for name in matrices}
    weighted = {name: _weighted(own[name], [each for each in changes if each.pattern != name]) for name in matrices}
    return {
        "as_harvested": _share([[(1.0, each.has_won) for each in own[name]] for name in matrices]),
        "single_alike": _share([[(1.0, each.has_won) for each in _single(own[name])] for name in matrices]),
        "single_by_worth": _share([weighted[name] for name in matrices]),
    }


def _single(changes: Sequence[Change]) -> Iterator[Change]:
    return (each for each in changes if len(each.mutators) == 1)


def _weighted(own: Sequence[Change], others: Sequence[Change]) -> list[tuple[float, bool]]:
    worth = {operation: worth_by_mutator(counts) for operation, counts in counted(others).items()}
    return [
        (worth[each.operation].get(each.mutators[0], worth[each.operation][""]), each.has_won) for each in _single(own)
    ]


def _share(of_matrices: Sequence[Sequence[tuple[float, bool]]]) -> Json:
    """Over all matrices' weights together; the interval resamples matrices."""
    sums = np.array(
        [[sum(weight * won for weight, won in each), sum(weight for weight, _ in each)] for each in of_matrices]
    )
    won, all_weights = sums.T
    low, high = resampled(len(sums), lambda drawn: won[drawn].sum(axis=1) / all_weights[drawn].sum(axis=1))
    return Interval(float(won.sum() / all_weights.sum()), low, high).rounded()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("harvest", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, default=RESULTS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
