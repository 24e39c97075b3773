"""What a model's answers cost in one search, and what came of them and of the suggestions that were made."""

from collections import Counter
from dataclasses import dataclass, field

from sparsesmith_proto.api import SuggestionReport, WritingReport
from sparsesmith_proto.kernel import Evaluation, Passed, Sampled, Written


@dataclass
class SuggestionAccount:
    """Of one suggestion."""

    made: int = 0
    passed: int = 0
    faster: int = 0
    gain: float = 0.0

    def report(self, name: str) -> SuggestionReport:
        return SuggestionReport(name=name, made=self.made, passed=self.passed, faster=self.faster, gain=self.gain)


@dataclass
class WritingAccount:
    """Of one writer in one search."""

    model: str
    num_answers: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0
    num_repairs: int = 0
    num_repaired: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    suggestions: dict[str, SuggestionAccount] = field(default_factory=dict)

    def answered(self, prompt_tokens: int | None, completion_tokens: int | None, seconds: float) -> None:
        """None: nobody counted them."""
        self.num_answers += 1
        self.prompt_tokens += prompt_tokens or 0
        self.completion_tokens += completion_tokens or 0
        self.seconds += seconds

    def failed(self, reason: str) -> None:
        self.failures[reason] += 1

    def graded(self, evaluation: Evaluation, origin: Written | Sampled, parent_us: float | None) -> None:
        """What became of an answer. `parent_us`: None where it was asked to repair, or to begin."""
        passed = evaluation.outcome if isinstance(evaluation.outcome, Passed) else None
        if origin.parent is not None and parent_us is None:
            self.num_repairs += 1
            self.num_repaired += passed is not None
        for name in origin.suggestions if isinstance(origin, Written) else ():
            of = self.suggestions.setdefault(name, SuggestionAccount())
            of.made += 1
            of.passed += passed is not None
            if passed is not None and parent_us is not None and passed.timing.median_us < parent_us:
                of.faster += 1
                of.gain = max(of.gain, 1 - passed.timing.median_us / parent_us)

    def report(self) -> WritingReport:
        return WritingReport(
            model=self.model,
            answers=self.num_answers,
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.completion_tokens,
            seconds=self.seconds,
            repairs=self.num_repairs,
            repaired=self.num_repaired,
            failures=dict(sorted(self.failures.items())),
            suggestions=tuple(each.report(name) for name, each in sorted(self.suggestions.items())),
        )
