"""A value model between sampling and grading: of several times as many samples as can be graded, the best go on.

Off by default. What it leaves out nobody measures and nobody learns from, so samples of a search with a filter are a
choice among the policy's, not the policy's: keep it off where a trainer learns online.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from sparsesmith.matrix.pattern import Pattern
from sparsesmith.prompts.arrays import PromptInputs, prompt_inputs
from sparsesmith_proto.kernel import Candidate, Prompt, Sampled, Workload

if TYPE_CHECKING:
    from sparsesmith.policy.value import Judge, Worth

LIKELY = 0.5
"""Programs that pass with at least this chance go before all others."""


@dataclass(frozen=True)
class ValueFilter:
    """Ranks samples of one workload. Blocking; its model is loaded when it is first asked."""

    folder: Path
    factor: int
    """Samples taken for each that is graded."""

    def best(self, pattern: Pattern, workload: Workload, samples: Sequence[Candidate], most: int) -> list[Candidate]:
        """At most `most`, the most promising first. A text that is there twice counts once, the others come last."""
        prompt = next((each.origin.prompt for each in samples if isinstance(each.origin, Sampled)), None)
        if prompt is None:
            return list(samples[:most])
        worth = self._judge.worth(self._shown(pattern, workload, prompt), [each.program for each in samples])
        order = sorted(range(len(samples)), key=lambda each: _place(worth[each]))
        first: dict[str, int] = {}
        for place in order:
            first.setdefault(samples[place].program, place)
        again = [place for place in order if first[samples[place].program] != place]
        return [samples[place] for place in (*first.values(), *again)][:most]

    def _shown(self, pattern: Pattern, workload: Workload, prompt: Prompt) -> PromptInputs:
        """The prompt as the value model reads it: its encoder may be another than the policy's."""
        known = prompt.model_copy(update={"encoder": self._judge.encoder, "parent": None})
        return prompt_inputs(pattern, workload, known)

    @cached_property
    def _judge(self) -> "Judge":
        from sparsesmith.policy.value import load_judge

        return load_judge(self.folder)


def value_filter(folder: Path | None, factor: int) -> ValueFilter | None:
    """None without a folder. Raises InvalidOption where it holds no value model of today's features."""
    if folder is None:
        return None
    from sparsesmith.policy.value import check_value_folder

    check_value_folder(folder)
    return ValueFilter(folder, factor)


def _place(worth: "Worth") -> tuple[bool, float]:
    return worth.passes is not None and worth.passes < LIKELY, worth.log_time
