"""The stack under load while its processes are killed: is every accepted job answered, once, and nothing else broken?

    make soak        (python -m benchmarks.service.soak [--seconds 180] [--clients 12] [--kills 14] [--out benchmarks/results])

The real stack of this machine. Clients post small matrices of their own under idempotency keys, some for samples of the
policy, again and again until they are told a job; cancel some; and wait. Meanwhile processes are killed with SIGKILL, one
after the other, every kind of them at least once: evaluators, trainer, Valkey, the generator and the engine's own process,
which takes long to return and is not killed more than twice. Then nothing is killed any more until all jobs have ended,
generator and Valkey are killed a last time, and each job is looked at again.

Ends with 1, and no result file, where a job was lost, ended twice (its stream of events has another end than one), has
another answer after its end than at it, was told to be cancelled and was not, was made twice of one request; or where a
request got a status that is none of ours.
"""

import argparse
import json
import os
import platform
import random
import re
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from benchmarks.origin import RESULTS, source_commit
from sparsesmith.cli.local_stack import wait_until_ready
from sparsesmith.client.clients import Client
from sparsesmith.errors import Unavailable
from sparsesmith.runtime.ports import free_port
from sparsesmith.runtime.stack import Stack, StackOptions

ENGINE = "engine"
"""The generator's child that samples."""
SLOW = {"generator": 2, ENGINE: 2}
"""Kinds whose return takes long, and how often they are killed at most."""
CANCELLED_SHARE = 0.1
SAMPLED_SHARE = 0.03
"""Of the jobs: policy samples, which take long on a CPU."""
ENDED = ("finished", "graded", "failed", "cancelled")
LAST_WAIT_S = 600
RETURN_S = 600
"""Of a process that was killed, on a busy machine."""
PAUSE_S = 0.5
EXPECTED = frozenset({200, 202, 204, 404, 409, 429, 503})
"""Of requests of this load; a connection that is refused or cut counts apart: somebody killed the server."""


@dataclass
class Job:
    """An accepted job, as its client knows it."""

    job_id: str
    is_cancelled: bool = False
    """We were told so: 204."""
    end: dict[str, Any] | None = None
    """Its status when it was first seen to have ended."""


@dataclass(frozen=True)
class Look:
    """A job once more, after everything."""

    status: Mapping[str, Any]
    ends: tuple[str, ...]
    """States of its stream of events that end a job, also beyond the first."""


@dataclass
class Load:
    """What the clients saw; shared by their threads."""

    url: str
    jobs: dict[str, Job] = field(default_factory=dict)
    statuses: Counter[int] = field(default_factory=Counter)
    unreachable: int = 0
    stop: threading.Event = field(default_factory=threading.Event)
    _counting: threading.Lock = field(default_factory=threading.Lock)

    def ask(self, client: httpx.Client, method: str, path: str, **options: Any) -> httpx.Response | None:
        """None where nobody answered."""
        try:
            response = client.request(method, self.url + path, timeout=60, **options)
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
                job = self._accepted(client, f"soak-{seed}-{chosen.getrandbits(64)}", small_request(chosen))
                if job is None:
                    continue
                self.jobs[job.job_id] = job
                if chosen.random() < CANCELLED_SHARE:
                    response = self.ask(client, "DELETE", f"/v1/kernels/{job.job_id}")
                    job.is_cancelled = response is not None and response.status_code == 204
                self.ask(client, "GET", f"/v1/kernels/{job.job_id}")
                time.sleep(chosen.uniform(0, 2 * PAUSE_S))

    def _accepted(self, client: httpx.Client, key: str, body: Mapping[str, Any]) -> Job | None:
        """Asks under one key until told a job, also once the load is over; None where nobody would say in the end."""
        deadline = time.monotonic() + LAST_WAIT_S
        while time.monotonic() < deadline:
            response = self.ask(client, "POST", "/v1/kernels", json=body, headers={"Idempotency-Key": key})
            if response is not None and response.status_code == 202:
                return Job(response.json()["job_id"])
            time.sleep(PAUSE_S)
        return None

    def wait_for_ends(self) -> None:
        """Of all jobs, for as long as some end within `LAST_WAIT_S`."""
        deadline = time.monotonic() + LAST_WAIT_S
        with httpx.Client() as client:
            while (open_jobs := [each for each in self.jobs.values() if each.end is None]) and (
                time.monotonic() < deadline
            ):
                for job in open_jobs:
                    response = self.ask(client, "GET", f"/v1/kernels/{job.job_id}")
                    if response is not None and response.status_code == 200:
                        status = response.json()
                        if status["status"]["state"] in ENDED:
                            job.end, deadline = status, time.monotonic() + LAST_WAIT_S
                time.sleep(PAUSE_S)

    def listed(self) -> set[str]:
        """Ids of all jobs that the service knows."""
        found: set[str] = set()
        before: dict[str, str] = {}
        with httpx.Client() as client:
            while True:
                page = client.get(f"{self.url}/v1/kernels", params={"limit": 200, **before}, timeout=60).json()
                found |= {each["job_id"] for each in page["jobs"]}
                if page["next_before"] is None:
                    return found
                before = {"before": page["next_before"]}


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
    search = "sample" if chosen.random() < SAMPLED_SHARE else "families"
    return {"matrix": matrix, "search": search, "budget": {"candidates": 2, "seconds": 120}}


def schedule(kinds: Sequence[str], count: int, chosen: random.Random) -> list[str]:
    """Whom to kill, in this order: each kind once, the others by chance. Raises ValueError for fewer kills than kinds."""
    if count < len(kinds):
        raise ValueError(f"--kills {count}: there are {len(kinds)} kinds of processes, and each is killed")
    drawn = [*kinds]
    while len(drawn) < count:
        drawn.append(chosen.choice([kind for kind in kinds if drawn.count(kind) < SLOW.get(kind, count)]))
    chosen.shuffle(drawn)
    return drawn


def process_ids(stack: Stack) -> dict[str, int]:
    """Of all kinds that run now, the engine's own process included."""
    found = stack.pids()
    engines = [pid for pid in _session(found.get("generator", -1)) if _title(pid).startswith("VLLM::EngineCore")]
    return {**found, ENGINE: engines[0]} if engines else found


def _session(leader: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            if os.getsid(int(entry.name)) == leader:
                found.append(int(entry.name))
    return found


def _title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def killed(stack: Stack, kinds: Sequence[str], seconds: float) -> Counter[str]:
    """Kills one after the other over the time given, and waits for one that is still on its way back; by kind."""
    found: Counter[str] = Counter()
    for kind in kinds:
        time.sleep(seconds / len(kinds))
        kill(stack, kind)
        found[kind] += 1
        print(f"killed {kind}", flush=True)
    return found


def kill(stack: Stack, kind: str) -> None:
    """Raises TimeoutError where there is none for `RETURN_S`."""
    deadline = time.monotonic() + RETURN_S
    while time.monotonic() < deadline:
        pid = process_ids(stack).get(kind)
        with suppress(ProcessLookupError):
            if pid is not None:
                os.kill(pid, signal.SIGKILL)
                return
        time.sleep(PAUSE_S)
    raise TimeoutError(f"no {kind} ran for {RETURN_S} s")


def looked_at(url: str, job_id: str) -> Look:
    """A job's status and all ends in its stream: the stream is over at the first, and asked again for what is after."""
    with httpx.Client(timeout=60) as client:
        status = client.get(f"{url}/v1/kernels/{job_id}").json()
        ends: list[str] = []
        last: dict[str, str] = {}
        while events := _events(client.get(f"{url}/v1/kernels/{job_id}/events", headers=last).text):
            ends += [state for _, state in events if state in ENDED]
            last = {"Last-Event-ID": events[-1][0]}
    return Look(status, tuple(ends))


def _events(text: str) -> list[tuple[str, str]]:
    """Id and name of each event of a stream."""
    blocks = [dict(line.split(": ", 1) for line in block.split("\n") if ": " in line) for block in _blocks(text)]
    return [(block["id"], block["event"]) for block in blocks if "id" in block]


def _blocks(text: str) -> list[str]:
    return text.replace("\r\n", "\n").split("\n\n")


def complaints(job: Job, look: Look | None) -> list[str]:
    """What is wrong with a job's end."""
    if job.end is None or look is None:
        return ["lost"]
    state = job.end["status"]["state"]
    found = []
    if look.ends != (state,):
        found.append(f"ended as {state}, its events say {', '.join(look.ends) or 'nothing'}")
    if look.status != job.end:
        found.append("its answer changed after its end")
    if job.is_cancelled and state != "cancelled":
        found.append(f"we were told that it is cancelled, and it is {state}")
    return found


def failures(jobs: Sequence[Job]) -> dict[str, int]:
    """Why jobs failed, and how many."""
    ends = [job.end["status"] for job in jobs if job.end is not None]
    return dict(Counter(each["problem"]["detail"] for each in ends if each["state"] == "failed"))


def last_lines(log: str) -> list[str]:
    """Of each traceback in a log: the exception and its message. What vLLM writes before each line is left out."""
    plain = re.sub(r"(?m)^\(\w+ pid=\d+\) (?:\w+ [-\d]+ [:\d]+ \[[^]]*\] )?", "", log)
    return re.findall(r"Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*(\S.*)", plain)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("--clients", type=int, default=12)
    parser.add_argument("--kills", type=int, default=14)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ss-soak-") as folder:
        result, wrong = soaked(Path(folder), options)
    print(json.dumps(result, indent=1))
    if wrong:
        print("\n".join(wrong), file=sys.stderr)
        return 1
    folder_out = options.out / "cpu"
    folder_out.mkdir(parents=True, exist_ok=True)
    (folder_out / "soak.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0


def soaked(folder: Path, options: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    """What is to be told, and what is wrong."""
    stack_options = StackOptions(folder, port=free_port(), num_evaluators=2)
    with Stack(stack_options, on_event=lambda told: print(told, flush=True)) as stack:
        with Client(stack.url) as client:
            wait_until_ready(client, stack, is_whole=True)
        running = process_ids(stack)
        if ENGINE not in running:
            raise Unavailable("everything works, and the engine's own process is not found: nobody could kill it")
        kinds = schedule(sorted(running), options.kills, random.Random(options.seed))
        load = Load(stack.url)
        by_kind = under_load(load, options.clients, lambda: killed(stack, kinds, options.seconds))
        load.wait_for_ends()
        for kind in ("generator", "valkey"):
            kill(stack, kind)
        with Client(stack.url) as client:
            wait_until_ready(client, stack)
        print(f"{len(load.jobs)} jobs are looked at again", flush=True)
        looks = {job_id: looked_at(stack.url, job_id) for job_id, job in load.jobs.items() if job.end is not None}
        doubles = load.listed() - load.jobs.keys()
        defects = [
            f"{path.stem}: {last}"
            for path in sorted((folder / "logs").glob("*.log"))
            for last in last_lines(path.read_text(errors="replace"))
        ]
    wrong = [f"{job.job_id}: {each}" for job in load.jobs.values() for each in complaints(job, looks.get(job.job_id))]
    wrong += [f"{job_id}: nobody was told of it" for job_id in sorted(doubles)]
    wrong += [f"status {status}: not expected" for status in load.statuses if status not in EXPECTED]
    ended = Counter("lost" if job.end is None else job.end["status"]["state"] for job in load.jobs.values())
    return {
        "kind": "soak",
        "commit": source_commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, no GPU",
        "command": f"benchmarks.service.soak --seconds {options.seconds:g} --clients {options.clients} --kills {options.kills}",
        "kills": dict(sorted(by_kind.items())),
        "jobs": len(load.jobs),
        "ended": dict(sorted(ended.items())),
        "ended_once": sum(len(look.ends) == 1 for look in looks.values()),
        "same_after_the_end": sum(looks[job_id].status == load.jobs[job_id].end for job_id in looks),
        "failures": failures([*load.jobs.values()]),
        "statuses": {str(status): count for status, count in sorted(load.statuses.items())},
        "unreachable": load.unreachable,
        "tracebacks_in_logs": dict(sorted(Counter(defects).items())),
    }, wrong


def under_load(load: Load, num_clients: int, trouble: Callable[[], Counter[str]]) -> Counter[str]:
    """Clients at work while there is trouble, and until each of their requests is answered."""
    threads = [threading.Thread(target=load.one_client, args=(seed,)) for seed in range(num_clients)]
    for thread in threads:
        thread.start()
    try:
        return trouble()
    finally:
        load.stop.set()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    sys.exit(main())
