"""A canary: samples of a version on the probe set, graded like any others, checked by the trainer, told as a `Probe`.

Not protected against: evaluators or a trainer that lie; a version that is worse only on what the probe set lacks.
"""

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from services.generator.policy.comparison import GapLimits
from services.generator.policy.engine import Engine, InvalidPrompt
from services.generator.policy.kind import PromptWriter
from services.generator.policy.probe_set import ProbePattern, probe_set
from services.generator.policy.sampling import SamplingOptions
from sparsesmith.errors import SparsesmithError, Unavailable
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.reward import milestone, standard_of
from sparsesmith_proto.evaluation import EvaluationJob, EvaluationReport
from sparsesmith_proto.kernel import (
    Candidate,
    CompileFailed,
    Evaluation,
    Passed,
    ProbeWritten,
    Rejected,
    Sampled,
    TimedOut,
)
from sparsesmith_proto.message import PolicyVersion
from sparsesmith_proto.policy import LogprobGap, Probe, ProbePrompt, ProbeQuestion, ProbeSample

ANSWER_POLL_S = 0.1


class NoVerdict(Exception):
    """The canary could not be finished: nothing is known of the version, and it is tried again later."""


@dataclass(frozen=True)
class CanaryOptions:
    """The fields of `GeneratorSettings` that concern a canary, where each is explained."""

    samples: int = 64
    hold_s: float = 60.0
    verdict_s: float = 300.0
    retry_s: float = 30.0
    gap: GapLimits = field(default_factory=GapLimits)


@dataclass(frozen=True)
class ProbeSamples:
    """Samples of one version on the probe set."""

    version: PolicyVersion
    samples: Mapping[str, tuple[Sampled, ...]]
    """By prompt."""
    programs: Mapping[str, tuple[str, ...]]
    """Their texts, in the same order."""


class Evaluations(Protocol):
    """Where candidates are graded."""

    async def grade(self, job: EvaluationJob) -> EvaluationReport:
        """The report, however long it takes. Cancelling the call cancels the job."""
        ...


class Patterns(Protocol):
    """Where evaluators and the trainer find patterns."""

    def put(self, pattern: Pattern) -> str:
        """Blocking. Raises Unavailable."""
        ...


class Trainer(Protocol):
    """Who knows what the log-probabilities should be."""

    def ask(self, question: ProbeQuestion) -> None:
        """Blocking. Raises Unavailable."""
        ...

    def answered(self, probe_id: str) -> LogprobGap | None:
        """Blocking; None while there is no answer. Raises Unavailable."""
        ...


class Canary:
    """Samples, grades and checks; what it costs is the engine's time for `samples` and one grading a different text."""

    def __init__(
        self,
        probe_set_id: str,
        writer: PromptWriter,
        sampling: SamplingOptions,
        evaluations: Evaluations,
        patterns: Patterns,
        trainer: Trainer,
        options: CanaryOptions,
    ) -> None:
        self.probe_set_id = probe_set_id
        self.options = options
        self._writer = writer
        self._sampling = sampling
        self._evaluations = evaluations
        self._patterns = patterns
        self._trainer = trainer

    async def sample(self, engine: Engine, num_samples: int) -> ProbeSamples:
        """From the weights that the engine has, at least `num_samples` in all. Raises EngineFailed, NoVerdict."""
        a_prompt, version = -(-num_samples // len(probe_set())), engine.version
        groups = await asyncio.gather(*(self._group(engine, version, asked, a_prompt) for asked in probe_set()))
        names = [asked.name for asked in probe_set()]
        return ProbeSamples(
            version,
            {name: tuple(sampled for sampled, _ in group) for name, group in zip(names, groups, strict=True)},
            {name: tuple(text for _, text in group) for name, group in zip(names, groups, strict=True)},
        )

    async def examine(self, taken: ProbeSamples, *, with_gap: bool = True, gpu: str | None = None) -> Probe:
        """What the samples are worth, on one kind of GPU; None: on any.

        Raises NoVerdict where evaluators or trainer do not answer in time.
        """
        try:
            async with asyncio.timeout(self.options.verdict_s):
                await asyncio.to_thread(self._keep_patterns)
                reports, gap = await asyncio.gather(
                    self._reports(taken, gpu), self._gap(taken) if with_gap else _no_gap()
                )
        except TimeoutError:
            missing = "evaluators or trainer did not answer"
            raise NoVerdict(f"{missing} within {self.options.verdict_s:g} s") from None
        except SparsesmithError as error:
            raise NoVerdict(error.message) from error
        return Probe(
            version=taken.version,
            probe_set=self.probe_set_id,
            device=f"{reports[0].device.kind} {reports[0].device.gpu}",
            prompts=tuple(
                _told(asked.name, taken.programs[asked.name], report)
                for asked, report in zip(probe_set(), reports, strict=True)
            ),
            gap=gap,
        )

    async def _group(
        self, engine: Engine, version: PolicyVersion, asked: ProbePattern, count: int
    ) -> list[tuple[Sampled, str]]:
        prompt = self._sampling.prompt(self._writer.encoder, asked.sample_seed)
        written = await asyncio.to_thread(self._writer.write, asked.pattern, asked.workload, prompt)
        temperature, most = self._sampling.temperature, self._sampling.max_program_tokens
        try:
            samples = await asyncio.gather(
                *(engine.sample(written, temperature=temperature, max_tokens=most) for _ in range(count))
            )
        except InvalidPrompt as error:
            raise NoVerdict(f"the policy cannot take the probe prompt {asked.name}: {error}") from error
        if not all({*sample.versions} == {version} and written.is_for(version) for sample in samples):
            raise NoVerdict(f"the engine took other weights while probe samples of version {version} were written")
        return [
            (
                Sampled(
                    prompt=prompt,
                    group=f"probe-{asked.name}",
                    token_ids=sample.token_ids,
                    logprobs=sample.logprobs,
                    temperature=temperature,
                    first_version=sample.versions[0],
                    last_version=sample.versions[-1],
                    asked=written.digest,
                ),
                sample.text,
            )
            for sample in samples
        ]

    def _keep_patterns(self) -> None:
        for asked in probe_set():
            self._patterns.put(asked.pattern)

    async def _reports(self, taken: ProbeSamples, gpu: str | None) -> Sequence[EvaluationReport]:
        run = secrets.token_hex(4)
        return await asyncio.gather(*(self._graded(taken, asked, run, gpu) for asked in probe_set()))

    async def _graded(self, taken: ProbeSamples, asked: ProbePattern, run: str, gpu: str | None) -> EvaluationReport:
        """Equal texts are graded once."""
        version, programs = taken.version, taken.programs[asked.name]
        job = EvaluationJob(
            job_id=f"probe-{version}-{asked.name}.{run}",
            search=f"probe-{version}.{run}",
            gpu=gpu,
            workload=asked.workload,
            candidates=tuple(
                Candidate(candidate_id=f"p{number}", program=program, origin=ProbeWritten(version=version))
                for number, program in enumerate(dict.fromkeys(programs))
            ),
            budget_s=self.options.verdict_s,
        )
        report = await self._evaluations.grade(job)
        if any(_was_not_reached(each, job) for each in report.evaluations):
            raise Unavailable(f"the evaluators had no time for all probe samples of {asked.name}", field="budget_s")
        return report

    async def _gap(self, taken: ProbeSamples) -> LogprobGap:
        workloads = {asked.name: asked.workload for asked in probe_set()}
        samples = [
            ProbeSample(workload=workloads[name], sampled=sampled)
            for name, group in taken.samples.items()
            for sampled in group[: -(-self.options.samples // len(workloads))]
        ]
        question = ProbeQuestion(probe_id=secrets.token_hex(8), version=taken.version, samples=tuple(samples))
        await asyncio.to_thread(self._trainer.ask, question)
        while (gap := await asyncio.to_thread(self._trainer.answered, question.probe_id)) is None:
            await asyncio.sleep(ANSWER_POLL_S)
        return gap


async def _no_gap() -> None:
    return None


def _told(name: str, programs: Sequence[str], report: EvaluationReport) -> ProbePrompt:
    outcomes = {each.candidate.written or each.candidate.program: each.outcome for each in report.evaluations}
    standard = standard_of(report.baselines, report.csr_bytes)
    found = [outcomes[program] for program in programs]
    return ProbePrompt(
        name=name,
        compiled=tuple(
            not (
                isinstance(outcome, Rejected | CompileFailed)
                or (isinstance(outcome, TimedOut) and outcome.stage == "compile")
            )
            for outcome in found
        ),
        passed=tuple(isinstance(outcome, Passed) for outcome in found),
        rewards=tuple(milestone(outcome, standard) for outcome in found),
    )


def _was_not_reached(evaluation: Evaluation, job: EvaluationJob) -> bool:
    outcome = evaluation.outcome
    return isinstance(outcome, TimedOut) and outcome.stage == "run" and outcome.limit_s == job.budget_s
