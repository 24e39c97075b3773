"""The stack under load while its processes are killed: is every accepted job answered, once, and nothing else broken?

    make soak
    python -m benchmarks.service.soak --seconds 3600 --clients 200 --slow 20 --vanishing 20 --uploading 2 --kills 100

The real stack of this machine. Clients post small matrices of their own under idempotency keys, some for samples of the
policy, again and again until they are told a job; cancel some; and wait. Others send by drops, leave in the middle of a
body, before an answer or in the middle of events, or send large matrices. Meanwhile processes are killed with SIGKILL, one
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
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from benchmarks.origin import RESULTS, command, machine, source_commit
from benchmarks.service.load import ENDED, PAUSE_S, Job, Load
from benchmarks.service.odd_clients import slow, uploading, vanishing
from sparsesmith.cli.local_stack import wait_until_ready
from sparsesmith.client.clients import Client
from sparsesmith.errors import Unavailable
from sparsesmith.runtime.ports import free_port
from sparsesmith.runtime.stack import Stack, StackOptions

ENGINE = "engine"
"""The generator's child that samples."""
SLOW = {"generator": 2, ENGINE: 2}
"""Kinds whose return takes long, and how often they are killed at most."""
RETURN_S = 600
"""Of a process that was killed, on a busy machine."""
EXPECTED = frozenset({200, 202, 204, 404, 409, 429, 503})
"""Of requests of this load; a connection that is refused or cut counts apart: somebody killed the server."""


@dataclass(frozen=True)
class Look:
    """A job once more, after everything."""

    status: Mapping[str, Any]
    ends: tuple[str, ...]
    """States of its stream of events that end a job, also beyond the first."""


def schedule(kinds: Sequence[str], count: int, chosen: random.Random) -> list[str]:
    """Whom to kill, in this order: each kind once, the others by chance. Raises ValueError for fewer kills than kinds."""
    if count < len(kinds):
        raise ValueError(f"--kills {count}: there are {len(kinds)} kinds of processes, and each is killed")
    scheduled = [*kinds]
    while len(scheduled) < count:
        scheduled.append(chosen.choice([kind for kind in kinds if scheduled.count(kind) < SLOW.get(kind, count)]))
    chosen.shuffle(scheduled)
    return scheduled


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
    parser.add_argument("--slow", type=int, default=4, help="clients that send by drops")
    parser.add_argument("--vanishing", type=int, default=4, help="clients that leave in the middle")
    parser.add_argument("--uploading", type=int, default=1, help="clients that send large matrices")
    parser.add_argument("--upload-nnz", type=int, default=300_000)
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
        running, memory_before = process_ids(stack), memory_mib(stack)
        if ENGINE not in running:
            raise Unavailable("everything works, and the engine's own process is not found: nobody could kill it")
        kinds = schedule(sorted(running), options.kills, random.Random(options.seed))
        load = Load(stack.url)
        by_kind = under_load(load, all_clients(load, options), lambda: killed(stack, kinds, options.seconds))
        load.wait_for_ends()
        for kind in ("generator", "valkey"):
            kill(stack, kind)
        with Client(stack.url) as client:
            wait_until_ready(client, stack)
        print(f"{len(load.jobs)} jobs are looked at again", flush=True)
        looks = {job_id: looked_at(stack.url, job_id) for job_id, job in load.jobs.items() if job.end is not None}
        memory_after = memory_mib(stack)
        valkey_bytes = sum(path.stat().st_size for path in (folder / "valkey").rglob("*") if path.is_file())
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
        "machine": machine(),
        "command": command("benchmarks.service.soak"),
        "kills": dict(sorted(by_kind.items())),
        "jobs": len(load.jobs),
        "ended": dict(sorted(ended.items())),
        "ended_once": sum(len(look.ends) == 1 for look in looks.values()),
        "same_after_the_end": sum(looks[job_id].status == load.jobs[job_id].end for job_id in looks),
        "failures": failures([*load.jobs.values()]),
        "statuses": {str(status): count for status, count in sorted(load.statuses.items())},
        "unreachable": load.unreachable,
        "odd_clients": dict(sorted(load.deeds.items())),
        "memory_mib": {"before": memory_before, "after": memory_after},
        "valkey_bytes": valkey_bytes,
        "tracebacks_in_logs": dict(sorted(Counter(defects).items())),
    }, wrong


def all_clients(load: Load, options: argparse.Namespace) -> list[Callable[[], None]]:
    """One for each thread."""
    return [
        *(partial(load.one_client, seed) for seed in range(options.clients)),
        *(partial(slow, load, seed) for seed in range(options.slow)),
        *(partial(vanishing, load, seed) for seed in range(options.vanishing)),
        *(partial(uploading, load, seed, options.upload_nnz) for seed in range(options.uploading)),
    ]


def memory_mib(stack: Stack) -> dict[str, int]:
    """What each kind of process holds now."""
    found = {}
    for kind, pid in sorted(process_ids(stack).items()):
        with suppress(OSError):
            pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            found[kind] = pages * os.sysconf("SC_PAGE_SIZE") // 2**20
    return found


def under_load(load: Load, clients: Sequence[Callable[[], None]], trouble: Callable[[], Counter[str]]) -> Counter[str]:
    """Clients at work while there is trouble, and until each of their requests is answered."""
    threads = [threading.Thread(target=client) for client in clients]
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
