"""The stack under load while its processes are killed: is every accepted job answered, once, and nothing else broken?

    make soak
    python -m benchmarks.service.soak --seconds 3600 --clients 200 --slow 20 --vanishing 20 --uploading 2 --kills 100

The real stack of this machine. First, in peace, some jobs whose answers must be the same later (`calm`). Then clients post
small matrices of their own under idempotency keys, some for samples of the policy, again and again until they are told a
job; cancel some; and wait. Others send by drops, leave in the middle of a body, before an answer or in the middle of
events, or send large matrices. Meanwhile processes are killed with SIGKILL, one after the other, every kind of them at
least once: evaluators, trainer, Valkey, the generator and the engine's own process, which take long to return and are
killed `--slow-kills` times each. Then nothing is killed any more until all jobs have ended, generator and Valkey are killed
a last time, and each job is looked at again.

After `--seconds` jobs have at most `--end-seconds` to end, half of it for requests that nobody answered; then come the last
kills and looks, a minute or two. What is known is written every minute, and at SIGTERM. The result is a run in a file of runs (`soak_runs`); `--into` names a file that has earlier ones.

Wrong is, and said in the result, with 1 as the exit code: a job that was lost, ended twice (its stream of events has
another end than one), has another answer after its end than at it, was told to be cancelled and was not, was made twice of
one request, or has another answer than in peace; a request that got a status that is none of ours, or a 503 that does not
say when to come again.
"""

import argparse
import json
import random
import re
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import httpx

from benchmarks.origin import RESULTS, command, machine, source_commit
from benchmarks.service.calm import CalmAnswers
from benchmarks.service.footprint import Footprint
from benchmarks.service.killing import ENGINE, SLOW, Killer, process_ids
from benchmarks.service.load import ENDED, Job, Load
from benchmarks.service.odd_clients import slow, uploading, vanishing
from benchmarks.service.soak_runs import MOST_SLOW_KILLS, read_runs, slow_kills, written
from sparsesmith.cli.local_stack import wait_until_ready
from sparsesmith.client.clients import Client
from sparsesmith.errors import Unavailable
from sparsesmith.runtime.ports import free_port
from sparsesmith.runtime.stack import Stack, StackOptions
from sparsesmith.transport.connection import connect
from sparsesmith.transport.queue import living_workers

EXPECTED = frozenset({200, 202, 204, 404, 409, 429, 503})
"""Of requests of this load; a connection that is refused or cut counts apart: somebody killed the server."""
LAST_KILLS = ("generator", "valkey")
LOOKERS = 8
PARTIAL_S = 60.0
START_S = 900.0
"""On a new computer the interpreter compiles itself, once for each evaluator."""
MOST_WRONG = 200
"""Of what is wrong, told in the result."""
ALL_KEPT = {"SPARSESMITH_GENERATOR_HISTORY_JOBS": "1000000"}
"""Each job is looked at again in the end."""


@dataclass(frozen=True)
class Look:
    """A job once more, after everything."""

    status: Mapping[str, Any]
    ends: tuple[str, ...]
    """States of its stream of events that end a job, also beyond the first."""


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


@dataclass
class Soak:
    """One run, and what is known of it so far."""

    stack: Stack
    options: argparse.Namespace
    load: Load
    killer: Killer
    calm: CalmAnswers
    footprint: Footprint
    looks: dict[str, Look] = field(default_factory=dict)
    doubles: frozenset[str] = frozenset()
    phase: str = "calm"
    storm_s: float = 0.0

    def run(self) -> None:
        """Calm, storm, end. Raises RuntimeError for a calm job without an answer."""
        self.calm.ask_calmly()
        self.phase, began = "storm", time.monotonic()
        under_load(self.load, self._clients(), self._trouble)
        self.storm_s = time.monotonic() - began
        self.phase = "end"
        self.load.wait_for_ends(self.options.end_seconds / 2)
        for kind in LAST_KILLS:
            self.killer.kill(kind)
        with Client(self.stack.url) as client:
            wait_until_ready(client, self.stack)
        print(f"{len(self.load.jobs)} jobs are looked at again", flush=True)
        ended = [job_id for job_id, job in self.load.jobs.items() if job.end is not None]
        with ThreadPoolExecutor(LOOKERS) as lookers:
            found = lookers.map(partial(looked_at, self.stack.url), ended)
            self.looks = dict(zip(ended, found, strict=True))
        self.doubles = frozenset(self.load.listed() - self.load.jobs.keys())
        self.footprint.take()
        self.phase = "done"

    def _trouble(self) -> None:
        self.killer.spread(self.options.kills, self.options.seconds)

    def _clients(self) -> list[Callable[[], None]]:
        parts = min(CALM_CLIENTS, self.options.calm)
        again = [partial(self.calm.ask_again, part, parts) for part in range(parts)]
        return [*all_clients(self.load, self.options), *again, self.load.watch_ends]

    def wrong(self) -> list[str]:
        """What must not be. A job without an end is lost only where the end was waited for."""
        jobs = self.load.jobs
        found = [f"{job_id}: {each}" for job_id, look in self.looks.items() for each in complaints(jobs[job_id], look)]
        if self.phase == "done":
            found += [f"{job.job_id}: {each}" for job in self.load.open_jobs() for each in complaints(job, None)]
        found += [f"{job_id}: nobody was told of it" for job_id in sorted(self.doubles)]
        found += [f"status {status}: not expected" for status in [*self.load.statuses] if status not in EXPECTED]
        if self.load.without_retry_after:
            found.append(f"{self.load.without_retry_after} answers 503 without Retry-After")
        return found + self.calm.compared()["unequal"]

    def told(self) -> dict[str, Any]:
        """The run as the result file has it."""
        jobs = [*self.load.jobs.values()]
        ended = Counter("open" if job.end is None else job.end["status"]["state"] for job in jobs)
        wrong, compared = self.wrong(), self.calm.compared()
        return {
            "commit": source_commit(),
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": machine(),
            "command": command("benchmarks.service.soak"),
            "phase": self.phase,
            "evaluators": self.options.evaluators,
            "storm_s": round(self.storm_s, 1),
            "kills": dict(sorted(self.killer.killed.items())),
            "jobs": len(jobs),
            "ended": dict(sorted(ended.items())),
            "ended_once": sum(len(look.ends) == 1 for look in [*self.looks.values()]),
            "same_after_the_end": sum(
                look.status == self.load.jobs[job_id].end for job_id, look in [*self.looks.items()]
            ),
            "calm": {
                "answers": len(self.calm.calm),
                "asked_again_equal": len(compared["equal"]),
                "unequal": len(compared["unequal"]),
                "failed": len(compared["failed"]),
            },
            "failures": failures(jobs),
            "statuses": {str(status): count for status, count in sorted(self.load.statuses.items())},
            "without_retry_after": self.load.without_retry_after,
            "unreachable": self.load.unreachable,
            "odd_clients": dict(sorted(self.load.deeds.items())),
            "footprint": self.footprint.told(),
            "tracebacks_in_logs": tracebacks(self.stack.state / "logs"),
            "num_wrong": len(wrong),
            "wrong": wrong[:MOST_WRONG],
        }


CALM_CLIENTS = 2
"""That ask for the calm answers again."""


def tracebacks(logs: Path) -> dict[str, int]:
    """By log and last line."""
    found = (
        f"{path.stem}: {last}"
        for path in sorted(logs.glob("*.log"))
        for last in last_lines(path.read_text(errors="replace"))
    )
    return dict(sorted(Counter(found).items()))


def main() -> int:
    options = _options()
    file = options.into or options.out / "cpu" / "soak.json"
    runs = read_runs(file) if options.into else []
    # Of the kills in the storm and the last one.
    if (count := slow_kills(runs) + len(SLOW) * options.slow_kills + 1) > MOST_SLOW_KILLS:
        print(f"--slow-kills {options.slow_kills}: {count} kills of {' and '.join(SLOW)} in all runs, at most "
              f"{MOST_SLOW_KILLS}", file=sys.stderr)  # fmt: skip
        return 2
    with tempfile.TemporaryDirectory(prefix="ss-soak-") as folder:
        run = soaked(options.state or Path(folder), options, partial(written, file, runs))
    print(json.dumps({name: value for name, value in run.items() if name != "footprint"}, indent=1))
    return 1 if run["wrong"] else 0


def soaked(state: Path, options: argparse.Namespace, write: Callable[[Mapping[str, Any]], None]) -> dict[str, Any]:
    """The run, which is written as it goes on, too."""
    stack_options = StackOptions(
        state,
        port=free_port(),
        num_evaluators=options.evaluators,
        environment=ALL_KEPT,
        longest_pause_s=options.longest_pause,
    )
    with Stack(stack_options, on_event=lambda told: print(told, flush=True)) as stack:
        with Client(stack.url) as client:
            wait_until_ready(client, stack, is_whole=True, timeout_s=START_S)
        wait_for_evaluators(stack, options.evaluators)
        running = process_ids(stack)
        if ENGINE not in running:
            raise Unavailable("everything works, and the engine's own process is not found: nobody could kill it")
        load = Load(stack.url, last_wait_s=options.end_seconds / 2)
        killer = Killer(stack, tuple(running), random.Random(options.seed), options.slow_kills)
        soak = Soak(stack, options, load, killer, CalmAnswers(load, options.calm), Footprint(stack))
        over = threading.Event()
        beside = [
            threading.Thread(target=soak.footprint.follow, args=(over,), daemon=True),
            threading.Thread(target=_write_often, args=(soak, write, over), daemon=True),
        ]
        for thread in beside:
            thread.start()

        def told_to_stop(number: int, frame: FrameType | None) -> None:
            write(soak.told())
            raise SystemExit(128 + number)

        before = signal.signal(signal.SIGTERM, told_to_stop)
        try:
            soak.run()
        finally:
            signal.signal(signal.SIGTERM, before)
            over.set()
            for thread in beside:
                thread.join()
            result = soak.told()
            write(result)
        return result


def wait_for_evaluators(stack: Stack, count: int) -> None:
    """All of them: calm answers are not to wait for an interpreter that compiles itself. Raises TimeoutError."""
    deadline = time.monotonic() + START_S
    connection = connect(stack.redis_url)
    while (living := len(living_workers(connection))) < count:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{living} of {count} evaluators work after {START_S:g} s")
        time.sleep(1)


def _write_often(soak: Soak, write: Callable[[Mapping[str, Any]], None], over: threading.Event) -> None:
    while not over.wait(PARTIAL_S):
        write(soak.told())


def all_clients(load: Load, options: argparse.Namespace) -> list[Callable[[], None]]:
    """One for each thread."""
    return [
        *(partial(load.one_client, seed) for seed in range(options.clients)),
        *(partial(slow, load, seed) for seed in range(options.slow)),
        *(partial(vanishing, load, seed) for seed in range(options.vanishing)),
        *(partial(uploading, load, seed, options.upload_nnz) for seed in range(options.uploading)),
    ]


def under_load(load: Load, clients: Sequence[Callable[[], None]], trouble: Callable[[], None]) -> None:
    """Clients at work while there is trouble, and until each of their requests is answered."""
    threads = [threading.Thread(target=client, daemon=True) for client in clients]
    for thread in threads:
        thread.start()
    try:
        trouble()
    finally:
        load.stop.set()
        for thread in threads:
            thread.join()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=180, help="of load and kills")
    parser.add_argument(
        "--end-seconds", type=float, default=1200, help="at most, until jobs have ended; else they are lost"
    )
    parser.add_argument("--clients", type=int, default=12)
    parser.add_argument("--slow", type=int, default=4, help="clients that send by drops")
    parser.add_argument("--vanishing", type=int, default=4, help="clients that leave in the middle")
    parser.add_argument("--uploading", type=int, default=1, help="clients that send large matrices")
    parser.add_argument("--upload-nnz", type=int, default=300_000)
    parser.add_argument("--evaluators", type=int, default=2)
    parser.add_argument("--longest-pause", type=float, default=30, help="before a killed service is started again, s")
    parser.add_argument("--kills", type=int, default=14)
    parser.add_argument("--slow-kills", type=int, default=2, help="of generator and engine, each")
    parser.add_argument("--calm", type=int, default=6, help="jobs whose answers must be those of a calm run")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--state", type=Path, help="folder of the stack, which stays; default: one that goes")
    parser.add_argument("--into", type=Path, help="result file that the run is added to")
    parser.add_argument("--out", type=Path, default=RESULTS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
