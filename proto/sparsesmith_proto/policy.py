"""Hop trainer -> generator: new weights are ready; and back: what the generator's canary found of them."""

from typing import Literal

from pydantic import Field, model_validator

from sparsesmith_proto.kernel import Sampled, Workload
from sparsesmith_proto.message import Digest, Identifier, Message, PolicyVersion

MAX_VERDICTS = 64
"""The newest that a standing remembers."""


class PolicyAnnouncement(Message):
    """Weights as one safetensors file on a volume that trainer and generator share."""

    version: PolicyVersion
    weights: str = Field(min_length=1)
    """File name inside the shared policy folder (no directories)."""
    sha256: Digest
    step: int = Field(ge=0)
    """Updates behind these weights."""
    metrics: dict[str, float]
    """The trainer's measures of the update: policy_loss, kl_reference, clip_fraction, mean_reward, ..."""
    created_at: str
    """UTC, ISO 8601."""


class ProbeSample(Message):
    """A program that a version under probe wrote, with the prompt that it was drawn from."""

    workload: Workload
    sampled: Sampled


class ProbeQuestion(Message):
    """Generator -> trainer: how likely are these samples under the weights that you published as this version?"""

    probe_id: Identifier
    version: PolicyVersion
    samples: tuple[ProbeSample, ...] = Field(min_length=1)


class LogprobGap(Message):
    """Trainer -> generator: how far the engine's log-probabilities are from the trainer's, in nats."""

    probe_id: Identifier
    version: PolicyVersion
    per_token: float = Field(ge=0)
    """Mean absolute difference over telling tokens: those whose distribution has an entropy above 0.1 nat."""
    per_program: float = Field(ge=0)
    """Mean over programs of the absolute value of the sum of all its tokens' differences."""
    num_tokens: int = Field(ge=0)
    """Telling tokens."""


class ProbePrompt(Message):
    """What became of the samples of one probe prompt: three numbers a sample, in the order drawn."""

    name: Identifier
    compiled: tuple[bool, ...]
    passed: tuple[bool, ...]
    rewards: tuple[float, ...]

    @model_validator(mode="after")
    def _three_numbers_a_sample(self) -> "ProbePrompt":
        if not len(self.compiled) == len(self.passed) == len(self.rewards) > 0:
            raise ValueError("compiled, passed, rewards: not one each for at least one sample")
        return self


class Probe(Message):
    """What a version's probe samples were worth."""

    version: PolicyVersion
    probe_set: Identifier
    """Which prompts, of which shipped policy; probes compare only within one."""
    device: str
    """What graded it; probes compare only within one."""
    prompts: tuple[ProbePrompt, ...] = Field(min_length=1)
    gap: LogprobGap | None
    """None where the trainer could not be asked: it knows the shipped version and the one that it published last."""

    @property
    def num_samples(self) -> int:
        return sum(len(prompt.rewards) for prompt in self.prompts)

    @property
    def compile_share(self) -> float:
        return sum(sum(prompt.compiled) for prompt in self.prompts) / self.num_samples

    @property
    def pass_share(self) -> float:
        return sum(sum(prompt.passed) for prompt in self.prompts) / self.num_samples

    @property
    def mean_reward(self) -> float:
        return sum(sum(prompt.rewards) for prompt in self.prompts) / self.num_samples


class ProbeScores(Message):
    """A probe in five numbers."""

    num_samples: int = Field(ge=1)
    compile_share: float
    pass_share: float
    mean_reward: float
    logprob_gap: float | None
    """Nats a telling token, see LogprobGap.per_token."""
    logprob_gap_program: float | None
    """Nats a program, see LogprobGap.per_program."""


class VersionTaken(Message):
    """What it cost users and the engine to take the version in service up, in seconds."""

    version: PolicyVersion
    canary_s: float = Field(ge=0)
    """From its announcement's being seen to its acceptance."""
    waited_s: float = Field(ge=0)
    """That users' samples waited meanwhile."""
    paused_s: float = Field(ge=0)
    """That the engine stood still between two tokens while the weights were swapped; 0 of adapters."""
    first_token_s: float | None = Field(default=None, ge=0)
    """From its acceptance to the first token that was sampled under it; None: none was yet."""


class Verdict(Message):
    """What was decided of a version, once and for all unless an operator rolls back."""

    announcement: PolicyAnnouncement
    decision: Literal["accepted", "refused", "rolled_back"]
    reason: str
    decided_at: str
    """UTC, ISO 8601."""
    scores: ProbeScores | None = None
    """None where it never came to a probe: the file was bad, or an operator decided."""

    @property
    def version(self) -> PolicyVersion:
        return self.announcement.version


class PolicyStanding(Message):
    """Which version serves, and what was decided of the others."""

    serving: PolicyAnnouncement | None = None
    """None: the policy as shipped, version 0."""
    verdicts: tuple[Verdict, ...] = ()
    """Ascending versions, the newest 64."""
    probes: tuple[Probe, ...] = ()
    """Of the shipped version and of the one in service, where they were taken."""

    @property
    def serving_version(self) -> PolicyVersion:
        return 0 if self.serving is None else self.serving.version

    @property
    def newest_judged(self) -> PolicyVersion:
        """No version up to this one will be probed any more."""
        return max((verdict.version for verdict in self.verdicts), default=self.serving_version)

    @property
    def turned_down(self) -> frozenset[PolicyVersion]:
        """Versions that were refused or rolled back."""
        return frozenset(verdict.version for verdict in self.verdicts if verdict.decision != "accepted")

    def verdict(self, version: PolicyVersion) -> Verdict | None:
        return next((verdict for verdict in self.verdicts if verdict.version == version), None)

    def probe(self, version: PolicyVersion) -> Probe | None:
        return next((probe for probe in self.probes if probe.version == version), None)

    def with_verdict(self, verdict: Verdict, *probes: Probe) -> "PolicyStanding":
        """With this decision; an accepted version serves. `probes` take the places of those of their versions, and
        only the shipped version's and the serving one's are kept."""
        serving = verdict.announcement if verdict.decision == "accepted" else self.serving
        kept = {0, 0 if serving is None else serving.version}
        known = {probe.version: probe for probe in (*self.probes, *probes)}
        others = tuple(each for each in self.verdicts if each.version != verdict.version)
        verdicts = sorted((*others, verdict), key=lambda each: each.version)
        return PolicyStanding(
            serving=serving,
            verdicts=tuple(verdicts[-MAX_VERDICTS:]),
            probes=tuple(known[version] for version in sorted(kept & known.keys())),
        )

    def rolled_back(
        self, to: PolicyVersion, newest: PolicyAnnouncement | None, reason: str, now: str
    ) -> "PolicyStanding":
        """As an operator wants it: `to` serves, what is newer is turned down, an announcement not judged yet, too."""
        target = self.verdict(to)
        undone = [verdict for verdict in self.verdicts if verdict.version > to and verdict.decision == "accepted"]
        standing = PolicyStanding(
            serving=None if target is None else target.announcement, verdicts=self.verdicts, probes=self.probes
        )
        announcements = [verdict.announcement for verdict in undone]
        if newest is not None and newest.version > self.newest_judged:
            announcements.append(newest)
        for each in announcements:
            known = self.verdict(each.version)
            standing = standing.with_verdict(
                Verdict(
                    announcement=each,
                    decision="rolled_back",
                    reason=reason,
                    decided_at=now,
                    scores=None if known is None else known.scores,
                )
            )
        return standing
