"""The story of a course: judge, learn for a while, judge again, until the minutes are over; or learn, and judge once.

Everything runs as `sparsesmith up` runs it; the course posts workloads and looks on. It may be killed at any moment and
started again on its folder: trainer and jobs go on where they were, and so do the seconds of learning.
"""

import json
import math
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

import httpx

from services.trainer.course import curves
from services.trainer.course.admission import Admission
from services.trainer.course.curriculum import Curriculum
from services.trainer.course.gpu_use import GpuUse
from services.trainer.course.judging import Group, JudgingOptions, figures, judge
from services.trainer.course.ledger import Event, Ledger
from services.trainer.course.lessons import Lesson
from services.trainer.course.posting import Poster, PostingOptions
from sparsesmith.cli.local_stack import wait_until_ready
from sparsesmith.client import Client
from sparsesmith.errors import InvalidOption, SparsesmithError, Unavailable
from sparsesmith.runtime.ports import free_port
from sparsesmith.runtime.stack import Stack, StackOptions
from sparsesmith.transport.connection import connect
from sparsesmith.transport.policy_channel import PolicyChannel
from sparsesmith.transport.stream import RewardStream
from sparsesmith_proto.api import Fleet

POLL_S = 0.5
CRITIC_WARMUP = 1
"""Updates that the policy waits for its critic at most: a course of minutes has some tens in all."""
CACHED_BASELINES = 256
"""As an evaluator keeps by itself; of a course all workloads' are kept, which come again."""
TEMPERATURE = 1.0
"""Of samples, but for groups that explore."""
SETTLE_S = 90.0
"""Longest wait for a canary that is under way, before a judgement."""


@dataclass(frozen=True)
class CourseOptions:
    """What to learn, for how long, and where it is kept."""

    state: Path
    """Folder of one course: the stack's state, ledger.jsonl, curves.json, events/."""
    policy: Path
    arm: str = "rloo"
    settings: Mapping[str, str] = field(default_factory=dict)
    """Of the arm: settings of the trainer by name."""
    services: Mapping[str, str] = field(default_factory=dict)
    """Likewise: settings of evaluators and generator, as variables."""
    family_candidates: int = 0
    """Likewise: of each lesson, once; see `Arm`."""
    parent_every: int = 0
    """Likewise."""
    seed: int = 0
    seconds: float = 720.0
    """Of learning, all pieces together; 0: the policy is judged as it is."""
    piece_s: float = math.inf
    """Wall time after which this piece begins nothing more."""
    judge: Literal["always", "end"] = "always"
    """`always`: before, every `judge_every_s` and after; `end`: only when the seconds are over."""
    judge_every_s: float = 300.0
    judge_samples: int = 16
    judge_s: float = 180.0
    """Longest time of a judgement; what was not begun by then is left out."""
    group: int = 16
    batch_groups: int = 32
    """Of an update."""
    max_policy_age: int = 2
    at_once: int = 16
    """Lessons sampled or graded at a time."""
    num_evaluators: int = 1
    job_s: float = 120.0
    environment: Mapping[str, str] = field(default_factory=dict)
    """Of the services, beyond what the course sets."""
    changes: Mapping[str, str] = field(default_factory=dict)
    """Of these, what somebody asked for by name: part of what the course is."""

    @property
    def batch_records(self) -> int:
        return self.group * self.batch_groups


def run_course(
    options: CourseOptions,
    lessons: Sequence[Lesson],
    probes: Sequence[Lesson],
    tell: Callable[[str], None] = print,
) -> curves.Curves:
    """What is known of the course now. Raises InvalidOption where the folder is another course's."""
    _check_identity(options, lessons, probes)
    held_out = options.state / "held-out"
    held_out.write_text("".join(f"{lesson.pattern.digest}\n" for lesson in probes), encoding="utf-8")
    ledger, piece_ends = Ledger(options.state / "ledger.jsonl"), time.monotonic() + options.piece_s
    stack_options = StackOptions(
        options.state,
        free_port(),
        options.num_evaluators,
        environment=environment_of(options, held_out, len(lessons) + len(probes)),
    )
    with Stack(stack_options, on_event=tell) as stack, Client(stack.url) as client:
        wait_until_ready(client, stack, is_whole=True)
        ledger.write("began", ledger.seconds, at=time.time(), evaluators=options.num_evaluators)
        course = Course(options, stack, client, ledger, Curriculum(lessons, options.seed), probes, tell)
        try:
            course.judge_if_due()
            while ledger.seconds < options.seconds and time.monotonic() < piece_ends:
                course.learn(until_s=next_judgement_s(options, ledger.events("judged")), wall_end=piece_ends)
                course.judge_if_due()
                curves.write(options.state, course.curves())
        finally:  # Also of a piece that is interrupted.
            told = course.curves()
            curves.write(options.state, told)
    return told


class Course:
    """A course whose stack runs."""

    def __init__(
        self,
        options: CourseOptions,
        stack: Stack,
        client: Client,
        ledger: Ledger,
        curriculum: Curriculum,
        probes: Sequence[Lesson],
        tell: Callable[[str], None],
    ) -> None:
        self._options = options
        self._stack = stack
        self._client = client
        self._ledger = ledger
        self._curriculum = curriculum
        self._probes = probes
        self._tell = tell
        self._temperature = float(stack.environment()["SPARSESMITH_GENERATOR_TEMPERATURE"])
        self._updates = Tail(stack.state / "trainer" / "updates.jsonl", len(ledger.events("updated")))
        self._verdicts = Tail(stack.state / "trainer" / "verdicts.jsonl", len(ledger.events("vetted")))

    def learn(self, until_s: float, wall_end: float) -> None:
        """Post lessons until the seconds are over, and see what the trainer makes of them."""
        options, ledger = self._options, self._ledger
        connection = connect(self._stack.redis_url)
        admission = Admission(
            RewardStream(connection), PolicyChannel(connection), options.batch_records, options.max_policy_age
        )
        began, earlier = time.monotonic(), ledger.seconds
        end_s = min(until_s, options.seconds)

        def clock() -> float:
            return min(end_s, earlier + time.monotonic() - began)

        posting = PostingOptions(
            options.group, options.at_once, options.job_s, options.family_candidates, options.parent_every
        )
        poster = Poster(self._stack.url, self._curriculum, admission, ledger, posting, clock)
        before, gpus = self._evaluators(), GpuUse()
        poster.start()
        while clock() < end_s and time.monotonic() < wall_end:
            time.sleep(POLL_S)
            self._look(clock())
            gpus.look()
        poster.stop()
        seconds = time.monotonic() - began
        spent = self._evaluators()
        spent.subtract(before)
        of_all = {stage: round(each / (seconds * options.num_evaluators), 4) for stage, each in spent.items()}
        ledger.write(
            "learned",
            clock(),
            seconds=round(seconds, 3),
            generator_held=round(poster.held_s / (seconds * options.at_once), 4),
            evaluators_busy=of_all.pop("job"),
            evaluators_stages=of_all,
            gpus_busy=gpus.shares(),
        )
        connection.close()

    def judge_if_due(self) -> None:
        """Once at each of the moments of `CourseOptions.judge`."""
        if is_judgement_due(self._options, self._ledger.events("judged"), self._ledger.seconds):
            self._judge()

    def _judge(self) -> None:
        """The version in service, with the trainer standing still."""
        options = self._options
        end = time.monotonic() + SETTLE_S
        while self._client.policy().under_probe is not None and time.monotonic() < end:
            time.sleep(POLL_S)
        with stopped(self._stack.pids()["trainer"]):
            version, began = self._client.policy().version, time.monotonic()
            judging = JudgingOptions(
                samples=options.judge_samples,
                temperature=self._temperature,
                clients=options.at_once,
                seconds=options.judge_s,
            )
            groups = judge(self._stack.url, self._probes, judging, self._tell)
        self._look(self._ledger.seconds)
        self._write_judgement(version, groups, time.monotonic() - began)

    def _write_judgement(self, version: int, groups: Sequence[Group], seconds: float) -> None:
        if not any(each.rewards for each in groups):
            raise Unavailable(f"no workload could be judged; see {self._stack.log_file('generator')}")
        told = figures(groups)
        self._ledger.write(
            "judged",
            self._ledger.seconds,
            version=version,
            seconds=round(seconds, 3),
            figures=asdict(told),
            groups=[asdict(each) for each in groups],
        )
        self._tell(
            f"{self._ledger.seconds:.0f} s learned, version {version}: pass@1 {100 * told.pass_at_1:.0f} %, reward "
            f"{told.mean_reward:.3f}, speed of single samples {2**told.log_speed:.3f}x, best of "
            f"{most_samples(groups)} {2**told.best_of_n:.3f}x"
        )

    def _look(self, at_s: float) -> None:
        """What the trainer wrote since the last look."""
        for entry in self._updates.new():
            self._ledger.write("updated", at_s, **{name: value for name, value in entry.items() if name != "event"})
        for entry in self._verdicts.new():
            self._ledger.write("vetted", at_s, **entry)
        self._look_at_policy(at_s)

    def _look_at_policy(self, at_s: float) -> None:
        """What it cost to take a version up, once its first token is there."""
        try:
            taken = self._client.policy().taken
        except SparsesmithError:  # The generator is started again; what this version cost is not known then.
            return
        known = {int(each["version"]) for each in self._ledger.events("taken")}
        if taken is not None and taken.first_token_s is not None and taken.version not in known:
            self._ledger.write("taken", at_s, **taken.model_dump())

    def _evaluators(self) -> Counter[str]:
        """Seconds of all evaluators by stage; `job` is of whole jobs."""
        answer = httpx.get(f"{self._stack.url}/v1/fleet", timeout=30)
        told: Counter[str] = Counter()
        for each in Fleet.model_validate_json(answer.content).evaluators:
            told.update({"job": each.job_seconds, **each.stage_seconds})
        return told

    def curves(self) -> curves.Curves:
        return curves.curves_of(self._ledger, self._options.arm, self._options.seed)


def next_judgement_s(options: CourseOptions, judged: Sequence[Event]) -> float:
    """Seconds of learning at which the course stands still for one, if its own seconds are not over before."""
    if options.judge == "end":
        return options.seconds
    return float(judged[-1]["at_s"]) + options.judge_every_s if judged else 0.0


def is_judgement_due(options: CourseOptions, judged: Sequence[Event], seconds: float) -> bool:
    """After so many seconds of learning, and these judgements."""
    is_over = seconds >= options.seconds and (not judged or judged[-1]["at_s"] < seconds)
    return is_over or (options.judge == "always" and seconds >= next_judgement_s(options, judged))


def most_samples(groups: Sequence[Group]) -> int:
    """Samples of a workload."""
    return max((len(each.rewards) for each in groups), default=0)


class Tail:
    """Lines that a journal gained."""

    def __init__(self, path: Path, num_seen: int) -> None:
        self._path = path
        self._num_seen = num_seen

    def new(self) -> Iterator[Mapping[str, object]]:
        """Since the last call; a line that is not whole yet comes with the next."""
        text = self._path.read_text(encoding="utf-8") if self._path.exists() else ""
        lines = text.split("\n")[:-1]
        for line in lines[self._num_seen :]:
            self._num_seen += 1
            try:
                yield json.loads(line)
            except json.JSONDecodeError:  # Torn by a kill.
                continue


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """A process that stands still meanwhile."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def environment_of(options: CourseOptions, held_out: Path, num_workloads: int) -> dict[str, str]:
    """Of all services."""
    trainer = {
        "POLICY_DIR": str(options.policy),
        "BATCH_RECORDS": str(options.batch_records),
        "MIN_RECORDS": str(options.batch_records // 2),
        "MAX_POLICY_AGE": str(options.max_policy_age),
        "MINIBATCH_RECORDS": str(max(8, options.batch_records // 8)),
        "MICRO_BATCH_TOKENS": "16384",
        "CRITIC_WARMUP": str(CRITIC_WARMUP),
        "HELD_OUT_FILE": str(held_out.resolve()),
        **options.settings,
    }
    generator = {
        "POLICY_DIR": str(options.policy),
        "TEMPERATURE": str(TEMPERATURE),
        "MAX_RUNNING_JOBS": str(options.at_once),
        "SAMPLES_IN_FLIGHT": str(options.group),
        "BATCH_CANDIDATES": str(options.group),
        "ENGINE_MAX_SAMPLES": str(min(1024, options.group * options.at_once)),
    }
    return {
        **{f"SPARSESMITH_TRAINER_{name}": value for name, value in trainer.items()},
        **{f"SPARSESMITH_GENERATOR_{name}": value for name, value in generator.items()},
        "SPARSESMITH_EVALUATOR_CACHED_BASELINES": str(max(CACHED_BASELINES, num_workloads)),
        **options.environment,
        **options.services,
        **options.changes,
    }


def _check_identity(options: CourseOptions, lessons: Sequence[Lesson], probes: Sequence[Lesson]) -> None:
    """A folder is one course's: what was learned under other settings must not be gone on with."""
    identity = {
        "arm": options.arm,
        "settings": dict(options.settings),
        "seed": options.seed,
        "policy": str(options.policy.resolve()),
        "batch": [options.group, options.batch_groups, options.max_policy_age],
        "lessons": [lesson.name for lesson in lessons],
        "probes": [lesson.name for lesson in probes],
        **({"services": dict(options.services)} if options.services else {}),
        **({"family_candidates": options.family_candidates} if options.family_candidates else {}),
        **({"parent_every": options.parent_every} if options.parent_every else {}),
        **({"changes": dict(options.changes)} if options.changes else {}),
        **({"judge": options.judge} if options.judge != "always" else {}),
    }
    options.state.mkdir(parents=True, exist_ok=True)
    path = options.state / "course.json"
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else identity
    for name in dict.fromkeys((*identity, *known)):
        if known.get(name) != identity.get(name):
            raise InvalidOption(
                f"{options.state} is the folder of another course: {name} differs",
                field=name,
                value=_short(identity.get(name)),
            )
    path.write_text(json.dumps(identity) + "\n", encoding="utf-8")


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 100 else text[:100] + "..."
