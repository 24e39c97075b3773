"""A policy learns while the stack's processes are killed: is each reward record used once, or counted under a reason?

    python -m benchmarks.service.learning_kills --kills 50 --seconds 600

The real stack of this machine and the toy course's policy (`services/trainer/course/toy.py`): engine, canary, interpreter,
trainer. Workloads are posted as a course posts them. Meanwhile processes are killed with SIGKILL, one after the other,
every kind of them at least once; generator and engine, which take long to return, twice at most; the trainer every other
time in the very moment in which it writes a checkpoint, where a record is closest to being lost or used twice. Then nothing
is killed any more until no record waits.

What became of a record is told by three that do not know of each other: the key that the evaluator's publication left (and the
reason that was noted there when the record was dropped), the ids in the trainer's checkpoint, and the journal, whose digests
say which of these ids each update learned from.

Ends with 1, and no result file, where a record was lost, used twice, used and dropped, used without having been published, or
where a sample that was graded for somebody left no record.
"""

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.origin import RESULTS, command, machine, source_commit
from benchmarks.service.killing import ENGINE, SLOW, Killer, process_ids
from services.trainer.course import toy
from services.trainer.course.admission import Admission
from services.trainer.course.course import CourseOptions, environment_of
from services.trainer.course.curriculum import Curriculum
from services.trainer.course.ledger import Ledger
from services.trainer.course.posting import Poster, PostingOptions
from services.trainer.online.checkpoints import CheckpointFolder, digest_of_records, policy_identity
from sparsesmith.cli.local_stack import wait_until_ready
from sparsesmith.client.clients import Client
from sparsesmith.errors import Unavailable
from sparsesmith.runtime.ports import free_port
from sparsesmith.runtime.stack import Stack, StackOptions
from sparsesmith.transport.connection import connect
from sparsesmith.transport.policy_channel import PolicyChannel
from sparsesmith.transport.stream import NO_FATE, RewardStream
from sparsesmith.transport.traces import job_of

Json = dict[str, Any]
SETTINGS = {
    "SPARSESMITH_TRAINER_MIN_RECORDS": "1",
    "SPARSESMITH_TRAINER_MAX_WAIT_S": "10",
    "SPARSESMITH_GENERATOR_CANARY_SAMPLES": "8",
}
"""Beyond the toy course's: what is left at the end is learned from, however little it is."""
QUIET_S = 30.0
"""Without a record that waits, or a new one: nothing more comes."""
SETTLE_S = 600.0
SLOW_KILLS = 2
"""Of generator and of engine, at most."""
CHECKPOINT_S = 45.0
"""Longest wait for a trainer to write a checkpoint; it is killed then all the same."""
LOOK_S = 0.001
ENDS_S = 5.0
"""Until everybody has seen that a process ended."""
JOB_S = 600.0
"""Longest time of a job: those that were begun before an engine was killed are answered after its return."""
WRITTEN = ("*.part", "*.pt")
"""A checkpoint that is being written; one that is there, and its records not acknowledged yet."""


@dataclass(frozen=True)
class Evidence:
    """What is known of all records at the end."""

    fates: Mapping[str, str]
    """By id: NO_FATE, or the reason for which it was dropped."""
    waiting: frozenset[str]
    used: Sequence[str]
    """As the checkpoint has them, in the order of updates."""
    updates: Sequence[Mapping[str, Any]]
    """The journal."""
    graded: Mapping[str, int]
    """Samples that were graded, by the job that somebody posted."""


@dataclass(frozen=True)
class Account:
    """The sums. All but the first five must be 0."""

    published: int
    used: int
    dropped: Mapping[str, int]
    """By reason; without those that came again after a checkpoint had learned from them."""
    came_again: int
    """Acknowledged without being used, since a checkpoint held them: killed in between."""
    waiting: int
    lost: int
    used_twice: int
    used_and_dropped: int
    used_unpublished: int
    updates_of_other_records: int
    """Whose digest is not that of the records which the checkpoint says they used."""
    graded_without_record: int

    @property
    def complaints(self) -> list[str]:
        names = ("lost", "used_twice", "used_and_dropped", "used_unpublished", "updates_of_other_records")
        found = {name: getattr(self, name) for name in (*names, "graded_without_record")}
        return [f"{name}: {count}" for name, count in found.items() if count]


def account_of(evidence: Evidence) -> Account:
    """Every record by its id."""
    published, used = set(evidence.fates), set(evidence.used)
    dropped = {name: fate for name, fate in evidence.fates.items() if fate not in (NO_FATE, "already_used")}
    learned = sum(int(each["records"]) for each in evidence.updates)
    records_of = Counter(job_of(name) for name in published)
    return Account(
        published=len(published),
        used=len(used),
        dropped=dict(sorted(Counter(dropped.values()).items())),
        came_again=sum(fate == "already_used" for fate in evidence.fates.values()),
        waiting=len(evidence.waiting - used),
        lost=len(published - used - dropped.keys() - evidence.waiting),
        used_twice=learned - len(used),
        used_and_dropped=len(used & dropped.keys()),
        used_unpublished=len(used - published),
        updates_of_other_records=_others(evidence),
        graded_without_record=sum(max(0, count - records_of[job]) for job, count in evidence.graded.items()),
    )


def _others(evidence: Evidence) -> int:
    found, begin = 0, 0
    for update in evidence.updates:
        end = begin + int(update["records"])
        found += digest_of_records(evidence.used[begin:end]) != update["records_sha256"]
        begin = end
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600, help="over which the kills are spread")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--evaluators", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="folder for the state; else a temporary one")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ss-kills-") as folder:
        result, account = learned_under_kills(options.keep or Path(folder), options)
    print(json.dumps(result, indent=1))
    if account.complaints:
        print("\n".join(account.complaints), file=sys.stderr)
        return 1
    folder_out = options.out / "cpu"
    folder_out.mkdir(parents=True, exist_ok=True)
    (folder_out / "learning-kills.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0


def learned_under_kills(folder: Path, options: argparse.Namespace) -> tuple[Json, Account]:
    """What is to be told. Raises Unavailable where the engine's process is not found."""
    print("making a policy that knows nine programs, four of them bad", flush=True)
    toy.make_policy(folder)
    course = replace(
        toy.course(folder, options.seconds), batch_groups=2, num_evaluators=options.evaluators, job_s=JOB_S
    )
    began = time.monotonic()
    with Stack(_stack_options(course), on_event=lambda told: print(told, flush=True)) as stack:
        with Client(stack.url) as client:
            wait_until_ready(client, stack, is_whole=True)
        connection = connect(stack.redis_url)
        stream, ledger = RewardStream(connection), Ledger(folder / "ledger.jsonl")
        poster = _poster(course, stack, ledger, began)
        poster.start()
        try:
            kills, at_checkpoints = killed(stack, options)
        finally:
            poster.stop()
        updates_meanwhile = len(_journal(stack))
        settled(stream)
        fates, waiting = stream.fates(), frozenset(stream.waiting())
        standing = PolicyChannel(connection).standing()
        connection.close()
    newest = CheckpointFolder(folder / "trainer" / "checkpoints", 2).newest(policy_identity(course.policy))
    used = () if newest is None else newest.used
    graded = {str(each["job"]): len(each["rewards"]) for each in ledger.events("graded")}
    updates = _journal(stack)
    account = account_of(Evidence(fates, waiting, used, updates, graded))
    decisions = Counter(each.decision for each in standing.verdicts)
    result = {
        "kind": "learning-kills",
        "commit": source_commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "command": command("benchmarks.service.learning_kills"),
        "kills": dict(sorted(kills.items())),
        "trainer_killed_at_a_checkpoint": at_checkpoints,
        "seconds": round(time.monotonic() - began, 1),
        "jobs": {"posted": len(ledger.events("posted")), "graded": len(graded)},
        "updates": {"while killing": updates_meanwhile, "in all": len(updates)},
        "versions": dict(sorted(decisions.items())),
        "records": asdict(account),
    }
    return result, account


def _stack_options(course: CourseOptions) -> StackOptions:
    held_out = course.state / "held-out"
    held_out.write_text("", encoding="utf-8")
    environment = environment_of(course, held_out, len(toy.lessons())) | SETTINGS
    return StackOptions(course.state, free_port(), course.num_evaluators, environment=environment)


def _poster(course: CourseOptions, stack: Stack, ledger: Ledger, began: float) -> Poster:
    connection = connect(stack.redis_url)
    admission = Admission(
        RewardStream(connection), PolicyChannel(connection), course.batch_records, course.max_policy_age
    )
    posting = PostingOptions(course.group, course.at_once, course.job_s)
    curriculum = Curriculum(toy.lessons(), course.seed)
    return Poster(stack.url, curriculum, admission, ledger, posting, lambda: time.monotonic() - began)


def killed(stack: Stack, options: argparse.Namespace) -> tuple[Counter[str], int]:
    """One after the other, at moments that nobody knows before; by kind, and the trainer's at a checkpoint."""
    chosen, at_checkpoints = random.Random(options.seed), 0
    running = sorted(process_ids(stack))
    if ENGINE not in running:
        raise Unavailable("everything works, and the engine's own process is not found: nobody could kill it")
    killer = Killer(stack, running, chosen, SLOW_KILLS)
    for kind in schedule(running, options.kills, chosen):
        time.sleep(chosen.uniform(0, 2 * options.seconds / options.kills))
        is_due = kind == "trainer" and killer.killed["trainer"] % 2 == 0
        if is_due and killed_at_checkpoint(stack, chosen.choice(WRITTEN), CHECKPOINT_S):
            at_checkpoints += 1
            killer.killed[kind] += 1
            print(f"killed {kind} at a checkpoint", flush=True)
        else:
            killer.kill(kind)
        if kind in SLOW:
            returned(stack)
    return killer.killed, at_checkpoints


def schedule(kinds: Sequence[str], count: int, chosen: random.Random) -> list[str]:
    """Whom to kill, in this order: each kind once, the others by chance. Raises ValueError for fewer kills than kinds."""
    if count < len(kinds):
        raise ValueError(f"--kills {count}: there are {len(kinds)} kinds of processes, and each is killed")
    scheduled = [*kinds]
    while len(scheduled) < count:
        left = [kind for kind in kinds if kind not in SLOW or scheduled.count(kind) < SLOW_KILLS]
        scheduled.append(chosen.choice(left))
    chosen.shuffle(scheduled)
    return scheduled


def returned(stack: Stack) -> None:
    """Once the engine samples again: what is killed before that is killed while nothing is learned."""
    time.sleep(ENDS_S)
    with Client(stack.url) as client:
        wait_until_ready(client, stack, is_whole=True)


def killed_at_checkpoint(stack: Stack, name: str, seconds: float) -> bool:
    """Kills the trainer as a file of this kind appears among its checkpoints; False: none did."""
    folder = stack.state / "trainer" / "checkpoints"
    before, end = set(folder.glob(name)), time.monotonic() + seconds
    while time.monotonic() < end:
        if set(folder.glob(name)) - before:
            with suppress(ProcessLookupError, KeyError):
                os.kill(stack.pids()["trainer"], signal.SIGKILL)
                return True
        time.sleep(LOOK_S)
    return False


def settled(stream: RewardStream, clock: Callable[[], float] = time.monotonic) -> None:
    """Until no record waits and none comes. Raises TimeoutError."""
    end, quiet_since, known = clock() + SETTLE_S, clock(), -1
    while clock() < quiet_since + QUIET_S:
        if clock() > end:
            raise TimeoutError(f"{stream.length()} records still wait after {SETTLE_S:g} s")
        time.sleep(1)
        with suppress(Unavailable):
            count = len(stream.fates())
            if count != known or stream.length():
                known, quiet_since = count, clock()


def _journal(stack: Stack) -> list[Json]:
    path = stack.state / "trainer" / "updates.jsonl"
    lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]


if __name__ == "__main__":
    sys.exit(main())
