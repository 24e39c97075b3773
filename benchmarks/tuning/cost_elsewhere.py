"""What a cost model is worth on a device that nothing of it was trained on: two runs of one suite held side by side.

    python -m benchmarks.measure.run ... --cost-model NOWHERE --out ESTIMATES         # ranked by the analytic estimates
    python -m benchmarks.measure.run ... --cost-model MODEL --out LEARNED             # its cost.json names the device, also_for
    python -m benchmarks.tuning.cost_elsewhere ESTIMATES/DEVICE LEARNED/DEVICE [--out benchmarks/results]

Folders hold result files of equal names, each of one device. Compared are the fastest programs that families gave, over the
library's best routine of the same run, on matrices that both runs reached: what differs between two machines of a kind differs for
the routine as well. Intervals are 95 % over matrices, by bootstrap. `lost`: below 0.98x of the routine.
"""

import argparse
import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.origin import RESULTS, command, folder_of, write_result
from benchmarks.report.intervals import geometric_interval
from benchmarks.report.results import LOSS, geometric_mean

Json = dict[str, Any]


def main() -> None:
    options = _options()
    kinds = dict(compared_files(options.estimates, options.learned))
    if not kinds:
        raise SystemExit(f"{options.estimates} and {options.learned} have no result file of equal name")
    first = next(iter(kinds.values()))
    result = {
        "kind": "cost_elsewhere",
        "device": first["device"],
        "commit": first["commit"],
        "cost_model": first["cost_model"],
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command("benchmarks.tuning.cost_elsewhere"),
        "kinds": {name: kind["figures"] for name, kind in kinds.items()},
        "rows": {name: kind["rows"] for name, kind in kinds.items()},
    }
    path = options.out / folder_of(first["device"]["name"]) / "cost-elsewhere.json"
    write_result(path, result)
    print(json.dumps(result["kinds"], indent=1))


def compared_files(estimates: Path, learned: Path) -> Iterator[tuple[str, Json]]:
    """By the name of the file: what both runs have of it."""
    for path in sorted(learned.glob("*.json")):
        if (estimates / path.name).is_file():
            theirs, ours = (json.loads(each.read_text(encoding="utf-8")) for each in (estimates / path.name, path))
            if theirs["device"]["name"] != ours["device"]["name"]:
                raise SystemExit(f"{path.name}: of {theirs['device']['name']} and of {ours['device']['name']}")
            rows = compared(theirs, ours)
            said = {"estimates_commit": theirs["commit"], "learned_commit": ours["commit"]}
            yield (
                path.stem,
                {
                    "device": ours["device"],
                    "commit": ours["commit"],
                    "cost_model": ours["cost_model"],
                    "figures": said | figures(rows),
                    "rows": rows,
                },
            )


def compared(estimates: Mapping[str, Any], learned: Mapping[str, Any]) -> list[Json]:
    """A row a matrix that both runs reached: times as fast as the best routine, ranked either way."""
    theirs = {row["name"]: row for row in estimates["rows"]}
    return [
        {
            "name": row["name"],
            "nnz": row["nnz"],
            "estimates": round(_speed(theirs[row["name"]]), 4),
            "learned": round(_speed(row), 4),
        }
        for row in learned["rows"]
        if _is_found(row) and _is_found(theirs.get(row["name"], {}))
    ]


def figures(rows: list[Json]) -> Json:
    """Of all rows of a kind of workload."""
    return {
        "matrices": len(rows),
        "over_routine": {
            ranked: round(geometric_mean(row[ranked] for row in rows), 4) for ranked in ("estimates", "learned")
        },
        "lost": {ranked: sum(row[ranked] < LOSS for row in rows) for ranked in ("estimates", "learned")},
        "gain": geometric_interval([row["learned"] / row["estimates"] for row in rows]).rounded(),
    }


def _is_found(row: Mapping[str, Any]) -> bool:
    return bool(row.get("families", {}).get("best"))


def _speed(row: Mapping[str, Any]) -> float:
    return float(row["best_baseline"]["us"] / row["families"]["best"]["us"])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("estimates", type=Path, help="folder of result files, ranked by the estimates")
    parser.add_argument("learned", type=Path, help="... ranked by the cost model")
    parser.add_argument("--out", type=Path, default=RESULTS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
