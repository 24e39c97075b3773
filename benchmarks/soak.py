"""The stack under load while its processes are killed: does every accepted job come to an end, and is nothing else broken?

    make soak        (python -m benchmarks.soak [--seconds 180] [--clients 12] [--kills 12] [--out benchmarks/results])

The real stack of this machine. Clients post small matrices of their own, cancel some, and wait; meanwhile processes are
killed with SIGKILL, one after the other: evaluators, trainer, Valkey and, twice at most, the generator, whose engine
takes long to return. Then nothing is killed any more until all jobs have ended. Ends with 1, and no result file, where a
job was lost or a request got a status that is none of ours. That a job ends once is not looked at here.
"""

import argparse
import json
import os
import platform
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from benchmarks.origin import source_commit
from benchmarks.results import RESULTS
from sparsesmith.cli.local_stack import wait_until_ready
from sparsesmith.client.clients import Client
from sparsesmith.runtime.ports import free_port
from sparsesmith.runtime.stack import Stack, StackOptions

MOST_GENERATOR_KILLS = 2
CANCELLED_SHARE = 0.1
ENDED = ("finished", "failed", "cancelled")
LAST_WAIT_S = 420
PAUSE_S = 0.5
EXPECTED = frozenset({200, 202, 204, 404, 409, 429, 503})
"""Of requests of this load; a connection that is refused or cut counts apart: somebody killed the server."""


@dataclass
class Load:
    """What the clients saw."""

    url: str
    accepted: dict[str, bool] = field(default_factory=dict)
    """Job by id; whether it was cancelled."""
    statuses: Counter[int] = field(default_factory=Counter)
    unreachable: int = 0
    stop: threading.Event = field(default_factory=threading.Event)
    _counting: threading.Lock = field(default_factory=threading.Lock)

    def ask(self, client: httpx.Client, method: str, path: str, body: object = None) -> httpx.Response | None:
        """None where nobody answered."""
        try:
            response = client.request(method, self.url + path, json=body, timeout=60)
        except httpx.TransportError:
            with self._counting:
                self.unreachable += 1
            time.sleep(PAUSE_S)
            return None
        with self._counting:
            self.statuses[response.status_code] += 1
        return response

    def one_client(self, seed: int) -> None:
        """Posts, now and then cancels, and waits for a while."""
        chosen = random.Random(seed)
        with httpx.Client() as client:
            while not self.stop.is_set():
                response = self.ask(client, "POST", "/v1/kernels", small_request(chosen))
                if response is None or response.status_code != 202:
                    time.sleep(PAUSE_S)
                    continue
                job_id = response.json()["job_id"]
                self.accepted[job_id] = chosen.random() < CANCELLED_SHARE
                if self.accepted[job_id]:
                    self.ask(client, "DELETE", f"/v1/kernels/{job_id}")
                self.ask(client, "GET", f"/v1/kernels/{job_id}")
                time.sleep(chosen.uniform(0, 2 * PAUSE_S))


def small_request(chosen: random.Random) -> dict[str, Any]:
    """A matrix that nobody sent before, and two candidates."""
    size = chosen.randrange(20, 60)
    entries = sorted({(chosen.randrange(size), chosen.randrange(size)) for _ in range(4 * size)})
    matrix = {
        "num_rows": size,
        "num_cols": size,
        "row_indices": [row for row, _ in entries],
        "col_indices": [col for _, col in entries],
    }
    return {"matrix": matrix, "search": "families", "budget": {"candidates": 2, "seconds": 120}}


def killed(stack: Stack, count: int, seconds: float, chosen: random.Random) -> Counter[str]:
    """Kills processes over the time given; by name."""
    found: Counter[str] = Counter()
    for _ in range(count):
        time.sleep(seconds / count)
        names = [name for name in stack.pids() if name != "generator" or found[name] < MOST_GENERATOR_KILLS]
        name = chosen.choice(names)
        try:
            os.kill(stack.pids()[name], signal.SIGKILL)
        except (KeyError, ProcessLookupError):
            continue
        found[name] += 1
        print(f"killed {name}", flush=True)
    return found


def ends(load: Load) -> Counter[str]:
    """How each accepted job ended, waited for."""
    states: dict[str, str] = {}
    deadline = time.monotonic() + LAST_WAIT_S
    with httpx.Client() as client:
        while len(states) < len(load.accepted) and time.monotonic() < deadline:
            for job_id in [each for each in load.accepted if each not in states]:
                response = load.ask(client, "GET", f"/v1/kernels/{job_id}")
                if response is not None and response.status_code == 200:
                    state = response.json()["status"]["state"]
                    if state in ENDED:
                        states[job_id] = state
            time.sleep(PAUSE_S)
    return Counter(states.get(job_id, "lost") for job_id in load.accepted)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("--clients", type=int, default=12)
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    chosen = random.Random(options.seed)
    with tempfile.TemporaryDirectory(prefix="ss-soak-") as folder:
        stack_options = StackOptions(Path(folder), port=free_port(), num_evaluators=2)
        with Stack(stack_options, on_event=lambda told: print(told, flush=True)) as stack:
            with Client(stack.url) as client:
                wait_until_ready(client, stack)
            load = Load(stack.url)
            threads = [threading.Thread(target=load.one_client, args=(seed,)) for seed in range(options.clients)]
            for thread in threads:
                thread.start()
            by_name = killed(stack, options.kills, options.seconds, chosen)
            load.stop.set()
            for thread in threads:
                thread.join()
            states = ends(load)
            tracebacks = sum(
                path.read_text(errors="replace").count("Traceback") for path in (Path(folder) / "logs").glob("*.log")
            )
    result = {
        "kind": "soak",
        "commit": source_commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, no GPU",
        "command": f"benchmarks.soak --seconds {options.seconds:g} --clients {options.clients} --kills {options.kills}",
        "kills": dict(by_name),
        "jobs": len(load.accepted),
        "ended": dict(states),
        "statuses": {str(status): count for status, count in sorted(load.statuses.items())},
        "unreachable": load.unreachable,
        "tracebacks_in_logs": tracebacks,
    }
    print(json.dumps(result, indent=1))
    odd = [status for status in load.statuses if status not in EXPECTED]
    if states["lost"] or odd:
        print(f"lost {states['lost']} jobs; unexpected statuses {odd}", file=sys.stderr)
        return 1
    folder_out = options.out / "cpu"
    folder_out.mkdir(parents=True, exist_ok=True)
    (folder_out / "soak.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
