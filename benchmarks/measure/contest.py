"""One workload tuned and raced against every routine of the library, with the seconds that each stage took.

The same parts as in production: the tuner proposes, `evaluate_kernel` grades, the race chooses finalists, which are
timed again in turns with the best routine. What a job queue adds is not in these seconds (see `end_to_end`).
"""

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from benchmarks.measure.invention import Kinship, digest
from benchmarks.measure.preparation import Prepared
from services.evaluator.candidates import Parsed, parse_text
from services.evaluator.checking.correctness import Correct
from services.evaluator.compiling.compiler import Compiled
from services.evaluator.device import RunFailure, Timing
from services.evaluator.evaluation import evaluate_kernel
from services.evaluator.grading import Outcomes, programs_of, run_finals
from services.evaluator.isolation.sandbox import DeviceProcess
from services.evaluator.isolation.workbench import Built, FinalTimes, Workbench
from services.evaluator.race import Race
from services.evaluator.stages import Stages
from sparsesmith.families import FAMILIES
from sparsesmith.operations import Problem
from sparsesmith.program.program import KernelProgram
from sparsesmith_proto.evaluation import LaunchProfile
from sparsesmith_proto.kernel import (
    AdverseTiming,
    Baselines,
    Candidate,
    DeviceDescription,
    Evaluation,
    FromFamily,
    Passed,
    Rejected,
    Repeats,
    UserWritten,
)

BATCH = 8
BUILD_AHEAD_S = 30
AS_GOOD = 1.01
"""A program this near to the end's time is what a search that ended there would have been content with."""
COMPILE_S = 120
"""Longest wait for the programs of a batch."""


@dataclass(frozen=True)
class ClockedWorkbench:
    """A workbench that keeps account of its seconds."""

    workbench: Workbench
    seconds: Stages

    def description(self) -> DeviceDescription:
        return self.workbench.description()

    def baselines(self) -> Baselines:
        with self.seconds.of("baselines"):
            return self.workbench.baselines()

    def build(self, program: KernelProgram) -> Built | Rejected | RunFailure:
        with self.seconds.of("build"):
            return self.workbench.build(program)

    def build_first(self, program: KernelProgram) -> Built | Rejected | RunFailure:
        with self.seconds.of("build"):
            return self.workbench.build_first(program)

    def build_ahead(self, programs: Sequence[KernelProgram], limit_s: float) -> None:
        with self.seconds.of("build"):
            self.workbench.build_ahead(programs, limit_s)

    def draw(self) -> None:
        with self.seconds.of("draw"):
            self.workbench.draw()

    def check(self, kernel_id: str, program: KernelProgram, binary: Compiled) -> Correct | Rejected | RunFailure:
        with self.seconds.of("check"):
            return self.workbench.check(kernel_id, program, binary)

    def time(self, kernel_id: str, vouched_to_us: float = math.inf) -> Timing | RunFailure:
        with self.seconds.of("time"):
            return self.workbench.time(kernel_id, vouched_to_us)

    def time_adverse(self, kernel_id: str) -> AdverseTiming | RunFailure | None:
        with self.seconds.of("time"):
            return self.workbench.time_adverse(kernel_id)

    def retime(self, kernel_ids: Sequence[str], routine: str) -> FinalTimes | RunFailure:
        with self.seconds.of("finals"):
            return self.workbench.retime(kernel_ids, routine)

    def draw_first(self) -> None:
        with self.seconds.of("draw"):
            self.workbench.draw_first()

    def check_first(self, program: KernelProgram, binary: Compiled) -> Correct | Rejected | RunFailure:
        with self.seconds.of("check"):
            return self.workbench.check_first(program, binary)

    def repeat(self, program: KernelProgram, binary: Compiled) -> Repeats | Rejected | RunFailure:
        with self.seconds.of("check"):
            return self.workbench.repeat(program, binary)

    def profile(self, kernel_id: str, program: KernelProgram, binary: Compiled) -> tuple[LaunchProfile, ...]:
        with self.seconds.of("check"):
            return self.workbench.profile(kernel_id, program, binary)

    def unload(self, kernel_id: str) -> None:
        with self.seconds.of("check"):
            self.workbench.unload(kernel_id)


@dataclass(frozen=True)
class Contest:
    """What came of a workload."""

    baselines: Baselines
    families: tuple[Evaluation, ...]
    policy: tuple[Evaluation, ...]
    without_overlap: Evaluation | None
    """The best program of a family, if it starts early, in the form that waits for the launch before it to end."""
    seconds: dict[str, float]
    """By stage, of the families' search; the policy's samples come after it."""
    search_s: float
    """Wall, from opening the workload to the end of the families' finals."""
    graded_at_s: dict[str, float]
    """Seconds of the device, the library's routines included, until each program of the families had been graded."""

    codes: Mapping[str, str] = field(default_factory=dict)
    """Text of a sample that passed -> digest of its machine code."""
    family_codes: frozenset[str] = frozenset()
    """Digests of the families' programs that were compiled, the nearest to the samples among them."""

    @property
    def winner_at_s(self) -> float | None:
        """Until the program that was the fastest in the end had been graded; None where none passed."""
        passed = self._graded()
        return min(passed)[-1] if passed else None

    @property
    def as_good_at_s(self) -> float | None:
        """Until that one had been, or another whose time is at most AS_GOOD times its; None where none passed."""
        passed = self._graded()
        if not passed:
            return None
        (_, winner_us), winner_at_s = min(passed)
        return min(winner_at_s, *(at_s for (_, us), at_s in passed if us <= AS_GOOD * winner_us))

    def _graded(self) -> list[tuple[tuple[bool, float], float]]:
        """Of each program that passed its standing, and when it had been graded."""
        return [
            (each.outcome.standing, self.graded_at_s[each.candidate.program])
            for each in self.families
            if isinstance(each.outcome, Passed)
        ]


def hold(
    prepared: Prepared,
    samples: tuple[Candidate, ...],
    process: DeviceProcess,
    kin: Mapping[str, Kinship] | None = None,
) -> Contest:
    """Tunes by families, then grades a policy's samples, each field with its own finals. `kin`: of the samples' texts.

    Raises what the evaluator raises where the workload does not fit the device or the device is lost.
    """
    seconds, began = Stages(), time.monotonic()
    workbench = ClockedWorkbench(process.open(Problem(prepared.workload, prepared.matrix.pattern)), seconds)
    with prepared.ahead:
        baselines = workbench.baselines()
        workbench.draw()
        families, baselines, graded_at_s = _tune(prepared, workbench, baselines)
        search_s, spent = time.monotonic() - began, {stage: ms / 1e3 for stage, ms in seconds.ms.items()}
        without_overlap = _without_overlap(families, prepared, workbench, baselines)
        policy: tuple[Evaluation, ...] = ()
        if samples:
            policy = _graded_apart(samples, prepared, workbench, baselines)
        codes = _codes(_passed(policy), prepared)
        compared = _passed(each for each in policy if _kind(each, kin) == "family")
        nearest = {each.nearest for each in (kin or {}).values() if each.nearest}
        family_codes = _codes([*_passed(families), *compared, *nearest], prepared) if samples else {}
    return Contest(
        baselines,
        families,
        policy,
        without_overlap,
        spent,
        search_s,
        graded_at_s,
        codes,
        frozenset(family_codes.values()),
    )


def _kind(evaluation: Evaluation, kin: Mapping[str, Kinship] | None) -> str | None:
    known = (kin or {}).get(as_written(evaluation.candidate))
    return None if known is None else known.kind


def as_written(candidate: Candidate) -> str:
    """Its text before its numbers were filled in."""
    return candidate.written or candidate.program


def _passed(evaluations: Iterable[Evaluation]) -> list[str]:
    return [each.candidate.program for each in evaluations if isinstance(each.outcome, Passed)]


def _codes(texts: Iterable[str], prepared: Prepared) -> dict[str, str]:
    """Digests of machine code by text; of what compiles."""
    programs = {text: parse_text(text, prepared.workload) for text in dict.fromkeys(texts)}
    prepared.ahead.start(Parsed(_unnamed(text), program) for text, program in programs.items())
    found = {}
    for text, program in programs.items():
        binary = None if isinstance(program, Rejected) else prepared.ahead.result(program)
        if isinstance(binary, Compiled):
            found[text] = digest(binary.cubin or binary.ptx)
    return found


def _unnamed(text: str) -> Candidate:
    return Candidate(candidate_id="compiled", program=text, origin=UserWritten())


def _tune(
    prepared: Prepared, workbench: ClockedWorkbench, baselines: Baselines
) -> tuple[tuple[Evaluation, ...], Baselines, dict[str, float]]:
    """The search to its end; the next batch is chosen and compiled while one is graded."""
    race, outcomes = Race(baselines.best_routine().timing.median_us), Outcomes()
    graded_at_s: dict[str, float] = {}
    entered: list[Parsed] = []
    batch = prepared.first
    with ThreadPoolExecutor(1) as chooser:
        while batch:
            entered += batch
            upcoming = chooser.submit(_chosen, prepared)
            for program in _graded(batch, prepared, workbench, race, outcomes):
                graded_at_s.setdefault(program, device_s(workbench.seconds))
            chosen = upcoming.result()
            _tell(batch, outcomes, prepared)
            batch = chosen or _chosen(prepared)
    outcomes, baselines = run_finals(race, workbench, entered, outcomes, baselines)
    return _evaluations(entered, outcomes), baselines, graded_at_s


def device_s(seconds: Stages) -> float:
    """What the device's process has worked so far."""
    return sum(ms for stage, ms in seconds.ms.items() if stage != "compile_wait") / 1e3


def _chosen(prepared: Prepared) -> tuple[Parsed, ...]:
    """The search's next batch, given to the compilers."""
    return prepared.started(prepared.search.next_batch(BATCH))


def _tell(batch: Sequence[Parsed], outcomes: Outcomes, prepared: Prepared) -> None:
    for candidate in (each.candidate for each in batch):
        outcome = outcomes.get(candidate.program)
        if outcome is not None:
            prepared.search.tell(
                candidate, outcome.timing.median_us if isinstance(outcome, Passed) else outcome.outcome
            )


def _without_overlap(
    families: Sequence[Evaluation], prepared: Prepared, workbench: ClockedWorkbench, baselines: Baselines
) -> Evaluation | None:
    passed = [(each.outcome.standing, each) for each in families if isinstance(each.outcome, Passed)]
    if not passed:
        return None
    origin = min(passed, key=lambda pair: pair[0])[1].candidate.origin
    if not isinstance(origin, FromFamily) or origin.parameters["dependency"] == "full":
        return None
    parameters = {**origin.parameters, "dependency": "full"}
    text = FAMILIES[origin.family].render(parameters, prepared.plan.element_type, prepared.plan.num_dense_cols)
    candidate = Candidate(
        candidate_id="without-overlap", program=text, origin=FromFamily(family=origin.family, parameters=parameters)
    )
    return next(iter(_graded_apart((candidate,), prepared, workbench, baselines)), None)


def _graded_apart(
    candidates: tuple[Candidate, ...], prepared: Prepared, workbench: ClockedWorkbench, baselines: Baselines
) -> tuple[Evaluation, ...]:
    """Candidates that do not compete with the search's: a race and finals of their own."""
    race, outcomes = Race(baselines.best_routine().timing.median_us), Outcomes()
    parsed = prepared.started(candidates)
    for _ in _graded(parsed, prepared, workbench, race, outcomes):
        pass
    outcomes, _ = run_finals(race, workbench, parsed, outcomes, baselines)
    return _evaluations(parsed, outcomes)


def _graded(
    batch: Sequence[Parsed], prepared: Prepared, workbench: ClockedWorkbench, race: Race, outcomes: Outcomes
) -> Iterator[str]:
    """Grades a batch as its programs come out of the compilers; the text of each when it is done."""
    workbench.build_ahead(programs_of(batch), BUILD_AHEAD_S)
    compiled = iter(prepared.ahead.as_compiled(batch, time.monotonic() + COMPILE_S))
    while True:
        with workbench.seconds.of("compile_wait"):
            parsed = next(compiled, None)
        if parsed is None:
            return
        outcomes[parsed.candidate.program] = evaluate_kernel(parsed, prepared.ahead.result, workbench, race)
        yield parsed.candidate.program


def _evaluations(entered: Sequence[Parsed], outcomes: Outcomes) -> tuple[Evaluation, ...]:
    candidates = (each.candidate for each in entered)
    return tuple(
        Evaluation(candidate=each, outcome=outcomes[each.program]) for each in candidates if each.program in outcomes
    )
