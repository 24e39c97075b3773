"""Examples of three kinds, tokenised: write a program, improve one that was measured, repair one that failed.

Text before `<bos>` is what `sparsesmith.policy.embedding` makes of a prompt with a parent. Each batch is a function of
the seed and its number, so that a run which is stopped goes on with the very next one.
"""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, get_args

import numpy as np
from tokenizers import Tokenizer

from services.trainer.offline.parts import Tokens, program_tokens
from services.trainer.offline.prompt_pool import Asked, Device, asked_for
from services.trainer.offline.targets import WorkloadTargets
from services.trainer.tokenizer import BOS_ID
from sparsesmith.policy.embedding import refinement_token_ids
from sparsesmith.prompts.refinement import timing_report

Kind = Literal["write", "improve", "repair"]
KINDS: tuple[Kind, ...] = get_args(Kind)

LEAST_STEP = 1.02
"""A parent is slower than its child by at least this factor."""


@dataclass(frozen=True)
class ExampleRules:
    """Which examples, and in which shares."""

    improve_share: float = 0.3
    """Of all examples; where a workload has none of a kind, a program is written instead."""
    repair_share: float = 0.1
    harvest_share: float = 0.5
    """Of improvements, where a harvest has any of the workload: those that were timed beside their parent."""
    max_program_tokens: int = 1024
    """Longer targets are left out, and counted."""
    max_text_tokens: int = 2048
    """Parent, report and program together."""
    architecture: str = "sm_90"
    """GPU on which the programs were measured."""
    num_sms: int = Device.num_sms
    copy_bandwidth_gbs: float = Device.copy_bandwidth_gbs


@dataclass(frozen=True)
class Example:
    """One text to learn, under one prompt."""

    kind: Kind
    pattern: str
    asked: Asked
    prompt_ids: list[int]
    """Text before the program: `<bos>`, after a parent and its report unless it is written from nothing."""
    program: Tokens
    weight: float


class Examples:
    """Of workloads, chosen by weight."""

    def __init__(
        self, workloads: Sequence[WorkloadTargets], tokenizer: Tokenizer, rules: ExampleRules, seed: int = 0
    ) -> None:
        self._tokenizer = tokenizer
        self._rules = rules
        self._seed = seed
        self._tokens = lru_cache(maxsize=50_000)(self._tokenised)
        self._before = lru_cache(maxsize=20_000)(self._prompt_ids)
        self.left_out: Counter[str] = Counter()
        """By reason."""
        self._targets = [self._short_targets(each) for each in workloads]
        self.workloads = [each for each, targets in zip(workloads, self._targets, strict=True) if targets]
        """Those with any target that is short enough."""
        self._targets = [targets for targets in self._targets if targets]
        self._orders = lru_cache(maxsize=4)(self._order)

    def __len__(self) -> int:
        return len(self.workloads)

    def batch(self, step: int, size: int) -> list[Example]:
        """The `step`-th of a run; an epoch shows each workload once."""
        batches = math.ceil(len(self) / size)
        epoch, place = divmod(step, batches)
        generator = np.random.default_rng((self._seed, step))
        order = self._orders(epoch)[place * size : (place + 1) * size]
        return [self._chosen(int(index), generator) for index in order]

    def fixed(self, most: int = 2_000) -> Iterator[Example]:
        """Always the same ones, to measure on: every target to write, and of each workload one of the other kinds."""
        generator = np.random.default_rng(0)
        step = max(1, -(-len(self) // most))
        for index in range(0, len(self), step):
            for target in self._targets[index]:
                yield self._written(index, target)
            for found in (self._improving(index, generator), self._repairing(index, generator)):
                if found is not None:
                    yield found

    def _order(self, epoch: int) -> list[int]:
        return [int(each) for each in np.random.default_rng((self._seed, 1 << 40, epoch)).permutation(len(self))]

    def _chosen(self, index: int, generator: np.random.Generator) -> Example:
        rules, luck = self._rules, generator.random()
        found = None
        if luck < rules.improve_share:
            found = self._improving(index, generator)
        elif luck < rules.improve_share + rules.repair_share:
            found = self._repairing(index, generator)
        return found or self._written(index, self._one_target(index, generator))

    def _written(self, index: int, target: int) -> Example:
        chosen = self.workloads[index].targets[target]
        return self._example("write", index, [BOS_ID], self._tokens(chosen.program), chosen.weight)

    def _improving(self, index: int, generator: np.random.Generator) -> Example | None:
        """A change of the harvest, larger gains more often; or the way from any slower program to a target."""
        workload = self.workloads[index]
        if workload.improvements and generator.random() < self._rules.harvest_share:
            gains = [math.log(each.gain) for each in workload.improvements]
            edit = workload.improvements[_chosen_by(gains, generator)]
            return self._after("improve", index, edit.parent, edit.report, edit.child)
        if workload.is_expected:
            return None
        target = self._one_target(index, generator)
        times = [each.median_us for each in workload.measured]
        first_slower = bisect_left(times, LEAST_STEP * times[target])
        if first_slower == len(times):
            return None
        parent = workload.measured[int(generator.integers(first_slower, len(times)))]
        report = timing_report(parent.median_us, workload.best_baseline_us)
        return self._after("improve", index, parent.program, report, workload.targets[target].program)

    def _repairing(self, index: int, generator: np.random.Generator) -> Example | None:
        repairs = self.workloads[index].repairs
        if not repairs:
            return None
        repair = repairs[int(generator.integers(len(repairs)))]
        return self._after("repair", index, repair.failed, repair.report, repair.working)

    def _after(self, kind: Kind, index: int, parent: str, report: str, program: str) -> Example | None:
        """None where the texts are too long together."""
        before, tokens = self._before(parent, report), self._tokens(program)
        if len(before) + len(tokens.ids) > self._rules.max_text_tokens:
            return None
        return self._example(kind, index, before, tokens, 1.0)

    def _example(self, kind: Kind, index: int, before: list[int], program: Tokens, weight: float) -> Example:
        key = self.workloads[index].key
        device = Device(self._rules.architecture, self._rules.num_sms, self._rules.copy_bandwidth_gbs)
        asked = asked_for(key.operation, key.element_type, key.num_dense_cols, device)
        return Example(kind, key.pattern, asked, before, program, weight)

    def _one_target(self, index: int, generator: np.random.Generator) -> int:
        weights = [self.workloads[index].targets[each].weight for each in self._targets[index]]
        return self._targets[index][_chosen_by(weights, generator)]

    def _short_targets(self, workload: WorkloadTargets) -> list[int]:
        """Places of those that may be learned."""
        lengths = [len(self._tokens(target.program).ids) for target in workload.targets]
        short = [place for place, length in enumerate(lengths) if length <= self._rules.max_program_tokens]
        if len(short) < len(lengths):
            reason = f"targets of more than {self._rules.max_program_tokens} tokens"
            self.left_out[reason] += len(lengths) - len(short)
        return short

    def _tokenised(self, program: str) -> Tokens:
        return program_tokens(self._tokenizer, program)

    def _prompt_ids(self, parent: str, report: str) -> list[int]:
        return [*refinement_token_ids(self._tokenizer, parent, report), BOS_ID]


def _chosen_by(weights: Sequence[float], generator: np.random.Generator) -> int:
    return int(generator.choice(len(weights), p=np.array(weights) / sum(weights)))
