"""From reward records to tensors. B sequences, T text tokens; `*_BT` is aligned with the text's tokens.

Prompts are rebuilt from the stored patterns. Programs are never tokenised again: what was sampled is in the record.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, Literal, Protocol, Self

import torch
from torch import Tensor

from services.trainer.online.prompts import Asked, Prompts
from services.trainer.policy_model import TextBatch, text_batch
from sparsesmith.errors import NotFound, Unavailable
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.policy.encoder import PromptBatch, collate
from sparsesmith_proto.kernel import Passed, Prompt, Sampled, Workload
from sparsesmith_proto.message import Digest, EncoderName, PolicyVersion
from sparsesmith_proto.reward import RewardRecord

Skip = Literal[
    "already_used",
    "not_sampled",
    "other_encoder",
    "truncated",
    "turned_down",
    "held_out",
    "stale",
    "unknown_version",
    "no_reward",
    "bad_logprob",
    "unknown_token",
    "pattern_gone",
    "pattern_damaged",
    "too_long",
    "other_prompt",
    "malformed",
]
"""Why a record is not learned from.

`already_used`: a checkpoint learned from it, and it came again because the acknowledgement was lost.
`truncated`: sampled without unlikely tokens (min-p), so that its log-probabilities are not of a whole distribution.
`turned_down`: partly sampled by a version that was refused or rolled back. `held_out`: of a matrix that the policy is
judged by. `stale`: sampled too many versions ago.
`unknown_version`: sampled by weights that this trainer never made. `no_reward`: not rewarded under the scheme in use.
`bad_logprob`: above 0.
`pattern_gone`: expired in the store. `other_prompt`: what was asked in words is not what we would ask: another
release, tokenizer or chat template. `malformed`: not of the contract, in which every number is finite.
"""

LAWFUL: frozenset[Skip] = frozenset({"already_used", "not_sampled", "held_out", "stale", "truncated", "turned_down"})
"""Reasons that occur where everything is in order; records that are skipped for others are kept as dead letters."""

EXPECTED: frozenset[Skip] = LAWFUL - {"stale", "truncated"}
"""Of these, reasons for which all records of a while may be skipped: programs of families, a judgement, a version that
was refused. Where all are stale or truncated, a trainer never learns."""

MOST_LOGPROB = 1e-3
"""A probability of 1, and what rounding adds to it."""

KEPT_PROMPTS = 256
"""That were rebuilt last: the samples of a group have one, and records come again while their group waits."""


class Patterns(Protocol):
    """Where patterns are kept."""

    def get(self, digest: Digest) -> Pattern:
        """Raises NotFound where it is gone, Unavailable naming the field `pattern` where it is damaged."""
        ...


@dataclass(frozen=True)
class BatchRules:
    """What the policy in training can learn from."""

    encoder: EncoderName
    vocabulary: int
    """Token ids must be below."""
    max_text_tokens: int
    max_policy_age: int
    """Versions."""
    reward: str
    """Scheme."""
    held_out: frozenset[Digest] = frozenset()
    """Patterns that nothing is learned from."""
    imitates: bool = False
    """Whether programs that the policy did not write are of use."""


@dataclass(frozen=True)
class UsableRecord:
    """A record with everything that a batch needs of it."""

    record: RewardRecord
    sampled: Sampled
    asked: Asked
    reward: float

    @property
    def median_us(self) -> float | None:
        """Of the program; None: it failed."""
        outcome = self.record.outcome
        return outcome.timing.median_us if isinstance(outcome, Passed) else None

    @property
    def group(self) -> tuple[str, str]:
        """Rewards compare only within a prompt, and never a measured with an estimated one."""
        return self.sampled.group, self.record.device.kind


class RecordReader:
    """Decides which records can be learned from, and rebuilds their prompts."""

    def __init__(self, patterns: Patterns, prompts: Prompts, rules: BatchRules) -> None:
        self.imitates = rules.imitates
        self._patterns = patterns
        self._prompts = prompts
        self._rules = rules
        self._rebuilt = lru_cache(KEPT_PROMPTS)(self._rebuild)

    def read(
        self, record: RewardRecord, version: PolicyVersion, turned_down: Collection[PolicyVersion] = ()
    ) -> UsableRecord | Skip:
        """The record ready for a batch at this policy version, or why not. Raises Unavailable without a store.

        `turned_down`: versions that never served, or serve no more; they do not count in a record's age.
        """
        rules, sampled = self._rules, record.candidate.origin
        if not isinstance(sampled, Sampled):
            return "not_sampled"
        if sampled.prompt.encoder != rules.encoder:
            return "other_encoder"
        if record.workload.pattern in rules.held_out:
            return "held_out"
        if sampled.min_p:
            return "truncated"
        if (untimely := self._untimely(sampled, version, turned_down)) is not None:
            return untimely
        if (damage := self._damage(record, sampled)) is not None:
            return damage
        asked = self.asked(record.workload, sampled)
        if not isinstance(asked, Asked):
            return asked
        if len(asked.text_ids) + len(sampled.token_ids) > rules.max_text_tokens:
            return "too_long"
        return UsableRecord(record, sampled, asked, record.rewards[rules.reward])

    def example(self, record: RewardRecord) -> UsableRecord | Skip:
        """A program as one to imitate, whoever wrote it: with the prompt that the policy would have been shown, and in
        the policy's words. Raises Unavailable without a store."""
        rules, candidate, workload = self._rules, record.candidate, record.workload
        if isinstance(candidate.origin, Sampled):
            return self._imitated(record, candidate.origin)
        if not isinstance(record.outcome, Passed) or workload.pattern is None:
            return "not_sampled"
        if workload.pattern in rules.held_out:
            return "held_out"
        device = record.device
        prompt = Prompt(
            encoder=rules.encoder,
            sample_seed=int(workload.pattern[:15], 16),
            architecture=device.architecture,
            num_sms=device.num_sms,
            copy_bandwidth_gbs=device.copy_bandwidth_gbs,
        )
        token_ids = self._prompts.answer_ids(candidate.written or candidate.program)
        written = Sampled(
            prompt=prompt,
            group=record.record_id,
            token_ids=token_ids,
            logprobs=(0.0,) * len(token_ids),
            temperature=1.0,
            first_version=0,
            last_version=0,
        )
        return self._imitated(record, written)

    def _imitated(self, record: RewardRecord, written: Sampled) -> UsableRecord | Skip:
        asked = self._written(record.workload, written.prompt)
        if not isinstance(asked, Asked):
            return asked
        if len(asked.text_ids) + len(written.token_ids) > self._rules.max_text_tokens:
            return "too_long"
        return UsableRecord(record, written, asked, record.rewards.get(self._rules.reward, 0.0))

    def _untimely(
        self, sampled: Sampled, version: PolicyVersion, turned_down: Collection[PolicyVersion]
    ) -> Skip | None:
        """Why the versions that sampled it are none to learn from at this one."""
        if any(sampled.first_version <= each <= sampled.last_version for each in turned_down):
            return "turned_down"
        if age(sampled, version, turned_down) > self._rules.max_policy_age:
            return "stale"
        return "unknown_version" if sampled.last_version > version else None

    def _damage(self, record: RewardRecord, sampled: Sampled) -> Skip | None:
        """What of its numbers cannot be."""
        rules = self._rules
        if rules.reward not in record.rewards:
            return "no_reward"
        if max(sampled.logprobs) > MOST_LOGPROB:
            return "bad_logprob"
        if not all(0 <= token < rules.vocabulary for token in sampled.token_ids):
            return "unknown_token"
        return None

    def asked(self, workload: Workload, sampled: Sampled) -> Asked | Skip:
        """What the policy was asked, or why that cannot be said. Raises Unavailable without a store."""
        asked = self._written(workload, sampled.prompt)
        if isinstance(asked, Asked) and asked.digest not in (None, sampled.asked):
            return "other_prompt"
        return asked

    def _written(self, workload: Workload, prompt: Prompt) -> Asked | Skip:
        if workload.pattern is None:  # A task: no policy in training was asked for it.
            return "pattern_gone"
        try:
            return self._rebuilt(workload.pattern, workload, prompt)
        except NotFound:
            return "pattern_gone"
        except Unavailable as error:
            if error.field == "pattern":
                return "pattern_damaged"
            raise

    def _rebuild(self, pattern: Digest, workload: Workload, prompt: Prompt) -> Asked:
        """Reading a matrix takes some 20 ms, which the records of a group need not spend each for itself. Raises as the
        store does, which is not kept: a pattern may come back."""
        return self._prompts.asked(self._patterns.get(pattern), workload, prompt)


def age(sampled: Sampled, version: PolicyVersion, turned_down: Collection[PolicyVersion] = ()) -> int:
    """Versions that served between a program's first token and this one, itself included; negative for a later one."""
    skipped = sum(sampled.first_version < each <= version for each in turned_down)
    return version - sampled.first_version - skipped


@dataclass(frozen=True)
class SampleBatch:
    """What the policy wrote, as tensors on one device."""

    prompts: PromptBatch | None
    """None: a prompt in words is part of the text."""
    text: TextBatch
    behaviour_BT: Tensor
    """Log-probability of each sampled token under the policy that sampled it, float32; 0 where not sampled."""
    temperature_B: Tensor

    def __len__(self) -> int:
        return len(self.temperature_B)

    def to(self, device: str | torch.device) -> Self:
        parts = {field.name: getattr(self, field.name) for field in fields(self)}
        there: dict[str, Any] = {name: None if part is None else part.to(device) for name, part in parts.items()}
        return type(self)(**there)

    def rows(self, index: Sequence[int]) -> Self:
        """Some of the sequences, without the padding that they do not need."""
        chosen = torch.tensor(index, device=self.temperature_B.device)
        length = int(self.lengths_B[chosen].max())
        parts: dict[str, Any] = {
            "prompts": None if self.prompts is None else _rows_of(self.prompts, chosen),
            "text": TextBatch(self.text.token_ids_BT[chosen, :length], self.text.sampled_mask_BT[chosen, :length]),
            "behaviour_BT": self.behaviour_BT[chosen, :length],
        }
        others = {field.name: getattr(self, field.name)[chosen] for field in fields(self) if field.name not in parts}
        return type(self)(**parts, **others)

    @property
    def lengths_B(self) -> Tensor:
        """Text tokens of each sequence, padding not counted."""
        mask = self.text.sampled_mask_BT
        return (torch.arange(1, mask.shape[1] + 1, device=mask.device) * mask).amax(dim=1)


def _rows_of(prompts: PromptBatch, chosen: Tensor) -> PromptBatch:
    return PromptBatch(*(tensor[chosen] for tensor in vars(prompts).values()))


@dataclass(frozen=True)
class TrainingBatch(SampleBatch):
    """Graded programs."""

    reward_B: Tensor
    group_B: Tensor
    """Integer ids; the same id is the same prompt."""
    passed_B: Tensor
    """Bool: the program passed."""
    staleness_B: Tensor
    """Versions that the first token is behind the policy, those that were turned down not counted, float32."""
    own_B: Tensor
    """Bool: every token was sampled at exactly the policy's version."""
    library_us_B: Tensor
    """Of the best routine on the program's workload, microseconds, float32."""


def assemble(
    records: Sequence[UsableRecord], version: PolicyVersion, turned_down: Collection[PolicyVersion] = ()
) -> TrainingBatch:
    """Records as a batch on the CPU, for a policy of this version. There must be at least one."""
    sampled = [each.sampled for each in records]
    groups = {group: number for number, group in enumerate(dict.fromkeys(each.group for each in records))}
    samples = assemble_samples(sampled, [each.asked for each in records])
    return TrainingBatch(
        **vars(samples),
        reward_B=torch.tensor([each.reward for each in records], dtype=torch.float32),
        group_B=torch.tensor([groups[each.group] for each in records]),
        passed_B=torch.tensor([isinstance(each.record.outcome, Passed) for each in records]),
        staleness_B=torch.tensor([age(each, version, turned_down) for each in sampled], dtype=torch.float32),
        own_B=torch.tensor([each.first_version == version for each in sampled]),
        library_us_B=torch.tensor([each.record.best_baseline_us for each in records], dtype=torch.float32),
    )


def assemble_examples(examples: Sequence[UsableRecord]) -> SampleBatch:
    """What is imitated, as a batch on the CPU. There must be at least one."""
    return assemble_samples([each.sampled for each in examples], [each.asked for each in examples])


def assemble_samples(sampled: Sequence[Sampled], asked: Sequence[Asked]) -> SampleBatch:
    """Samples as a batch on the CPU, each with what it was asked."""
    text = text_batch([each.text_ids for each in asked], [each.token_ids for each in sampled])
    shown = [each.shown for each in asked if each.shown is not None]
    behaviour = torch.tensor([logprob for each in sampled for logprob in each.logprobs], dtype=torch.float32)
    return SampleBatch(
        prompts=collate(shown) if shown else None,
        text=text,
        behaviour_BT=torch.zeros(text.token_ids_BT.shape).masked_scatter(text.sampled_mask_BT, behaviour),
        temperature_B=torch.tensor([each.temperature for each in sampled], dtype=torch.float32),
    )
