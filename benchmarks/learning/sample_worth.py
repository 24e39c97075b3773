"""What a value model before grading, and checks while decoding, bring: `search=sample` alone, at equal seconds.

    python -m benchmarks.learning.sample_worth PACK [--policy FOLDER] [--value FOLDER] [--oversampling 4] [--matrices 12] [--seconds 3]
        [--all-seconds S]

The real stack of this machine, started anew for each arm: samples as they come; with checks while decoding; with the
value model, where a folder is given. The smallest core matrices of the validation side, float32 SpMV, each searched past
the cache for the same seconds, sampling and grading both counted. What counts is the time of the best sample that passed
(the library's best routine where none did), and how many were graded and passed. Without a GPU times are estimates, and
the result is no statement about speed. The result file is written after every arm.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.matrices.suites import Source, core_sources
from benchmarks.origin import RESULTS, command, device_folder, machine, source_commit, write_result
from benchmarks.report.results import geometric_mean
from benchmarks.tuning.auto_worth import found
from sparsesmith.cli.local_stack import wait_until_ready
from sparsesmith.client.clients import Client, matrix_file
from sparsesmith.runtime.ports import free_port
from sparsesmith.runtime.stack import Stack, StackOptions
from sparsesmith_proto.api import Budget, TuningOptions
from sparsesmith_proto.kernel import DeviceDescription

PREFIX = "SPARSESMITH_GENERATOR_"
AS_IT_COMES = "as it comes"

Row = dict[str, Any]
Arms = Mapping[str, Mapping[str, str]]
"""Name -> settings of the generator."""


def arms(options: argparse.Namespace) -> dict[str, dict[str, str]]:
    """What is compared."""
    common = {} if options.policy is None else {"POLICY_DIR": str(options.policy)}
    chosen = {AS_IT_COMES: common, "checks while decoding": {**common, "CHECKS_WHILE_DECODING": "true"}}
    if options.value is not None:
        filtering = {"VALUE_DIR": str(options.value), "VALUE_OVERSAMPLING": str(options.oversampling)}
        chosen["value model"] = {**common, **filtering}
    return chosen


def main() -> None:
    options = _options()
    sources = [each for each in core_sources(options.pack) if each.split == "validation"][: options.matrices]
    end, rows = time.monotonic() + options.all_seconds, dict[str, list[Row]]()
    for name, settings in arms(options).items():
        if rows and time.monotonic() > end:
            return
        with _stack(settings) as client:
            rows[name] = [_searched(client, source, options) for source in sources]
        _write(told(rows) | {"commit": options.commit or source_commit()}, options)


def _write(result: Row, options: argparse.Namespace) -> None:
    device = DeviceDescription.model_validate(result["device"])
    path = options.out / (device_folder(device) if device.kind == "cuda" else "cpu") / "sample-worth.json"
    write_result(path, result)
    print(json.dumps(result["arms"], indent=1))


@contextmanager
def _stack(settings: Mapping[str, str]) -> Iterator[Client]:
    environment = {PREFIX + name: value for name, value in settings.items()}
    with (
        tempfile.TemporaryDirectory(prefix="ss-sample-") as folder,
        Stack(StackOptions(Path(folder), port=free_port(), environment=environment), on_event=print) as stack,
        Client(stack.url, {"Cache-Control": "no-cache"}) as client,
    ):
        wait_until_ready(client, stack, is_whole=True)
        yield client


def _searched(client: Client, source: Source, options: argparse.Namespace) -> Row:
    matrix = source.load()
    data = matrix_file(matrix.pattern.to_scipy(np.ones(matrix.pattern.nnz, np.float32)), None)
    budget = Budget(candidates=options.candidates, seconds=options.seconds)
    report = client.tune_file(f"{matrix.name}.npz", data, TuningOptions(search="sample", budget=budget))
    row = {"name": matrix.name, "device": report.device.model_dump(), **found(report)}
    print(row["name"], row["best_us"], row["sources"], flush=True)
    return row


def told(rows: Mapping[str, Sequence[Row]]) -> Row:
    """Each arm's figures: over the first arm's best times, geometric means; above 1 it is slower."""
    plain = rows[AS_IT_COMES]
    device = plain[0]["device"]
    return {
        "kind": "sample_worth",
        "times": "measured" if device["kind"] == "cuda" else "estimated",
        "device": device,
        "machine": machine(),
        "commit": source_commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command("benchmarks.learning.sample_worth"),
        "arms": {
            name: {
                "best_over_first_arm": geometric_mean(
                    [each["best_us"] / other["best_us"] for each, other in zip(found_rows, plain, strict=True)]
                ),
                "graded": sum(_policy(each, "proposed") for each in found_rows),
                "passed": sum(_policy(each, "passed") for each in found_rows),
                "seconds": sum(each["seconds"] for each in found_rows),
            }
            for name, found_rows in rows.items()
        },
        "matrices": {name: [_without_device(each) for each in of_arm] for name, of_arm in rows.items()},
    }


def _policy(row: Row, figure: str) -> int:
    return int(row["sources"].get("policy", {}).get(figure, 0))


def _without_device(row: Row) -> Row:
    return {name: value for name, value in row.items() if name != "device"}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pack", type=Path)
    parser.add_argument("--policy", type=Path, help="default: the shipped one")
    parser.add_argument("--value", type=Path, help="folder of a value model")
    parser.add_argument("--oversampling", type=int, default=4)
    parser.add_argument("--matrices", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each search")
    parser.add_argument("--candidates", type=int, default=512, help="at most, of each search")
    parser.add_argument("--all-seconds", type=float, default=24 * 3600, help="no arm is begun after this time")
    parser.add_argument("--commit", help="of the code, where there is no git")
    parser.add_argument("--out", type=Path, default=RESULTS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
