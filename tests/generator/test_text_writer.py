"""`refine` with the service's own language model, asked in words: a real engine on a tiny random model."""

import asyncio
from dataclasses import replace

import pytest

from services.generator.policy.sampling import PolicySampler, SamplingOptions
from services.generator.policy.text_policy import TextPrompts
from services.generator.search import STRATEGIES, Sources, Standing
from services.generator.search.grading import GradingLimits, graded
from services.generator.task import TuningTask
from services.generator.writing import Writers
from services.generator.writing.model import ModelOptions
from services.generator.writing.text import ChatPrompts, TextModel
from sparsesmith.errors import LimitExceeded
from sparsesmith.operations import Problem
from sparsesmith.prompts.brief import Gpu
from sparsesmith_proto.api import SourceReport
from sparsesmith_proto.kernel import Evaluation, Workload, Written
from tests.generator.conftest import LivePolicy
from tests.generator.test_model_writer import by_words, refining_dot
from tests.generator.test_mutate_search import Graders


def refining_copy() -> TuningTask:
    """Of few words."""
    task = refining_dot(candidates=20, writer="text", children=2, generations=2)
    workload = Workload(operation="copy", element_type="float32", axes={"rows": 37, "cols": 53})
    return replace(task, order=task.order.model_copy(update={"workload": workload}), problem=Problem(workload))


def refined(live: LivePolicy, max_program_tokens: int) -> tuple[list[Evaluation], SourceReport]:
    prompts = TextPrompts(live.folder.path)
    assert isinstance(prompts, ChatPrompts)
    sampler = PolicySampler(live.host, prompts, SamplingOptions("sm_90", 1.0, max_program_tokens))
    writers = Writers([TextModel(sampler, prompts, "tiny-0", 4)], ModelOptions(Gpu("sm_90"), 2000))
    task, graders = refining_copy(), Graders(by_words)

    async def run() -> Standing:
        standing, sources = Standing(), Sources(sampler, 16, 16, writers=writers)
        batches = STRATEGIES["refine"](task, sources, 20, standing)
        async for report in graded(batches, task, graders, GradingLimits(2, 1), standing.lost):
            standing.add(report)
        return standing

    standing = live.run(asyncio.wait_for(run(), 120))
    written = [each for each in graders.evaluations if isinstance(each.candidate.origin, Written)]
    (source,) = [each for each in standing.sources() if each.source == "text"]
    return written, source


def test_any_language_model_that_the_engine_serves_writes_programs(live_policy: LivePolicy) -> None:
    written, source = refined(live_policy, max_program_tokens=40)
    assert len(written) >= 2
    for each in written:
        origin = each.candidate.origin
        assert isinstance(origin, Written)
        assert (origin.writer, origin.model) == ("text", "tiny-0")
        assert origin.completion_tokens is not None
        assert 1 <= origin.completion_tokens <= 40
        assert (origin.prompt_tokens or 0) > 1000
    assert source.writing is not None
    assert source.writing.answers == source.proposed == len(written)
    assert set(source.writing.failures) <= {"too long", "empty"}


def test_words_that_the_context_does_not_hold_are_told_with_both_numbers(live_policy: LivePolicy) -> None:
    with pytest.raises(
        LimitExceeded, match=r"a prompt of 1\d{3} tokens does not fit .* text, which leaves 548"
    ) as told:
        refined(live_policy, max_program_tokens=1500)
    assert told.value.field == "refine.writer"
    assert told.value.limit == "548"
