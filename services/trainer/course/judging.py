"""What a policy's samples are worth: fresh ones, on workloads that nothing was learned from."""

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from services.trainer.course.lessons import Lesson
from sparsesmith.client import Client
from sparsesmith.errors import SparsesmithError, Unavailable
from sparsesmith.reward import milestone, standard_of
from sparsesmith_proto.api import FromPolicy, KernelReport, TriedCandidate
from sparsesmith_proto.kernel import Passed

FRESH = {"Cache-Control": "no-cache"}
MAX_DRAWS = 12
"""Groups of a workload that are asked for at most, where some are sampled warmer than they are judged."""


@dataclass(frozen=True)
class Group:
    """Samples of one workload, graded."""

    lesson: str
    rewards: tuple[float, ...]
    """`milestone`, whatever the trainer learns from: what is compared must be the same for all."""
    passed: tuple[bool, ...]
    log_speeds: tuple[float, ...]
    """Binary logarithm of the speed over the best routine; 0 of those that failed: the library's is used then."""
    num_different: int
    """Programs that passed and are not the same text."""
    versions: tuple[int, ...]
    temperature: float | None = None
    """At which all of them were sampled, without leaving out tokens; None: some were not, or it is not known."""

    @property
    def best(self) -> float:
        """Of `log_speeds`, at least the library's."""
        return max(0.0, *self.log_speeds)


@dataclass(frozen=True)
class Figures:
    """Of a judgement: means over workloads, each of which counts alike."""

    workloads: int
    samples: int
    pass_at_1: float
    mean_reward: float
    log_speed: float
    """Of single samples."""
    best_of_n: float
    """Likewise binary logarithms, of the fastest of each workload's samples."""
    different: float
    """Different passing programs of a workload."""


def grouped(lesson: Lesson, report: KernelReport, tried: Sequence[TriedCandidate]) -> Group:
    """What became of a job's samples."""
    pattern = lesson.pattern
    standard = standard_of(report.baselines, 8 * pattern.nnz + 4 * (pattern.num_rows + 1))
    outcomes = [each.outcome for each in tried]
    speeds = [
        math.log2(standard.best_us / max(outcome.timing.median_us, 1e-3)) if isinstance(outcome, Passed) else 0.0
        for outcome in outcomes
    ]
    return Group(
        lesson=lesson.name,
        rewards=tuple(round(milestone(outcome, standard), 4) for outcome in outcomes),
        passed=tuple(isinstance(outcome, Passed) for outcome in outcomes),
        log_speeds=tuple(round(speed, 4) for speed in speeds),
        num_different=len({each.program for each in tried if isinstance(each.outcome, Passed)}),
        versions=report.search.policy_versions,
        temperature=temperature_of(tried),
    )


def temperature_of(tried: Sequence[TriedCandidate]) -> float | None:
    """Of samples that were all drawn alike from whole distributions; None of others, and without any."""
    drawn = {(each.origin.temperature, each.origin.min_p) for each in tried if isinstance(each.origin, FromPolicy)}
    temperature, min_p = drawn.pop() if len(drawn) == 1 else (None, 0.0)
    return None if min_p else temperature


def figures(groups: Sequence[Group]) -> Figures:
    """Raises ValueError without any group that has samples."""
    told = [each for each in groups if each.rewards]
    if not told:
        raise ValueError("nothing was judged")
    return Figures(
        workloads=len(told),
        samples=sum(len(each.rewards) for each in told),
        pass_at_1=_mean([_mean([float(passed) for passed in each.passed]) for each in told]),
        mean_reward=_mean([_mean(each.rewards) for each in told]),
        log_speed=_mean([_mean(each.log_speeds) for each in told]),
        best_of_n=_mean([each.best for each in told]),
        different=_mean([float(each.num_different) for each in told]),
    )


@dataclass(frozen=True)
class JudgingOptions:
    """How a policy is judged."""

    samples: int
    """Of a workload."""
    temperature: float
    """At which all tokens were sampled: where a share of the groups explores, others are asked for in their place."""
    clients: int
    """Workloads at a time."""
    seconds: float
    """After which no job is begun, and the longest time of one."""


def judge(
    url: str, lessons: Sequence[Lesson], options: JudgingOptions, tell: Callable[[str], None] = print
) -> list[Group]:
    """In the order of the lessons; those that could not be graded, or not begun in time, are told and left out."""
    found, waiting, lock = dict[str, Group](), iter(lessons), threading.Lock()
    deadline = threading.Event()
    timer = threading.Timer(options.seconds, deadline.set)
    timer.start()

    def work() -> None:
        with Client(url, FRESH) as client:
            while not deadline.is_set():
                with lock:
                    lesson = next(waiting, None)
                if lesson is None:
                    return
                try:
                    group = sampled(client, lesson, options, deadline.is_set)
                except SparsesmithError as error:
                    tell(f"{lesson.name} is not judged: {error.message}")
                    continue
                with lock:
                    found[lesson.name] = group

    threads = [threading.Thread(target=work) for _ in range(options.clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    timer.cancel()
    return [found[lesson.name] for lesson in lessons if lesson.name in found]


def sampled(client: Client, lesson: Lesson, options: JudgingOptions, is_late: Callable[[], bool]) -> Group:
    """Raises SparsesmithError; Unavailable where no group is of the temperature."""
    asked = lesson.options(options.samples, options.seconds)
    for _ in range(MAX_DRAWS):
        job = client.submit(f"{lesson.name.split(':')[0]}.npz", lesson.file(), asked)
        group = grouped(lesson, client.wait(job.job_id), client.candidates(job.job_id))
        if group.temperature == options.temperature or not group.rewards:
            return group
        if is_late():
            break
    raise Unavailable(
        f"no group was sampled at temperature {options.temperature} and with all tokens, of as many as there was time "
        f"for, {MAX_DRAWS} at most",
        field="temperature",
        limit=options.temperature,
    )


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
