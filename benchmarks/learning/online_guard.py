"""Does the stack get worse with use? The real stack under load, its trainer learning; then what it serves against what it shipped.

    python -m benchmarks.learning.online_guard PACK [--seconds 130] [--limit 280] [--out benchmarks/results]

Six clients ask for policy samples on the pack's first matrices, one after the other, for `--seconds`; every version that the trainer
publishes meets its canary. Then the trainer is stopped and fresh samples of the version in service, and of the shipped one after
an operator's rollback, are graded on the pack's other matrices, which nobody trained on. Needs services, engine and evaluator
as `sparsesmith up` does. The pack: `--write-pack`, from a folder of .npz patterns, train side of benchmarks/split.csv.

    python -m benchmarks.learning.online_guard PACK --write-pack FOLDER
"""

import argparse
import csv
import hashlib
import json
import math
import os
import re
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from benchmarks.matrices.split import SPLIT_FILE
from benchmarks.origin import RESULTS, device_folder, machine, source_commit
from services.generator.policy.comparison import shortfall
from sparsesmith.cli.local_stack import wait_until_ready
from sparsesmith.client.clients import Client, matrix_file
from sparsesmith.errors import SparsesmithError
from sparsesmith.matrix.pack import encode_pattern, pack_index, read_pack, write_pack
from sparsesmith.matrix.pattern import Pattern, pattern_from_scipy
from sparsesmith.reward import milestone, standard_of
from sparsesmith.runtime.ports import free_port
from sparsesmith.runtime.stack import Stack, StackOptions
from sparsesmith_proto.api import Budget, KernelReport, SearchStrategy, TuningOptions
from sparsesmith_proto.kernel import DeviceDescription, Passed

NNZ = (3_000, 600_000)
"""Of the pack's matrices, as in the run that showed the harm."""
WAITED = re.compile(r"users' samples waited ([\d.]+) s")
PROBED = re.compile(r"the canary of version \d+ took ([\d.]+) s")


@dataclass(frozen=True)
class Posted:
    """One job of the load."""

    at_s: float
    """Of its end, from the start of the load."""
    outcomes: dict[str, int]
    versions: tuple[int, ...]


@dataclass
class Load:
    """What the clients saw; shared by their threads."""

    posted: list[Posted] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)
    _next: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self) -> int:
        with self._lock:
            self._next += 1
            return self._next - 1

    def add(self, job: Posted) -> None:
        with self._lock:
            self.posted.append(job)

    def add_failure(self, error: SparsesmithError) -> None:
        with self._lock:
            self.failures[error.message] += 1


@dataclass(frozen=True)
class Judged:
    """Fresh samples of one version on one matrix."""

    name: str
    versions: tuple[int, ...]
    passed: tuple[bool, ...]
    rewards: tuple[float, ...]
    best_speedup: float
    """Of the fastest over the best routine; 1 where none was faster."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pack", type=Path)
    parser.add_argument("--write-pack", type=Path, metavar="FOLDER", help="make the pack and stop")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--commit", default="")
    parser.add_argument("--seconds", type=float, default=130, help="of load")
    parser.add_argument("--limit", type=float, default=280, help="seconds in all; the judgement is cut to it")
    parser.add_argument("--load-matrices", type=int, default=150)
    parser.add_argument("--unseen", type=int, default=36)
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--candidates", type=int, default=32, help="samples a job")
    parser.add_argument("--samples", type=int, default=16, help="samples a matrix of the judgement")
    parser.add_argument("--search", default="sample", choices=["sample", "families"], help="families: without a policy")
    parser.add_argument("--batch-records", type=int, default=128)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="environment of the services")
    options = parser.parse_args()
    if options.write_pack:
        write(options.pack, options.write_pack, options.load_matrices + options.unseen)
        return
    result = run(options)
    folder = options.out / (result.pop("folder"))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "online-guard.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({key: result[key] for key in ("versions", "load", "judged")}, indent=1))


def write(pack: Path, folder: Path, count: int) -> None:
    """Train-side matrices of the right size, in an order that says nothing of them."""
    with SPLIT_FILE.open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["split"] == "train" and NNZ[0] <= int(row["nnz"]) <= NNZ[1]]
    names = sorted((row["name"] for row in rows), key=lambda name: hashlib.sha256(name.encode()).hexdigest())
    found = [path for name in names if (path := folder / f"{name}.npz").is_file()][:count]
    write_pack(pack, {path.stem: encode_pattern(pattern_from_scipy(scipy.sparse.load_npz(path))) for path in found})
    print(f"{len(found)} patterns, {pack.stat().st_size} bytes")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Everything but the file."""
    began = time.monotonic()
    names = list(pack_index(options.pack))
    patterns = dict(read_pack(options.pack, names[: options.load_matrices + options.unseen]))
    seen = [(name, patterns[name]) for name in names[: options.load_matrices]]
    unseen = [(name, patterns[name]) for name in names[options.load_matrices :][: options.unseen]]
    environment = {
        "SPARSESMITH_TRAINER_BATCH_RECORDS": str(options.batch_records),
        "SPARSESMITH_GENERATOR_SAMPLES_IN_FLIGHT": "64",
        "SPARSESMITH_GENERATOR_MAX_RUNNING_JOBS": str(options.clients),
        **dict(setting.split("=", 1) for setting in options.set),
    }
    with tempfile.TemporaryDirectory() as state:
        stack_options = StackOptions(Path(state), port=free_port(), environment=environment)
        with Stack(stack_options, on_event=print) as stack, Client(stack.url) as client:
            try:
                wait_until_ready(client, stack, is_whole=True)
                ready_s = time.monotonic() - began
                print(f"ready after {ready_s:.1f} s", flush=True)
                load = put_under_load(stack.url, seen, options)
                settle(client, lambda: client.policy().under_probe is None, 20)  # It needs the trainer.
                with stopped(stack.pids()["trainer"]):
                    judged, device = judge_both(client, stack.url, unseen, options, began + options.limit)
                verdicts = client.policy().verdicts
                log = stack.log_file("generator").read_text(encoding="utf-8", errors="replace")
                updates = _lines(stack.state / "trainer" / "updates.jsonl")
            finally:
                _print_logs(stack)
    return {
        "folder": device_folder(device) if device.kind == "cuda" else "cpu",
        "kind": "online_guard",
        "device": device.model_dump(),
        "machine": machine(),
        "commit": options.commit or source_commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": "python -m benchmarks.learning.online_guard",
        "options": {name: value for name, value in vars(options).items() if isinstance(value, int | float)},
        "environment": environment,
        "seconds": time.monotonic() - began,
        "ready_s": ready_s,
        "versions": {
            "published": len(updates),
            **Counter(verdict.decision for verdict in verdicts),
            "verdicts": [
                verdict.model_dump(exclude={"announcement"}) | {"version": verdict.version} for verdict in verdicts
            ],
            "canary_s": [float(seconds) for seconds in PROBED.findall(log)],
            "users_waited_s": [float(seconds) for seconds in WAITED.findall(log)],
        },
        "updates": updates,
        "load": told_of(load, options.seconds),
        "judged": judged,
    }


def put_under_load(url: str, matrices: Sequence[tuple[str, Pattern]], options: argparse.Namespace) -> Load:
    """Clients in threads, each with one job at a time, matrices in turn."""
    load, began = Load(), time.monotonic()

    def post() -> None:
        with Client(url, {"Cache-Control": "no-cache"}) as client:
            while time.monotonic() - began < options.seconds:
                name, pattern = matrices[load.take() % len(matrices)]
                try:
                    report = sampled(client, name, pattern, options.candidates, options.search)[1]
                except SparsesmithError as error:
                    load.add_failure(error)
                    continue
                at_s = time.monotonic() - began
                load.add(Posted(at_s, report.search.outcomes, report.search.policy_versions))

    in_threads(options.clients, post)
    return load


def sampled(
    client: Client, name: str, pattern: Pattern, candidates: int, search: SearchStrategy
) -> tuple[str, KernelReport]:
    """A job of policy samples alone, and its id."""
    data = matrix_file(pattern.to_scipy(np.ones(pattern.nnz, np.float32)), None)
    options = TuningOptions(search=search, budget=Budget(candidates=candidates, seconds=60))
    job = client.submit(f"{name}.npz", data, options)
    return job.job_id, client.wait(job.job_id)


class stopped:
    """A process that stands still; it goes on afterwards, so that it can be told to end."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def __enter__(self) -> None:
        os.kill(self._pid, signal.SIGSTOP)

    def __exit__(self, *_: object) -> None:
        os.kill(self._pid, signal.SIGCONT)


def judge_both(
    client: Client, url: str, matrices: Sequence[tuple[str, Pattern]], options: argparse.Namespace, end: float
) -> tuple[dict[str, Any], DeviceDescription]:
    """The version in service, then the shipped one, on the same matrices."""
    version = client.policy().version
    print(f"version {version} serves; it is judged", flush=True)
    half = time.monotonic() + (end - time.monotonic()) / (2 if version else 1) - 5
    final, device = judge(url, matrices, options, half)
    if version == 0:
        start = final
    else:
        client.roll_back_policy(0)
        settle(client, lambda: client.policy().version == 0, 30)
        names = {each.name for each in final}
        start, _ = judge(url, [each for each in matrices if each[0] in names], options, end - 5)
    common = sorted({each.name for each in final} & {each.name for each in start})
    pairs = [({each.name: each for each in side}) for side in (final, start)]
    sides = [[side[name] for name in common] for side in pairs]
    lack, z = shortfall([each.rewards for each in sides[0]], [each.rewards for each in sides[1]])
    lack_passed, z_passed = shortfall([each.passed for each in sides[0]], [each.passed for each in sides[1]])
    return {
        "version": version,
        "matrices": len(common),
        "final": told(sides[0]),
        "start": told(sides[1]),
        "final_lacks": {"pass_share": lack_passed, "z_pass_share": z_passed, "reward": lack, "z_reward": z},
    }, device


def settle(client: Client, has_come: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not has_come() and time.monotonic() < end:
        time.sleep(0.2)


def judge(
    url: str, matrices: Sequence[tuple[str, Pattern]], options: argparse.Namespace, end: float
) -> tuple[list[Judged], DeviceDescription]:
    """Matrices that were not begun by `end` are left out. Raises SparsesmithError where none was judged."""
    judged, devices, waiting, lock = list[Judged](), list[DeviceDescription](), iter(matrices), threading.Lock()

    def take() -> Iterator[tuple[str, Pattern]]:
        while time.monotonic() < end:
            with lock:
                chosen = next(waiting, None)
            if chosen is None:
                return
            yield chosen

    def work() -> None:
        with Client(url, {"Cache-Control": "no-cache"}) as client:
            for name, pattern in take():
                try:
                    job_id, report = sampled(client, name, pattern, options.samples, options.search)
                    outcomes = [each.outcome for each in client.candidates(job_id)]
                except SparsesmithError as error:
                    print(f"{name} is left out: {error.message}", flush=True)
                    continue
                best_us = report.baselines.best_routine().timing.median_us
                standard = standard_of(report.baselines, 8 * pattern.nnz + 4 * (pattern.num_rows + 1))
                times = [outcome.timing.median_us for outcome in outcomes if isinstance(outcome, Passed)]
                with lock:
                    devices.append(report.device)
                    judged.append(
                        Judged(
                            name=name,
                            versions=report.search.policy_versions,
                            passed=tuple(isinstance(outcome, Passed) for outcome in outcomes),
                            rewards=tuple(milestone(outcome, standard) for outcome in outcomes),
                            best_speedup=max(1.0, best_us / min(times)) if times else 1.0,
                        )
                    )

    in_threads(options.clients, work)
    if not judged:
        raise SparsesmithError("no matrix was judged")
    return judged, devices[0]


def in_threads(count: int, work: Callable[[], None]) -> None:
    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def told(side: Sequence[Judged]) -> dict[str, Any]:
    """A version's figures."""
    passed = [each for judged in side for each in judged.passed]
    rewards = [each for judged in side for each in judged.rewards]
    return {
        "samples": len(passed),
        "pass_at_1": sum(passed) / len(passed),
        "mean_reward": math.fsum(rewards) / len(rewards),
        "best_of_n_over_best_routine": math.exp(math.fsum(math.log(each.best_speedup) for each in side) / len(side)),
        "matrices": [asdict(each) for each in side],
    }


def told_of(load: Load, seconds: float) -> dict[str, Any]:
    """What users got, in quarters of the time."""
    quarters = []
    for quarter in range(4):
        jobs = [
            job
            for job in load.posted
            if quarter <= 4 * job.at_s / seconds < quarter + 1 or (quarter == 3 and job.at_s >= seconds)
        ]
        outcomes = sum((Counter(job.outcomes) for job in jobs), Counter[str]())
        quarters.append(
            {"jobs": len(jobs), "outcomes": outcomes, "pass_share": outcomes["passed"] / max(1, outcomes.total())}
        )
    return {
        "jobs": len(load.posted),
        "candidates": sum(sum(job.outcomes.values()) for job in load.posted),
        "failures": load.failures,
        "versions": sorted({version for job in load.posted for version in job.versions}),
        "quarters": quarters,
    }


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def _print_logs(stack: Stack) -> None:
    for name in ("generator", "evaluator-0", "trainer"):
        print(f"--- {name}\n" + stack.log_file(name).read_text(encoding="utf-8", errors="replace")[-3000:], flush=True)


if __name__ == "__main__":
    main()
