"""The soak's result file: runs one after the other, and their sum.

    python -m benchmarks.service.soak_runs FILE MORE [MORE ...]

adds the runs of other files to the first one.
"""

import argparse
import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.service.killing import SLOW
from sparsesmith.errors import InvalidInput

Run = Mapping[str, Any]

MOST_SLOW_KILLS = 30
"""Of generator and engine over all runs of a file: each takes a minute to return, in which little else happens."""
LARGE_UPLOADS = "large uploads"
COUNTED = ("jobs", "ended_once", "same_after_the_end", "unreachable")


def read_runs(file: Path) -> list[Run]:
    """None where there is no file; earlier releases wrote one run alone. Raises InvalidInput for another file."""
    if not file.exists():
        return []
    result = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(result, dict) or result.get("kind") != "soak":
        raise InvalidInput(f"{file} is no result of the soak")
    if "runs" in result:
        return list(result["runs"])
    return [{name: value for name, value in result.items() if name != "kind"}]


def slow_kills(runs: Iterable[Run]) -> int:
    """Of generator and engine."""
    return sum(run["kills"].get(kind, 0) for run in runs for kind in SLOW)


def totals(runs: Sequence[Run]) -> dict[str, Any]:
    """Sums over runs. What earlier ones did not look for counts as nothing, and `runs_with` says how many did."""
    kills: Counter[str] = Counter()
    ended: Counter[str] = Counter()
    for run in runs:
        kills.update({_kind(name): 0 for name in run["kills"]})
        for name, count in run["kills"].items():
            kills[_kind(name)] += count
        ended.update(run["ended"])
    calm = [run["calm"] for run in runs if "calm" in run]
    told = [run["without_retry_after"] for run in runs if "without_retry_after" in run]
    return {
        "runs": len(runs),
        "kills": kills.total(),
        "kills_by_kind": dict(sorted(kills.items())),
        **{name: sum(run[name] for run in runs) for name in COUNTED},
        "ended": dict(sorted(ended.items())),
        "large_uploads": sum(run["odd_clients"].get(LARGE_UPLOADS, 0) for run in runs),
        "asked_to_come_again": sum(run["statuses"].get("503", 0) for run in runs),
        "without_retry_after": sum(told) if told else None,
        "calm_equal": sum(each["asked_again_equal"] for each in calm) if calm else None,
        "calm_unequal": sum(each["unequal"] for each in calm) if calm else None,
        "wrong": sum(run.get("num_wrong", 0) for run in runs),
        "runs_with": {"retry_after": len(told), "calm": len(calm)},
    }


def written(file: Path, before: Sequence[Run], run: Run) -> None:
    """A run after others, in one step: whoever reads the file finds it whole."""
    write_runs(file, [*before, run])


def write_runs(file: Path, runs: Sequence[Run]) -> None:
    """With their sum."""
    file.parent.mkdir(parents=True, exist_ok=True)
    result = {"kind": "soak", "totals": totals(runs), "runs": runs}
    fresh = file.with_suffix(f".{os.getpid()}.new")
    fresh.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    fresh.replace(file)


def _kind(name: str) -> str:
    return "evaluator" if name.startswith("evaluator-") else name


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("more", type=Path, nargs="+")
    options = parser.parse_args()
    write_runs(options.file, [run for each in (options.file, *options.more) for run in read_runs(each)])


if __name__ == "__main__":
    main()
