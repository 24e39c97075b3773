"""Samples for a search: a prompt for the pattern, a completion from the engine, a candidate with its provenance."""

import asyncio
import random
import secrets
from dataclasses import dataclass

from services.generator.policy.engine import Engine, EngineFailed, EnginePrompt, InvalidPrompt
from services.generator.policy.engine_host import EngineHost
from services.generator.policy.kind import PromptWriter
from services.generator.policy.sampling_gate import SamplingGate
from services.generator.task import TuningTask
from sparsesmith.errors import Unavailable
from sparsesmith.transport.gpu_kinds import GpuKind
from sparsesmith_proto.kernel import Candidate, Parent, Prompt, Sampled, Workload
from sparsesmith_proto.message import Architecture, EncoderName, Identifier

MAX_ATTEMPTS = 3
"""A sample whose engine dies is taken again on the next engine, one whose weights were swapped between its prompt and
its first token on the new ones: this often in all."""


@dataclass(frozen=True)
class Warmth:
    """What tokens of a group are drawn from."""

    temperature: float
    min_p: float = 0.0
    """No token that is less likely, at the temperature, than this share of the likeliest. A trainer does not learn from
    such samples: it knows whole distributions."""


@dataclass(frozen=True)
class SamplingOptions:
    """How samples are taken."""

    architecture: Architecture
    temperature: float
    max_program_tokens: int
    num_sms: int | None = None
    """Multiprocessors of the device; None: the policy is not told."""
    copy_bandwidth_gbs: float | None = None
    """Of the device; None: likewise."""
    exploring_share: float = 0.0
    """Of the groups, those sampled as `exploring` says: all samples of a group alike."""
    exploring: Warmth = Warmth(1.2)

    def warmth_of(self, sample_seed: int) -> Warmth:
        """Of the group with this prompt: chance, but the same for the same prompt."""
        explores = random.Random(sample_seed).random() < self.exploring_share
        return self.exploring if explores else Warmth(self.temperature)

    def prompt(self, encoder: EncoderName, sample_seed: int, gpu: GpuKind | None = None) -> Prompt:
        """For a kind of GPU; None: for the device of these options. What these options do not tell it is not told."""
        num_sms, bandwidth = self.num_sms, self.copy_bandwidth_gbs
        if gpu is not None:
            num_sms = num_sms and gpu.num_sms
            bandwidth = bandwidth and gpu.copy_bandwidth_gbs
        return Prompt(
            encoder=encoder,
            sample_seed=sample_seed,
            architecture=self.architecture if gpu is None else gpu.architecture,
            num_sms=num_sms,
            copy_bandwidth_gbs=bandwidth,
        )


@dataclass(frozen=True)
class Descent:
    """What samples are children of."""

    parent: Identifier
    """Candidate of the same search."""
    shown: Parent
    """Of it."""
    generation: int
    """Of the children: changes since the program that the search began with."""


class PolicySampler:
    """Samples from whichever engine serves."""

    def __init__(self, host: EngineHost, writer: PromptWriter, options: SamplingOptions) -> None:
        self.host = host
        self.writer = writer
        self.options = options
        self.gate = SamplingGate()
        """Closed while the engine holds a version under probe."""

    @property
    def is_broken(self) -> bool:
        """The engine could not be loaded."""
        return self.host.is_broken

    def writes(self, workload: Workload) -> bool:
        """Whether the policy can write programs for it: of a type and an operation that it knows, on a matrix."""
        writer = self.writer
        knows = writer.operations is None or workload.operation in writer.operations
        return workload.pattern is not None and knows and workload.element_type in writer.element_types

    def group(self, task: TuningTask, name: str, size: int, descent: Descent | None = None) -> "SampleGroup":
        """`size` samples of one prompt, which no other group has. `name`: of the group, in this search."""
        prompt = self.options.prompt(self.writer.encoder, secrets.randbits(63), task.gpu)
        if descent is not None:
            prompt = prompt.model_copy(update={"parent": descent.shown})
        return SampleGroup(self, task, f"{task.run_id}-{name}", prompt, size, descent)


class SampleGroup:
    """Samples of one prompt: their rewards are each other's baseline."""

    def __init__(
        self,
        sampler: PolicySampler,
        task: TuningTask,
        name: str,
        prompt: Prompt,
        size: int,
        descent: Descent | None = None,
    ) -> None:
        self._descent = descent
        self._sampler = sampler
        self._task = task
        self._name = name
        self._prompt = prompt
        self._size = size
        self._warmth = sampler.options.warmth_of(prompt.sample_seed)
        self._writing = asyncio.Lock()
        self._written: EnginePrompt | None = None

    @property
    def num_prompt_tokens(self) -> int:
        """0: no sample was begun yet."""
        return 0 if self._written is None else self._written.num_tokens

    async def sample(self, number: int) -> Candidate:
        """As `sampled`. Raises Unavailable where the prompt is too long, too."""
        try:
            return await self.sampled(f"s{number}")
        except InvalidPrompt as error:
            raise Unavailable(f"the policy cannot take this prompt: {error}", field="search") from error

    async def sampled(self, name: str) -> Candidate:
        """One sample, its prompt and its first token by one version. Waits for an engine that holds none under probe.
        `name`: of the candidate, in this search.

        Raises Unavailable where engines keep dying, InvalidPrompt where the prompt is too long.
        """
        options = self._sampler.options
        for _ in range(MAX_ATTEMPTS):
            engine = await self._sampler.host.serving()
            try:
                async with self._sampler.gate.passing():
                    written = await self._prompt_for(engine)
                    sample = await engine.sample(
                        written,
                        temperature=self._warmth.temperature,
                        max_tokens=options.max_program_tokens,
                        min_p=self._warmth.min_p,
                    )
            except EngineFailed:
                continue
            if not written.is_for(sample.versions[0]):
                continue
            origin = Sampled(
                prompt=self._prompt,
                group=self._name,
                group_size=self._size,
                token_ids=sample.token_ids,
                logprobs=sample.logprobs,
                temperature=self._warmth.temperature,
                min_p=self._warmth.min_p,
                first_version=sample.versions[0],
                last_version=sample.versions[-1],
                asked=written.digest,
                parent=None if self._descent is None else self._descent.parent,
                generation=0 if self._descent is None else self._descent.generation,
            )
            return Candidate(candidate_id=f"{self._task.run_id}-{name}", program=sample.text, origin=origin)
        raise Unavailable(f"no engine held out for a sample {MAX_ATTEMPTS} times", field="search", value="sample")

    async def _prompt_for(self, engine: Engine) -> EnginePrompt:
        """Written once a version: the encoder's weights change with the language model's."""
        async with self._writing:
            if self._written is None or not self._written.is_for(engine.version):
                self._written = await asyncio.to_thread(
                    self._sampler.writer.write, self._task.problem.pattern, self._task.order.workload, self._prompt
                )
            return self._written
