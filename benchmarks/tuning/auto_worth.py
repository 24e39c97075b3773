"""What `auto` costs where the policy wins nothing, and brings where it does: `auto` against `families` on the same budget.

    python -m benchmarks.tuning.auto_worth PACK [--matrices 6] [--candidates 40] [--repeats 2] [--seconds S]
        [--out benchmarks/results]

The real stack of this machine with the shipped policy; the smallest core matrices of the validation side, float32 SpMV.
Each is searched by `families` and by `auto` in turns, with the same number of candidates, past the cache. What counts is
the time of the best program found, the library's best routine where none passed. Aim: `auto` as good within 1 % where the policy gains nothing.

Without a GPU times are the interpreter's estimates, which are the same in every run: what differs between two searches is
their candidates alone. Such a result says `"times": "estimated"` and is no statement about speed on a device. The result file is written after every
matrix.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.matrices.suites import Matrix, core_sources
from benchmarks.origin import RESULTS, device_folder, machine, source_commit, write_result
from benchmarks.report.results import geometric_mean
from sparsesmith.cli.local_stack import wait_until_ready
from sparsesmith.client.clients import Client, matrix_file
from sparsesmith.runtime.ports import free_port
from sparsesmith.runtime.stack import Stack, StackOptions
from sparsesmith_proto.api import Budget, KernelReport, SearchStrategy, TunedAnswer, TuningOptions
from sparsesmith_proto.kernel import DeviceDescription, Passed

LONGEST_S = 600.0
"""Of a search: the number of candidates ends it, not this."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pack", type=Path)
    parser.add_argument("--matrices", type=int, default=6)
    parser.add_argument("--candidates", type=int, default=40)
    parser.add_argument("--repeats", type=int, default=2, help="searches of each kind on each matrix")
    parser.add_argument("--seconds", type=float, default=24 * 3600, help="no matrix is begun after this time")
    parser.add_argument("--commit", help="of the code, where there is no git")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    end, rows = time.monotonic() + options.seconds, list[dict[str, Any]]()
    sources = [each for each in core_sources(options.pack) if each.split == "validation"][: options.matrices]
    with (
        tempfile.TemporaryDirectory(prefix="ss-auto-") as folder,
        Stack(StackOptions(Path(folder), port=free_port()), on_event=print) as stack,
        Client(stack.url, {"Cache-Control": "no-cache"}) as client,
    ):
        wait_until_ready(client, stack, is_whole=True)
        for source in sources:
            if rows and time.monotonic() > end:
                break
            rows.append(searched(client, source.load(), options))
            _write(told(rows, options) | {"commit": options.commit or source_commit()}, options)


def _write(result: dict[str, Any], options: argparse.Namespace) -> None:
    device = DeviceDescription.model_validate(result["device"])
    path = options.out / (device_folder(device) if device.kind == "cuda" else "cpu") / "auto-worth.json"
    write_result(path, result)
    print(json.dumps({name: value for name, value in result.items() if name != "matrices"}, indent=1))


def searched(client: Client, matrix: Matrix, options: argparse.Namespace) -> dict[str, Any]:
    """A matrix by both strategies, in turns."""
    data = matrix_file(matrix.pattern.to_scipy(np.ones(matrix.pattern.nnz, np.float32)), None)
    searches: list[dict[str, Any]] = []
    for _ in range(options.repeats):
        for strategy in ("families", "auto"):
            report = one_search(client, matrix.name, data, strategy, options.candidates)
            searches.append(found(report))
            print(matrix.name, searches[-1], flush=True)
    device = report.device.model_dump()
    return {"name": matrix.name, "nnz": matrix.pattern.nnz, "device": device, "searches": searches}


def one_search(client: Client, name: str, data: bytes, strategy: str, candidates: int) -> KernelReport:
    chosen: SearchStrategy = "auto" if strategy == "auto" else "families"
    budget = Budget(candidates=candidates, seconds=LONGEST_S)
    return client.tune_file(f"{name}.npz", data, TuningOptions(search=chosen, budget=budget))


def found(report: KernelReport) -> dict[str, Any]:
    """What a search brought."""
    routine_us = report.baselines.best_routine().timing.median_us
    answer = report.answer
    best = answer.best if isinstance(answer, TunedAnswer) else answer.closest
    outcome = None if best is None else best.outcome
    return {
        "strategy": report.search.strategy,
        "best_us": outcome.timing.median_us if isinstance(outcome, Passed) else routine_us,
        "best_routine_us": routine_us,
        "candidates": report.search.num_candidates,
        "seconds": report.search.seconds,
        "sources": {
            each.source: {"proposed": each.proposed, "passed": each.passed, "gain": each.gain, "seconds": each.seconds}
            for each in report.search.sources
        },
    }


def told(rows: Sequence[dict[str, Any]], options: argparse.Namespace) -> dict[str, Any]:
    """Ratios of best times, geometric means over all pairs of searches; the policy's part."""
    pairs = [pair for row in rows for pair in _pairs(row["searches"])]
    without_gain = [pair for pair in pairs if not _policy(pair[1]).get("gain")]
    device = rows[0]["device"]
    return {
        "kind": "auto_worth",
        "times": "measured" if device["kind"] == "cuda" else "estimated",
        "device": device,
        "machine": machine(),
        "commit": source_commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": f"benchmarks.tuning.auto_worth --matrices {options.matrices} --candidates {options.candidates} "
        f"--repeats {options.repeats}",
        "searches": len(pairs),
        "auto_over_families": geometric_mean(_ratios(pairs)),
        "worst": max(_ratios(pairs)),
        "policy_gained_nothing": {
            "searches": len(without_gain),
            "auto_over_families": geometric_mean(_ratios(without_gain)) if without_gain else None,
            "worst": max(_ratios(without_gain), default=None),
        },
        "candidates": {
            "families_alone": sum(pair[0]["candidates"] for pair in pairs),
            "auto": sum(pair[1]["candidates"] for pair in pairs),
            "auto_by_policy": sum(_policy(pair[1]).get("proposed", 0) for pair in pairs),
        },
        "families_differ_by": max(_spread([s["best_us"] for s in row["searches"][::2]]) for row in rows),
        "matrices": [{name: value for name, value in row.items() if name != "device"} for row in rows],
    }


def _pairs(searches: Sequence[dict[str, Any]]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Families and auto of the same turn."""
    return list(zip(searches[::2], searches[1::2], strict=True))


def _policy(search: dict[str, Any]) -> dict[str, Any]:
    part: dict[str, Any] = search["sources"].get("policy", {})
    return part


def _ratios(pairs: Sequence[tuple[dict[str, Any], dict[str, Any]]]) -> list[float]:
    """Best time of `auto` over that of `families`: above 1 it costs."""
    return [auto["best_us"] / families["best_us"] for families, auto in pairs]


def _spread(values: Sequence[float]) -> float:
    return max(values) / min(values) - 1


if __name__ == "__main__":
    main()
