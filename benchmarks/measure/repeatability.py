"""Whether two full runs of a suite agree: the answers' times and speed-ups of two folders of result files.

    python -m benchmarks.measure.repeatability FIRST SECOND --out benchmarks/results/h200/repeatability.json

Compared is what a user gets: the fastest kernel's time, warm, and its speed-up over the best baseline (1 where the
library stays). The two searches may end at different programs.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.origin import command
from benchmarks.report.results import Row, Suite, geometric_mean, median, read_suites

MEAN_TOLERANCE = 0.02
"""Geometric means may differ by this share."""
MATRIX_TOLERANCE = 0.05
"""Times on a matrix may differ by this share ..."""
NEEDED_SHARE = 0.95
"""... on all but one in twenty."""


@dataclass(frozen=True)
class Repeatability:
    """Of one workload kind. Ratios are of the second run to the first."""

    suite: str
    matrices: int
    time_ratio: float
    """Geometric mean."""
    speedup_ratio: float
    baseline_ratio: float
    median_difference: float
    """Of the times on a matrix: the larger over the smaller, less 1."""
    share_within_tolerance: float
    worst_matrix: str
    worst_difference: float
    baseline_share_within_tolerance: float
    agrees: bool


def compared(first: Suite, second: Suite) -> Repeatability:
    """Two runs of one workload kind on the matrices that both measured. Raises ValueError where there are none."""
    again = {row.name: row for row in second.rows}
    pairs = [(row, again[row.name]) for row in first.rows if row.name in again]
    if not pairs:
        raise ValueError(f"{first.title}: no matrix was measured in both runs")
    differences = {row.name: _difference(answer_us(row), answer_us(other)) for row, other in pairs}
    baselines = [_difference(row.best.time.warm_us, other.best.time.warm_us) for row, other in pairs]
    time_ratio = geometric_mean(answer_us(other) / answer_us(row) for row, other in pairs)
    speedup_ratio = geometric_mean(other.speedup() / row.speedup() for row, other in pairs)
    share = _share_within(list(differences.values()))
    worst = max(differences, key=differences.__getitem__)
    return Repeatability(
        suite=first.title,
        matrices=len(pairs),
        time_ratio=time_ratio,
        speedup_ratio=speedup_ratio,
        baseline_ratio=geometric_mean(other.best.time.warm_us / row.best.time.warm_us for row, other in pairs),
        median_difference=median(differences.values()),
        share_within_tolerance=share,
        worst_matrix=worst,
        worst_difference=differences[worst],
        baseline_share_within_tolerance=_share_within(baselines),
        agrees=max(abs(time_ratio - 1), abs(speedup_ratio - 1)) <= MEAN_TOLERANCE and share > NEEDED_SHARE,
    )


def answer_us(row: Row) -> float:
    """Time of what the user gets: our fastest kernel, or the library's routine where that is faster."""
    return min(row.kernel.time.warm_us, row.best.time.warm_us) if row.kernel else row.best.time.warm_us


def repeatability(first: Sequence[Suite], second: Sequence[Suite]) -> dict[str, Any]:
    """The result file. Raises ValueError where the runs are of different devices or share no suite."""
    again = {suite.title: suite for suite in second}
    pairs = [(suite, again[suite.title]) for suite in first if suite.title in again]
    if not pairs:
        raise ValueError("the two runs share no suite")
    for suite, other in pairs:
        if suite.device["name"] != other.device["name"]:
            raise ValueError(f"{suite.title}: {suite.device['name']} and {other.device['name']} are different devices")
    results = [compared(suite, other) for suite, other in pairs]
    return {
        "kind": "repeatability",
        "device": pairs[0][1].device,
        "commit": pairs[0][1].commit,
        "first_commit": pairs[0][0].commit,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "first_date": min(suite.date for suite, _ in pairs),
        "second_date": min(other.date for _, other in pairs),
        "mean_tolerance": MEAN_TOLERANCE,
        "matrix_tolerance": MATRIX_TOLERANCE,
        "needed_share": NEEDED_SHARE,
        "agrees": all(result.agrees for result in results),
        "suites": [asdict(result) for result in results],
    }


def main() -> int:
    options = _options()
    result = repeatability(_suites(options.first), _suites(options.second))
    result["command"] = command("benchmarks.measure.repeatability")
    text = json.dumps(result, indent=1) + "\n"
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(text, encoding="utf-8")
    for suite in result["suites"]:
        print(
            f"{suite['suite']:26s} {suite['matrices']:4d} matrices  time x{suite['time_ratio']:.4f}  "
            f"speed-up x{suite['speedup_ratio']:.4f}  within {MATRIX_TOLERANCE:.0%}: "
            f"{suite['share_within_tolerance']:.1%}  worst {suite['worst_matrix']} {suite['worst_difference']:.1%}  "
            f"{'agrees' if suite['agrees'] else 'DIFFERS'}"
        )
    return 0 if result["agrees"] else 1


def _difference(one: float, other: float) -> float:
    return max(one, other) / min(one, other) - 1


def _share_within(differences: Sequence[float]) -> float:
    return sum(difference <= MATRIX_TOLERANCE for difference in differences) / len(differences)


def _suites(path: Path) -> list[Suite]:
    """Of a result file, or of all in a folder."""
    files = sorted(path.rglob("suite-*.json")) if path.is_dir() else [path]
    return read_suites(json.loads(file.read_text(encoding="utf-8")) for file in files)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", type=Path, help="result file or folder of the first run")
    parser.add_argument("second", type=Path, help="of the second run")
    parser.add_argument("--out", type=Path, help="write the comparison here as JSON")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
