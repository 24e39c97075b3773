"""Arms of the policy alone: a real engine on a tiny random policy, with graders that say that all passes."""

import argparse
import asyncio
from dataclasses import dataclass, field

import pytest

from benchmarks.learning.conditioning import ShownInstead
from benchmarks.tuning.arms import WARMTH, Arm, Models, hiding_reports, showing, warm
from benchmarks.tuning.equal_seconds import searched
from services.generator.policy.engine import EnginePrompt
from services.generator.policy.kind import PromptWriter
from services.generator.policy.sampling import PolicySampler, SamplingOptions
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.operations import Problem
from sparsesmith.tuning.models import CostModels
from sparsesmith_proto.evaluation import EvaluationJob, EvaluationReport
from sparsesmith_proto.kernel import Prompt, Workload
from tests.generator.conftest import LivePolicy
from tests.generator.orders import make_pattern, make_task, make_workload
from tests.generator.reports import make_passed, make_timing, report_for

OWN, OTHER = make_pattern(), make_pattern(seed=3)


class Graders:
    """Everything passes."""

    def __init__(self) -> None:
        self.graded: set[str | None] = set()

    async def grade(self, job: EvaluationJob) -> EvaluationReport:
        self.graded.add(job.workload.pattern)
        await asyncio.sleep(0.01)
        return report_for(job, make_passed(make_timing(5)))


@dataclass(frozen=True)
class Noting(ShownInstead):
    """Notes what it was asked to show."""

    asked: list[str] = field(default_factory=list)
    reports: list[str] = field(default_factory=list)
    """Of parents."""

    def write(self, pattern: Pattern, workload: Workload, prompt: Prompt) -> EnginePrompt:
        self.asked.append(pattern.digest)
        if prompt.parent is not None:
            self.reports.append(prompt.parent.report)
        return self.writer.write(pattern, workload, prompt)


def make_sampler(live_policy: LivePolicy, writer: PromptWriter) -> PolicySampler:
    return PolicySampler(live_policy.host, writer, SamplingOptions("sm_90", 1.0, 24))


async def one_sample(sampler: PolicySampler) -> None:
    """The first one of an engine takes long."""
    await sampler.group(make_task(), "first", 1).sample(0)


@pytest.mark.parametrize("arm", ["sample", "shuffled", "blind", "edits", "unreported", "sample-warm"])
def test_what_a_policy_writes_of_what_it_is_shown_is_graded_on_the_right_matrix(
    live_policy: LivePolicy, arm: Arm
) -> None:
    noting = Noting(live_policy.writer, None)
    sampler = make_sampler(live_policy, noting)
    live_policy.run(one_sample(sampler))
    noting.asked.clear()
    if arm in ("shuffled", "blind"):
        sampler = showing(sampler, OTHER if arm == "shuffled" else None)
    if arm == "unreported":
        sampler = hiding_reports(sampler)
    if arm == "sample-warm":
        sampler = warm(sampler)
        assert {sampler.options.warmth_of(seed) for seed in range(20)} == {WARMTH}
    graders, problem = Graders(), Problem(make_workload(OWN), OWN)
    options = argparse.Namespace(seconds_each=20.0 if arm in ("edits", "unreported") else 4.0)
    row, winner = live_policy.run(searched(arm, problem, graders, sampler, Models(CostModels()), options))
    assert winner is not None and row["passed"] == row["candidates"] > 0
    assert set(noting.asked) == {OTHER.digest if arm == "shuffled" else OWN.digest}
    assert graders.graded == {OWN.digest}
    if arm in ("edits", "unreported"):
        assert row["sources"]["edits"]["proposed"] > 0
        assert noting.reports and all(bool(report) == (arm == "edits") for report in noting.reports)
    else:
        assert set(row["sources"]) == {"policy"}


def test_an_engine_that_serves_and_writes_nothing_in_an_arms_seconds_has_brought_nothing(
    live_policy: LivePolicy,
) -> None:
    sampler = make_sampler(live_policy, live_policy.writer)
    live_policy.run(one_sample(sampler))
    options = argparse.Namespace(seconds_each=0.05)
    problem = Problem(make_workload(OWN), OWN)
    row, winner = live_policy.run(searched("sample", problem, Graders(), sampler, Models(CostModels()), options))
    assert winner is None
    assert (row["candidates"], row["search_us"], row["by"], row["sources"]) == (0, None, None, {})
